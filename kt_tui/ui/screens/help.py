"""F1: what the focused widget is for, and the keys that act now."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.dom import DOMNode
from textual.screen import ModalScreen, Screen
from textual.widgets import Markdown

from kt_tui.ui.widgets.facts import Facts, Row

GENERAL_HELP = """\
The digits **1** to **6** show the modes (**alt** with a digit works while typing too).
**ctrl+o** puts a letter on everything that can take the focus; **ctrl+p** finds any command by name.
**F5** starts or stops the engine. **ctrl+q** quits, and asks first if an engine runs.
"""


def help_text(node: DOMNode | None) -> str:
    """Help of the nearest that has some, from the widget outwards: its ``help_page()``, else its ``HELP``."""
    while node is not None:
        page = getattr(node, "help_page", None)
        text = page() if callable(page) else getattr(node, "HELP", None)
        if isinstance(text, str) and text.strip():
            return text.strip()
        node = node.parent
    return ""


def key_rows(screen: Screen[object]) -> list[tuple[str, str]]:
    """Keys and what they do, for whatever has the focus; alternatives of one action together."""
    rows: dict[str, tuple[list[str], str]] = {}
    for _, binding, enabled, _ in screen.active_bindings.values():
        if not enabled or not (binding.description or binding.tooltip):
            continue
        keys, _ = rows.setdefault(binding.action, ([], binding.tooltip or binding.description))
        keys.append(screen.app.get_key_display(binding))
    return [(", ".join(dict.fromkeys(keys)), what) for keys, what in rows.values()]


def help_markdown(screen: Screen[object]) -> str:
    """What to read: about the focused widget, then what holds everywhere."""
    about = help_text(screen.focused) or help_text(screen)
    return f"{about}\n\n{GENERAL_HELP}"


class HelpScreen(ModalScreen[None]):
    """The page in a box; any of Esc, q, F1 closes it."""

    DEFAULT_CSS = """
    HelpScreen { align: center middle; background: $background 60%; }
    HelpScreen VerticalScroll {
        width: 84; max-width: 96%; height: auto; max-height: 90%;
        background: $surface; border: round $border; padding: 1 2;
    }
    HelpScreen VerticalScroll { border-title-color: $foreground; }
    HelpScreen Markdown { background: $surface; padding: 0; margin: 0; }
    HelpScreen MarkdownParagraph { margin: 0 0 1 0; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,f1", "dismiss(None)", "Close")]

    def __init__(self, markdown: str, keys: Sequence[Row]) -> None:
        super().__init__()
        self._markdown = markdown
        self._keys = tuple(keys)

    def compose(self) -> ComposeResult:
        """The page."""
        with VerticalScroll() as scroll:
            scroll.border_title = "Help"
            yield Markdown(self._markdown, open_links=False)
            yield Facts(16)

    def on_mount(self) -> None:
        """Fill in the keys."""
        self.query_one(Facts).show(self._keys)
