"""Markdown blocks drawn as rows of exact width. Text is only ever text: no markup of Rich or Textual is read."""

from __future__ import annotations

from collections.abc import Sequence

from markdown_it.token import Token
from rich.style import Style

from kt_tui.ui.widgets.transcript.code import code_lines
from kt_tui.ui.widgets.transcript.lines import TAB, Line, LineWriter, Run
from kt_tui.ui.widgets.transcript.palette import Palette
from kt_tui.ui.widgets.transcript.segmenter import Block, parser
from kt_tui.ui.widgets.transcript.table import write_table

BAR = "▎ "
BULLETS = "•◦‣"
LARGEST_INLINE = 65_536
"""Characters of one block whose emphasis is looked for; a larger block is shown as it was written."""
BOLD, ITALIC, STRIKE = Style(bold=True), Style(italic=True), Style(strike=True)
UNDERLINE = Style(underline=True)
MARKS = {"strong": BOLD, "em": ITALIC, "s": STRIKE}


def render_block(block: Block, width: int, palette: Palette, *, highlight: bool = True) -> list[Line]:
    """The rows of one block, without the blank row before it.

    Args:
        block: From the segmenter.
        width: Cells of every row.
        palette: The styles.
        highlight: Whether code gets colours; an open fence does not, it would be lexed anew each time.
    """
    writer = LineWriter(width, palette.text)
    renderer = _Renderer(writer, palette, highlight=highlight and block.closed)
    if len(block.source) > LARGEST_INLINE and block.kind not in ("fence", "code_block"):
        for line in block.source.split("\n"):
            writer.paragraph([Run(line.expandtabs(TAB), palette.text)])
    else:
        renderer.blocks(parser().parse(block.source))
    return writer.lines


def render_plain(text: str, width: int, style: Style, *, lead: Run | None = None) -> list[Line]:
    """Rows of text as it is: what a user typed, reasoning, notes."""
    writer = LineWriter(width, style)
    for line in text.split("\n"):
        writer.paragraph([Run(line.expandtabs(TAB), style)], lead=lead)
    return writer.lines


def render_open_code(body: str, width: int, palette: Palette) -> list[Line]:
    """Further rows of a fence that is still open."""
    writer = LineWriter(width, palette.text)
    write_code(writer, body, "", palette)
    return writer.lines


def write_code(writer: LineWriter, body: str, language: str, palette: Palette) -> None:
    """Rows of code behind a bar, long lines wrapped anywhere."""
    lead = Run(BAR, palette.code_bar)
    for runs in code_lines(body, language, palette):
        writer.paragraph(runs, words=False, lead=lead, fill=palette.code)


