"""Texts that went wrong in real terminals, and a palette without a theme."""

from __future__ import annotations

from hypothesis import strategies as st
from rich.style import Style

from kt_tui.ui.widgets.transcript.palette import Palette

PALETTE = Palette.resolve(
    lambda name: Style(color="red", bgcolor="black") if "code" in name else Style(color="blue")
)

MARKUP = [
    "[/]",
    "[bold",
    "[/some/path]",
    "latvec[0]",
    "[[self someView] doSomething:x]",
    "}, [/* deps */]);",
    'reply [1, "3"] and [b + should',
    "[@click=app.quit]x[/]",
    "[stage] item = 1",
]
WIDE = [
    "你好世界abc",
    "\u23fa\ufe0f ok",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466|",
    "e\u0301 (e + U+0301)",
    "ｆｕｌｌ",
    "\U0001f1e9\U0001f1ea flag and \U0001f44d\U0001f3fd skin",
    "\u200d\ufe0f joiners first and last\u200d",
    "a" + "\u0301" * 60,
]
RIGHT_TO_LEFT = ["שלום abc", "مرحبا 123", "rm \u202efdp.exe"]
CONTROLS = [
    "\x1b[31mred\x1b[0m",
    "bell\x07",
    "\x1b]0;title\x07",
    "nul\x00",
    "tab\tstop",
    "\x9b2J",
    "a\rb",
    "a\r\nb",
]

MARKDOWN = [
    "# One\n\nText *with* **some** `code` and ~~none~~.\n\n- a\n- b\n  - c\n\n1. x\n2. y\n\n10. z\n",
    "```python\ndef f(x):\n\treturn '你好'\n\n\n```\nafter\n\n    indented\n\n    more\n\nend",
    "```\nnever closed\n\n# not a heading\n",
    "~~~~ text\n~~~\n~~~~~ \nafter",
    "> quote\nlazy\n> - list in it\n>\n> > deeper\n\n***\n\nSetext\n===\n",
    "| a | long header |\n|:--|--:|\n| 1 | 你好 **x** |\n| only one |\n\nafter",
    "- item\n\n  paragraph\n\n  ```sh\n  code\n  ```\n- next\n\n\n\nend",
    "[link](http://x.y/z) <http://auto.link> ![alt](img.png) <b>html</b> &amp; \\* [ref]\n\n[ref]: http://later\n",
    "line one  \nline two\\\nline three\n\n\n\n\ntext",
    "1) a\n2) b\n- c\n+ d\n* e\n",
]

fragments = st.sampled_from(
    [*MARKUP, *WIDE, *RIGHT_TO_LEFT, *CONTROLS, *MARKDOWN, "\n", "\n\n", " ", "```\n", "- ", "| "]
)
nasty_text = st.lists(st.one_of(fragments, st.text(max_size=12)), max_size=12).map("".join)
"""Text of any kind, put together from the cases above and from anything Unicode has."""
