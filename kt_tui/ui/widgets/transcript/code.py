"""Source code as styled lines, through Pygments, in the transcript's own few colours."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Protocol

from rich.style import Style

from kt_tui.ui.widgets.transcript.lines import TAB, Run
from kt_tui.ui.widgets.transcript.palette import Palette

LARGEST = 65_536
"""Characters that are highlighted; larger code stays plain, so that no frame waits for a lexer."""


class _Lexer(Protocol):
    def get_tokens(self, text: str) -> Iterable[tuple[object, str]]: ...


def code_lines(source: str, language: str, palette: Palette) -> list[list[Run]]:
    """One list of runs a line. An unknown language, or very much code, is plain."""
    source = source.expandtabs(TAB)
    lexer = _lexer(language) if language and len(source) <= LARGEST else None
    if lexer is None:
        return [[Run(line, palette.code)] for line in source.split("\n")]
    lines: list[list[Run]] = [[]]
    for kind, text in lexer.get_tokens(source):
        style = _style(str(kind), palette)
        first, *rest = text.split("\n")
        if first:
            lines[-1].append(Run(first, style))
        lines.extend([Run(part, style)] if part else [] for part in rest)
    wanted = source.count("\n") + 1
    return (lines + [[]] * wanted)[:wanted]  # lexers may add a line end or take blank ones away


@lru_cache(32)
def _lexer(language: str) -> _Lexer | None:
    from pygments.lexers import get_lexer_by_name  # type: ignore[import-untyped]
    from pygments.util import ClassNotFound  # type: ignore[import-untyped]

    try:
        lexer: _Lexer = get_lexer_by_name(language, stripnl=False, stripall=False)
    except ClassNotFound:
        return None
    return lexer


def _style(kind: str, palette: Palette) -> Style:
    kind = kind.removeprefix("Token.")
    if kind.startswith("Comment"):
        return palette.code_comment
    if kind.startswith(("Keyword", "Operator.Word", "Name.Tag")):
        return palette.code_keyword
    if kind.startswith("Literal.String"):
        return palette.code_string
    if kind.startswith("Literal.Number"):
        return palette.code_number
    if kind.startswith(("Name.Function", "Name.Class", "Name.Decorator", "Name.Builtin", "Name.Attribute")):
        return palette.code_name
    return palette.code
