"""One answer on its way: events gathered as they come, drawn at most 15 times a second."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any, cast

from kt_tui.chat import (
    ChatEvent,
    ContentDelta,
    ContentWasReasoning,
    Draft,
    Failed,
    Message,
    ReasoningDelta,
    Status,
    Waiting,
)
from kt_tui.ui.turn_text import footer_text, seconds, thinking_text
from kt_tui.ui.widgets.transcript.entries import Answer

FLUSH_S = 1 / 15
"""Shortest time between two updates of the screen."""
TICK_S = 0.25
"""Time between updates of a running clock while no text comes."""
SAVE_S = 2.0
"""Time between saves of an answer that is still coming; its end is always saved."""


class Turn:
    """Reads one stream into one entry.

    Args:
        entry: What is drawn.
        redraw: Called after the entry changed; its argument says whether there is new text.
        save: Called with the answer so far, now and then.
        ended: Called once, with the complete, failed or stopped answer.
    """

    def __init__(
        self,
        entry: Answer,
        *,
        redraw: Callable[[bool], None],
        save: Callable[[Message], None],
        ended: Callable[[Message], None],
    ) -> None:
        self.entry = entry
        self.redraw = redraw
        self.save = save
        self.ended = ended
        self.draft = Draft()
        self.waiting = ""
        self.pieces = 0
        self.started = time.monotonic()
        self.first_s: float | None = None
        self._thought: float | None = None  # seconds spent thinking, once the answer began
        self._thinking_since: float | None = None
        self._thinking_pieces = 0
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._restart = False
        self._flushed = 0.0
        self._saved = self.started
        self._timer: asyncio.TimerHandle | None = None
        self._stopped = False
        self.task: asyncio.Task[None]

    @property
    def pieces_per_s(self) -> float | None:
        """Pieces a second since the first one."""
        if self.first_s is None or self.pieces < 2:
            return None
        elapsed = time.monotonic() - self.started - self.first_s
        return (self.pieces - 1) / elapsed if elapsed > 0 else None

    def start(self, events: AsyncIterator[ChatEvent]) -> None:
        """Begins to read."""
        self.task = asyncio.get_running_loop().create_task(self._run(events), name="chat answer")
        # The end comes by a callback: a task cancelled before its first step never runs its own code.
        self.task.add_done_callback(self._end)
        self._flush()

    def stop(self) -> None:
        """Closes the stream; the answer ends with what came."""
        self._stopped = True
        self.task.cancel()

    async def _run(self, events: AsyncIterator[ChatEvent]) -> None:
        try:
            async with aclosing(cast("Any", events)) as stream:
                async for event in stream:
                    self._take(event)
                    if self._stopped:
                        break
        except asyncio.CancelledError:
            self._stopped = True
        except Exception as error:
            self.draft.apply(
                Failed(f"The answer broke off: {type(error).__name__}: {error}", self.draft.content)
            )

    def _take(self, event: ChatEvent) -> None:
        self.draft.apply(event)
        match event:
            case ContentDelta(text) if text:
                self._arrived()
                if text.strip() and self._thinking_since is not None and self._thought is None:
                    self._thought = time.monotonic() - self._thinking_since
                self._content.append(text)
            case ReasoningDelta(text) if text:
                self._arrived()
                self._thinking_since = self._thinking_since or time.monotonic()
                self._thinking_pieces += 1
                self._reasoning.append(text)
            case ContentWasReasoning():
                self._thinking_since = self.started + (self.first_s or 0.0)
                self._thought = time.monotonic() - self._thinking_since
                self._thinking_pieces = self.pieces
                self._restart = True
            case Waiting(reason, progress):
                self.waiting = reason if progress is None else f"{reason} {progress:.0%}"
            case _:
                return
        self._schedule(FLUSH_S)

    def _arrived(self) -> None:
        self.waiting = ""
        self.pieces += 1
        if self.first_s is None:
            self.first_s = time.monotonic() - self.started

    def _schedule(self, delay: float) -> None:
        due = max(self._flushed + delay, time.monotonic())
        loop = asyncio.get_running_loop()
        when = loop.time() + due - time.monotonic()
        if self._timer is not None:
            if self._timer.when() <= when:
                return
            self._timer.cancel()
        self._timer = loop.call_at(when, self._flush)

    def _flush(self) -> None:
        self._timer = None
        self._flushed = time.monotonic()
        entry, content, reasoning = self.entry, "".join(self._content), "".join(self._reasoning)
        self._content.clear()
        self._reasoning.clear()
        entry.handle = self._handle()
        if self._restart:
            self._restart = False
            entry.restart(self.draft.content, self.draft.reasoning)
        else:
            entry.append(content, reasoning)
        if self._flushed - self._saved > SAVE_S:
            self._saved = self._flushed
            self.save(self.draft.message())
        self.redraw(bool(content or reasoning))
        self._schedule(TICK_S)

    def _handle(self) -> str:
        if self.first_s is None:
            elapsed = seconds(time.monotonic() - self.started)
            return f"{self.waiting or 'waiting for the first token'}  {elapsed}"
        if self._thinking_since is None:
            return ""
        thought = self._thought if self._thought is not None else time.monotonic() - self._thinking_since
        return thinking_text(thought, self._thinking_pieces, exact=False)

    def _end(self, task: asyncio.Task[None]) -> None:
        self._stopped = self._stopped or task.cancelled()
        if self._timer is not None:
            self._timer.cancel()
        message = self.draft.message(stopped=self._stopped)
        entry = self.entry
        entry.content, entry.reasoning = message.content, message.reasoning
        if message.content.strip() and message.reasoning:
            entry.folded = True
        thought = self._thought
        if thought is None and self._thinking_since is not None:
            thought = time.monotonic() - self._thinking_since
        exact = message.usage.reasoning_tokens if message.usage else None
        tokens = exact or self._thinking_pieces
        entry.handle = thinking_text(thought, tokens, exact=bool(exact)) if message.reasoning else ""
        entry.footer = footer_text(message)
        entry.failed = message.status is Status.FAILED
        entry.finish()
        self.ended(message)
