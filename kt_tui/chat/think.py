"""Inline think tags: telling reasoning from answer in one stream of text, with tags cut anywhere."""

from __future__ import annotations

from enum import Enum, auto

from kt_tui.chat.events import ContentDelta, ContentWasReasoning, ReasoningDelta

OPEN, CLOSE = "<think>", "</think>"

Piece = ContentDelta | ReasoningDelta | ContentWasReasoning


class _State(Enum):
    BEGIN = auto()  # nothing but blanks so far: an opening tag counts only here
    REASONING = auto()
    TRIM = auto()  # after the closing tag: blanks before the answer are dropped
    ANSWER = auto()  # a closing tag without an opening one may still come
    LITERAL = auto()  # tags are text from here on


class ThinkSplitter:
    """Splits content into reasoning and answer.

    A think block opens only at the very beginning. A closing tag without an opening one means that the chat template
    had opened it: then all text before it was reasoning. Later tags are the model's text.
    """

    def __init__(self) -> None:
        self._state = _State.BEGIN
        self._held = ""

    @property
    def unclosed(self) -> bool:
        """Whether a think block is open."""
        return self._state is _State.REASONING

    def disable(self) -> None:
        """The server separates reasoning itself, so tags in the content are text."""
        if self._state in {_State.BEGIN, _State.ANSWER}:
            self._state = _State.LITERAL

    def feed(self, text: str, *, final: bool = False) -> list[Piece]:
        """The pieces that ``text`` makes; what may be the beginning of a tag is held back until ``final``."""
        text = self._held + text
        self._held = ""
        pieces: list[Piece] = []
        while text:
            before = self._state
            text = self._step(text, pieces, final)
            if self._state is before and text:
                self._held = text
                break
        return pieces

    def _step(self, text: str, pieces: list[Piece], final: bool) -> str:
        # Handles one stretch; what it gives back is still to be handled (state changed) or held (state unchanged).
        match self._state:
            case _State.BEGIN:
                return self._begin(text, final)
            case _State.REASONING:
                return self._until_close(text, pieces, final, ReasoningDelta)
            case _State.ANSWER:
                return self._until_close(text, pieces, final, ContentDelta)
            case _State.TRIM:
                rest = text.lstrip()
                if rest:
                    self._state = _State.LITERAL
                return rest
            case _State.LITERAL:
                pieces.append(ContentDelta(text))
                return ""

    def _begin(self, text: str, final: bool) -> str:
        stripped = text.lstrip()
        if stripped.startswith(OPEN):
            self._state = _State.REASONING
            return stripped.removeprefix(OPEN)
        if not final and (OPEN.startswith(stripped) or CLOSE.startswith(stripped)):
            return text
        self._state = _State.ANSWER
        return text

    def _until_close(
        self,
        text: str,
        pieces: list[Piece],
        final: bool,
        kind: type[ContentDelta] | type[ReasoningDelta],
    ) -> str:
        position = text.find(CLOSE)
        if position >= 0:
            if position:
                pieces.append(kind(text[:position]))
            if kind is ContentDelta:
                pieces.append(ContentWasReasoning())
            self._state = _State.TRIM
            return text[position + len(CLOSE) :]
        held = 0 if final else _tag_beginning(text)
        if held < len(text):
            pieces.append(kind(text[: len(text) - held]))
        return text[len(text) - held :]


def _tag_beginning(text: str) -> int:
    """Length of the longest end of ``text`` that begins a closing tag."""
    for length in range(min(len(CLOSE) - 1, len(text)), 0, -1):
        if text.endswith(CLOSE[:length]):
            return length
    return 0
