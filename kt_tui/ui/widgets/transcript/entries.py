"""The messages of a transcript as pieces: what was typed, answers that grow, remarks of the program."""

from __future__ import annotations

from enum import StrEnum

from kt_tui.text import clean_text
from kt_tui.ui.widgets.transcript.lines import Line, LineWriter, Run
from kt_tui.ui.widgets.transcript.markdown import render_plain
from kt_tui.ui.widgets.transcript.palette import Palette
from kt_tui.ui.widgets.transcript.pieces import Piece, PlainStream, Tail, block_piece
from kt_tui.ui.widgets.transcript.segmenter import Segmenter

INDENT = "  "


class Kind(StrEnum):
    """Who speaks."""

    USER = "user"
    ANSWER = "answer"
    NOTE = "note"
    ERROR = "error"


LABELS = {Kind.USER: "you", Kind.ANSWER: "kt", Kind.NOTE: "·", Kind.ERROR: "!"}


class Entry:
    """One message. ``content`` is its unwrapped source, exactly as it came."""

    def __init__(self, kind: Kind, content: str) -> None:
        self.kind = kind
        self.content = content
        self._pieces: list[Piece] | None = None
        self._height = 0
        self._height_width = -1

    @property
    def label(self) -> str:
        """What stands in the margin beside the first row."""
        return LABELS[self.kind]

    @property
    def pieces(self) -> list[Piece]:
        """The parts, made when first looked at."""
        if self._pieces is None:
            self._pieces = self._make()
            self.changed()
        return self._pieces

    @property
    def split(self) -> bool:
        """Whether the parts are made already."""
        return self._pieces is not None

    def height(self, width: int) -> int:
        """Rows at this width with the blank one before the message; a guess where it was not rendered yet."""
        if width != self._height_width:
            self._height_width = width
            if self._pieces is None:
                self._height = 1 + self._guess(width)
            else:
                self._height = 1 + sum(piece.height(width) for piece in self._pieces)
        return self._height

    def changed(self) -> None:
        """Heights must be added up again."""
        self._height_width = -1

    def release(self) -> None:
        """Gives the memory of rendered rows back."""
        for piece in self._pieces or ():
            piece.release()

    def _guess(self, width: int) -> int:
        text = self.content
        return max(1, text.count("\n") + 1, -(-len(text) // max(width, 1)))

    def _make(self) -> list[Piece]:
        text = clean_text(self.content)

        def render(width: int, palette: Palette) -> list[Line]:
            return render_plain(
                text, width, getattr(palette, "text" if self.kind is Kind.USER else self.kind)
            )

        return [Piece(render, text, gap=False)]


class Answer(Entry):
    """A model's answer: reasoning behind a handle, Markdown content, a footer of numbers."""

    def __init__(
        self,
        content: str = "",
        reasoning: str = "",
        *,
        handle: str = "",
        footer: str = "",
        failed: bool = False,
    ) -> None:
        super().__init__(Kind.ANSWER, content)
        self.reasoning = reasoning
        self.handle = handle
        self.footer = footer
        self.failed = failed
        self.folded = bool(content)
        self.streaming = False
        self._parser = _Stream()
        self._thoughts = _Thoughts()

    def append(self, content: str = "", reasoning: str = "") -> None:
        """Takes in more text; the fold closes when the answer proper begins."""
        if not self.split:
            self._pieces = []
            self._parser.feed(self.content)
            self._thoughts.feed(self.reasoning)
        if content and not self.content.strip() and content.strip():
            self.folded = True
        self.content += content
        self.reasoning += reasoning
        self._thoughts.feed(reasoning)
        self._parser.feed(content)
        self.rebuild()

    def finish(self) -> None:
        """No more text comes: what was previewed is rendered for good."""
        self.streaming = False
        self._pieces = None
        self.changed()

    def restart(self, content: str, reasoning: str) -> None:
        """Replaces the text so far, as when content turns out to have been reasoning."""
        self.content, self.reasoning = "", ""
        self._parser, self._thoughts = _Stream(), _Thoughts()
        self.folded = False
        self.append(content, reasoning)

    def set_folded(self, folded: bool) -> None:
        """Hides or shows the reasoning."""
        self.folded = folded
        if self.split:
            self.rebuild()
        self.changed()

    def rebuild(self) -> None:
        """Puts the pieces together anew; settled ones are kept with their rows."""
        head: list[Piece] = []
        if self.handle or self.reasoning:
            head.append(self._handle_piece())
            if not self.folded:
                head += self._thoughts.pieces()
        body = self._parser.pieces()
        if body:
            body[0].gap = bool(head)
        foot = [self._footer_piece()] if self.footer else []
        if foot and not (head or body):
            foot[0].gap = False
        self._pieces = [*head, *body, *foot]
        self.changed()

    def _make(self) -> list[Piece]:
        self._parser, self._thoughts = _Stream(), _Thoughts()
        self._thoughts.feed(self.reasoning)
        self._parser.feed(self.content)
        if not self.streaming:
            self._parser.finish()
        self.rebuild()
        return self._pieces or []

    def _handle_piece(self) -> Piece:
        mark = "" if not self.reasoning else "▸ " if self.folded else "▾ "
        return _decoration(mark + self.handle, "reasoning_handle", gap=False)

    def _footer_piece(self) -> Piece:
        return _decoration(self.footer, "error" if self.failed else "metrics", gap=not self.failed)

    def _guess(self, width: int) -> int:
        return super()._guess(width) + bool(self.handle) + 2 * bool(self.footer)


def _decoration(text: str, role: str, *, gap: bool) -> Piece:
    """Rows that belong to the program, not to the message: they are never part of copied text."""
    text = clean_text(text)

    def render(width: int, palette: Palette) -> list[Line]:
        lines = render_plain(text, width, getattr(palette, role))
        return [Line(line.strip, line.text_end, line.text_end, "") for line in lines]

    return Piece(render, text, gap=gap)


class _Stream:
    """Raw text to pieces: line ends made plain over chunk borders, blocks settled once."""

    def __init__(self) -> None:
        self._segmenter = Segmenter()
        self._tail = Tail()
        self._settled: list[Piece] = []
        self._held = ""

    def feed(self, text: str) -> None:
        text = self._held + text
        self._held = "\r" if text.endswith("\r") else ""  # perhaps the first half of a line end
        self._segmenter.feed(clean_text(text.removesuffix("\r")))

    def finish(self) -> None:
        self._segmenter.feed(clean_text(self._held))
        self._held = ""
        self._segmenter.finish()

    def pieces(self) -> list[Piece]:
        blocks = self._segmenter.settled
        for index in range(len(self._settled), len(blocks)):
            self._settled.append(block_piece(blocks[index], first=index == 0))
        return [*self._settled, *self._tail.pieces(self._segmenter, first=not blocks)]


class _Thoughts(PlainStream):
    """Reasoning, dimmed and indented."""

    def __init__(self) -> None:
        super().__init__(_render_thoughts)

    def feed(self, text: str) -> None:
        super().feed(clean_text(text))


def _render_thoughts(text: str, width: int, palette: Palette) -> list[Line]:
    writer = LineWriter(width, palette.reasoning)
    with writer.indented(Run(INDENT, palette.reasoning), decoration=True):
        for line in text.split("\n"):
            writer.paragraph([Run(line.expandtabs(4), palette.reasoning)])
    return writer.lines
