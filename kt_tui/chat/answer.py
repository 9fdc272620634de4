"""From server-sent events (or one document) to the events of an answer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from kt_tui.chat.deltas import Delta, ToolCallAssembler, read_chunk
from kt_tui.chat.events import (
    ChatEvent,
    ContentDelta,
    ContentWasReasoning,
    Failed,
    Finished,
    ReasoningDelta,
    Usage,
)
from kt_tui.chat.finish import FAILED_REASONS, Stopwatch, finish_note
from kt_tui.chat.sse import SseEvent
from kt_tui.chat.think import Piece, ThinkSplitter
from kt_tui.text import one_line

_PREVIEW = 200
_HIGH_SURROGATES = range(0xD800, 0xDC00)


class AnswerReader:
    """Reads one answer; after `ended` it has yielded its `Finished` or `Failed`."""

    def __init__(self, watch: Stopwatch) -> None:
        self.watch = watch
        self.ended = False
        self._think = ThinkSplitter()
        self._tools = ToolCallAssembler()
        self._joiners = {"content": _SurrogateJoiner(), "reasoning": _SurrogateJoiner()}
        self._content: list[str] = []
        self._usage: Usage | None = None
        self._finish_reason: str | None = None
        self._finish_message = ""
        self._streamed = True

    def take(self, sse: SseEvent) -> Iterator[ChatEvent]:
        """The events that one server-sent event makes."""
        if self.ended:
            return
        if sse.data.strip() == "[DONE]":
            yield from self._end(done=True)
            return
        try:
            document = json.loads(sse.data)
        except (ValueError, RecursionError):
            yield from self.flush()
            yield self.fail(f"malformed event: {one_line(sse.data, _PREVIEW)}")
            return
        yield from self._take_delta(read_chunk(document))

    def whole(self, document: Any) -> Iterator[ChatEvent]:
        """The events of an answer that came as one document."""
        self._streamed = False
        if document is None:
            yield self.fail("The server's answer is not a JSON document.")
            return
        if isinstance(document, dict) and not document.get("choices") and "error" not in document:
            yield self.fail("The server's answer holds no choices.")
            return
        yield from self._take_delta(read_chunk(document))
        yield from self._end(done=True)

    def end_of_stream(self) -> Iterator[ChatEvent]:
        """The connection has ended; whether that is a failure depends on what came before."""
        yield from self._end(done=False)

    def broken_off(self, message: str) -> Iterator[ChatEvent]:
        """The connection has failed; no harm if the answer had already told its finish reason."""
        if self._finish_reason is not None:
            yield from self._end(done=True)
        elif not self.ended:
            yield from self.flush()
            yield self.fail(message)

    def fail(self, message: str) -> Failed:
        """The failure that ends this answer."""
        self.ended = True
        return Failed(
            message,
            "".join(self._content),
            self._finish_reason,
            self._usage,
            self.watch.metrics(self._usage, streamed=self._streamed),
        )

    def flush(self) -> Iterator[ChatEvent]:
        """Text that was held back because it might have begun a tag or a character."""
        if tail := self._joiners["reasoning"].finish():
            yield ReasoningDelta(tail)
        yield from self._pieces(self._think.feed(self._joiners["content"].finish(), final=True))

    def _take_delta(self, delta: Delta) -> Iterator[ChatEvent]:
        if delta.usage is not None:
            self._usage = delta.usage  # the last one counts; they are totals, never parts
        if delta.content or delta.reasoning or delta.tool_calls:
            self.watch.piece()
        if delta.reasoning:
            self._think.disable()
            if text := self._joiners["reasoning"].feed(delta.reasoning):
                yield ReasoningDelta(text)
        if delta.content:
            yield from self._pieces(self._think.feed(self._joiners["content"].feed(delta.content)))
        yield from self._tools.take(delta.tool_calls)
        if delta.finish_reason is not None:
            self._finish_reason, self._finish_message = delta.finish_reason, delta.finish_message
        if delta.error is not None:
            yield from self.flush()
            words = delta.error
            yield self.fail(
                words if words.startswith("malformed") else f"The server reported an error: {words}"
            )

    def _pieces(self, pieces: list[Piece]) -> Iterator[ChatEvent]:
        for piece in pieces:
            if isinstance(piece, ContentDelta):
                self._content.append(piece.text)
            elif isinstance(piece, ContentWasReasoning):
                if not self._content:
                    continue
                self._content.clear()
            yield piece

    def _end(self, *, done: bool) -> Iterator[ChatEvent]:
        if self.ended:
            return
        unclosed = self._think.unclosed
        yield from self.flush()
        reason = self._finish_reason
        if reason in FAILED_REASONS:
            said = f": {one_line(self._finish_message)}" if self._finish_message else ""
            yield self.fail(f"The server gave the answer up ({reason}{said}).")
        elif reason is None and not done:
            yield self.fail(
                "The answer ended without finish: the server closed the stream before it was complete."
            )
        else:
            self.ended = True
            metrics = self.watch.metrics(self._usage, streamed=self._streamed)
            yield Finished(reason, self._usage, metrics, finish_note(reason, unclosed_reasoning=unclosed))


class _SurrogateJoiner:
    """Joins a character that a server cut into two JSON escapes of different chunks; replaces lone halves."""

    def __init__(self) -> None:
        self._held = ""

    def feed(self, text: str) -> str:
        text = self._held + text
        self._held = ""
        if text and ord(text[-1]) in _HIGH_SURROGATES:
            text, self._held = text[:-1], text[-1]
        return _whole(text)

    def finish(self) -> str:
        text, self._held = self._held, ""
        return _whole(text)


def _whole(text: str) -> str:
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