class _Renderer:
    def __init__(self, writer: LineWriter, palette: Palette, *, highlight: bool) -> None:
        self.writer = writer
        self.palette = palette
        self.highlight = highlight
        self.base = palette.text
        self.depth = 0

    def blocks(self, tokens: Sequence[Token]) -> None:
        """Writes sibling blocks, with a blank row wherever the source had one or the kind asks for it."""
        index, previous_end, first = 0, 0, True
        while index < len(tokens):
            token = tokens[index]
            end = _matching(tokens, index)
            start_line, end_line = token.map or (previous_end, previous_end)
            tight = token.hidden or start_line <= previous_end
            if not first and not tight:
                self.writer.row([])
            self.block(token, tokens[index + 1 : end])
            previous_end, first, index = _content_end(token, tokens[index:end], end_line), False, end + 1

    def block(self, token: Token, inside: Sequence[Token]) -> None:
        """Writes one block; ``inside`` are the tokens between its opening and its closing one."""
        match token.type:
            case "heading_open":
                style = self.palette.heading + (BOLD if token.tag in ("h1", "h2", "h3") else ITALIC)
                self.inline(inside[0], style + UNDERLINE if token.tag == "h1" else style)
            case "paragraph_open":
                self.inline(inside[0], self.base)
            case "fence" | "code_block":
                self.code(token)
            case "bullet_list_open" | "ordered_list_open":
                self.items(token, inside)
            case "blockquote_open":
                outer, self.base = self.base, self.palette.quote
                with self.writer.indented(
                    Run(BAR, self.palette.rule), Run(BAR, self.palette.rule), decoration=True
                ):
                    self.blocks(inside)
                self.base = outer
            case "hr":
                self.writer.row([Run("─" * self.writer.room, self.palette.rule)])
            case "table_open":
                write_table(self.writer, self.palette, inside, self.runs)
            case _:
                self.writer.paragraph([Run(token.content.expandtabs(TAB), self.base)])

    def items(self, token: Token, inside: Sequence[Token]) -> None:
        """Writes the items of a list, numbers aligned to the right."""
        starts = [
            index for index, item in enumerate(inside) if item.level == token.level + 1 and item.nesting == 1
        ]
        ordered = token.type == "ordered_list_open"
        numbers = [f"{inside[index].info}{inside[index].markup}" for index in starts] if ordered else []
        wide = max(map(len, numbers), default=0)
        bullet = BULLETS[min(self.depth, len(BULLETS) - 1)]
        self.depth += 1
        previous_end = -1
        for place, index in enumerate(starts):
            end = _matching(inside, index)
            item = inside[index]
            first, last = item.map or (previous_end, previous_end)
            if 0 <= previous_end < first:
                self.writer.row([])
            marker = f"{numbers[place]:>{wide}} " if ordered else f"{bullet} "
            with self.writer.indented(Run(marker, self.palette.marker)):
                self.blocks(inside[index + 1 : end])
            previous_end = _content_end(item, inside[index:end], last)
        self.depth -= 1

    def code(self, token: Token) -> None:
        """Writes a fence or an indented block, its language above it."""
        language = token.info.split()[0] if token.info.split() else ""
        if language:
            label = language[: max(self.writer.room - 4, 1)]
            runs = [Run(BAR, self.palette.code_bar), Run(label, self.palette.code_label)]
            self.writer.row(runs, joiner="", decoration=len(BAR) + len(label), fill=self.palette.code)
        write_code(
            self.writer, token.content.removesuffix("\n"), language if self.highlight else "", self.palette
        )

    def inline(self, token: Token, style: Style) -> None:
        """Writes a paragraph's source lines one by one: a model's line break is meant."""
        line: list[Run] = []
        for run in self.runs(token, style):
            first, *rest = run.text.split("\n")
            line.append(Run(first, run.style))
            for part in rest:
                self.writer.paragraph(line)
                line = [Run(part, run.style)]
        self.writer.paragraph(line)

    def runs(self, token: Token, style: Style) -> list[Run]:
        """The styled text of an inline token; line breaks are newlines."""
        runs: list[Run] = []
        styles = [style]
        links: list[tuple[str, int]] = []
        for child in token.children or []:
            match child.type:
                case "text":
                    runs.append(Run(child.content.expandtabs(TAB), styles[-1]))
                case "softbreak" | "hardbreak":
                    runs.append(Run("\n", styles[-1]))
                case "code_inline":
                    runs.append(Run(child.content.expandtabs(TAB), self.palette.inline_code))
                case "strong_open" | "em_open" | "s_open":
                    styles.append(styles[-1] + MARKS[child.type.removesuffix("_open")])
                case "link_open":
                    links.append((str(child.attrGet("href") or ""), len(runs)))
                    styles.append(self.palette.link)
                case "link_close":
                    styles.pop()
                    href, since = links.pop()
                    shown = "".join(run.text for run in runs[since:])
                    if shown not in (href, href.removeprefix("mailto:"), ""):
                        runs.append(Run(f" ({href})", self.palette.muted))
                case "image":
                    source = str(child.attrGet("src") or "")
                    runs.append(Run(f"{child.content or 'image'} ({source})", self.palette.muted))
                case "strong_close" | "em_close" | "s_close":
                    styles.pop()
                case _:
                    runs.append(Run(child.content.expandtabs(TAB), styles[-1]))
        return runs


def _matching(tokens: Sequence[Token], index: int) -> int:
    """Index of the token that closes the one at ``index``; the same index for one that needs no closing."""
    if tokens[index].nesting != 1:
        return index
    level = tokens[index].level
    return next(
        (
            at
            for at in range(index + 1, len(tokens))
            if tokens[at].level == level and tokens[at].nesting == -1
        ),
        len(tokens) - 1,
    )


def _content_end(token: Token, inside: Sequence[Token], fallback: int) -> int:
    """The source line after the last one that holds text: a list's own range includes blank lines after it."""
    if token.type not in ("bullet_list_open", "ordered_list_open", "list_item_open", "blockquote_open"):
        return fallback
    return max((item.map[1] for item in inside if item.map and item.type in _LEAVES), default=fallback)


_LEAVES = ("inline", "fence", "code_block", "hr", "paragraph_open", "heading_open", "table_open")
