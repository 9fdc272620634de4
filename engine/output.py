"""From the engine thread to the callers' event loop: text of a generation, and the way across."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol, Self

from engine.request import ErrorEvent, Event, FinishEvent, TextEvent
from engine.text.stream import StopMatcher, TokenDecoder

Post = Callable[[Event], None]


class Mailbox:
    """Carries calls to an event loop, all of a step in one wake-up."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._calls: list[Callable[[], None]] = []

    def put(self, deliver: Callable[[Event], None], event: Event) -> None:
        """Keep a delivery for the next :meth:`flush`."""
        self._calls.append(lambda: deliver(event))

    def flush(self) -> None:
        """Send what was put."""
        if self._calls:
            calls, self._calls = self._calls, []
            self.call(lambda: [call() for call in calls])

    def call(self, what: Callable[[], object]) -> None:
        """Have the loop call this soon; nothing happens if the loop is closed."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(what)


class TextOutput:
    """Decodes the tokens of one request and looks for its stop strings; used by the scheduler."""

    def __init__(self, decoder: TokenDecoder, stops: tuple[str, ...], post: Post) -> None:
        self._decoder = decoder
        self._stops = StopMatcher(stops)
        self._post = post
        self._tokens = 0

    def token(self, token_id: int) -> str | None:
        """Take a token; returns the stop string that it completed, or None."""
        self._tokens += 1
        return self._emit(self._decoder.push(token_id))

    def end(self, event: FinishEvent | ErrorEvent) -> None:
        """Emit what was held back, unless a stop string was met, then the last event."""
        unmatched = isinstance(event, FinishEvent) and not isinstance(event.matched_stop, str)
        if unmatched and self._emit(self._decoder.flush()) is None:
            self._send(self._stops.flush())
        self._post(event)

    def _emit(self, text: str) -> str | None:
        safe, matched = self._stops.push(text)
        self._send(safe)
        return matched

    def _send(self, text: str) -> None:
        if text:
            self._post(TextEvent(text, self._tokens))


class Aborter(Protocol):
    """What a generation needs of the engine."""

    def abort(self, request_id: str) -> None:
        """End a request before the next step."""


class Generation:
    """The events of one request, as an async iterator; leaving the ``with`` block aborts what is not over.

    Attributes:
        id: The request's name.
        prompt_tokens: Tokens of its prompt.
    """

    def __init__(self, engine: Aborter, request_id: str, prompt_tokens: int) -> None:
        self.id = request_id
        self.prompt_tokens = prompt_tokens
        self._engine = engine
        self._events: deque[Event] = deque()
        self._arrived = asyncio.Event()
        self._over = False

    def deliver(self, event: Event) -> None:
        """Take an event; called on the event loop."""
        self._over = self._over or not isinstance(event, TextEvent)
        self._events.append(event)
        self._arrived.set()

    def abort(self) -> None:
        """End the request before the next step. The iterator then ends with a finish event."""
        if not self._over:
            self._engine.abort(self.id)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.abort()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        """The next event. Texts that waited for a slow reader come as one."""
        while not self._events:
            if self._over:
                raise StopAsyncIteration
            self._arrived.clear()
            await self._arrived.wait()
        event = self._events.popleft()
        while isinstance(event, TextEvent) and self._events:
            more = self._events[0]
            if not isinstance(more, TextEvent):
                break
            event = TextEvent(event.text + more.text, more.tokens)
            self._events.popleft()
        return event

    async def collect(self) -> tuple[str, FinishEvent | ErrorEvent]:
        """The whole text and how it ended."""
        pieces: list[str] = []
        async for event in self:
            if not isinstance(event, TextEvent):
                return "".join(pieces), event
            pieces.append(event.text)
        return "".join(pieces), ErrorEvent("the generation was read to its end before")
