"""How an answer ended, in words."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

from kt_tui.chat.events import Metrics, Usage

FAILED_REASONS = {"abort", "error"}

_NOTES = {
    "stop": "",
    "eos": "",
    "eos_token": "",
    "length": "truncated: the limit of tokens was reached",
    "tool_calls": "",
    "function_call": "",
    "content_filter": "withheld by the server's content filter",
}


def finish_note(reason: str | None, *, unclosed_reasoning: bool = False) -> str:
    """What a reader should know about an end; empty for an ordinary one."""
    notes = []
    if reason is None:
        notes.append("the server gave no finish reason")
    else:
        note = _NOTES.get(reason, f"ended with: {reason}")
        if note:
            notes.append(note)
    if unclosed_reasoning:
        notes.append("the model did not close its reasoning")
    return "; ".join(notes)


class Stopwatch:
    """Takes the times that `Metrics` needs."""

    def __init__(self, clock: Callable[[], float] = perf_counter) -> None:
        self._clock = clock
        self._start = clock()
        self._first: float | None = None
        self._last: float | None = None

    def restart(self) -> None:
        """The request is sent again."""
        self._start = self._clock()

    def piece(self) -> None:
        """A piece of text, reasoning or tool call has arrived."""
        self._last = self._clock()
        if self._first is None:
            self._first = self._last

    def metrics(self, usage: Usage | None, *, streamed: bool = True) -> Metrics:
        """The answer's times; those that cannot be known are None."""
        total = self._clock() - self._start
        if not streamed or self._first is None or self._last is None:
            return Metrics(total_s=total)
        tokens = usage.completion_tokens if usage else None
        tpot = None
        if tokens is not None and tokens > 1 and self._last > self._first:
            tpot = (self._last - self._first) / (tokens - 1)
        return Metrics(
            ttft_s=self._first - self._start,
            tpot_s=tpot,
            tokens_per_s=1 / tpot if tpot else None,
            total_s=total,
        )
