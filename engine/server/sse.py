"""Server-sent events, and work that ends when its client goes away."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine
from contextlib import aclosing, suppress
from typing import Any, TypeVar

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from engine.output import Generation
from engine.request import Event

KEEP_ALIVE_S = 10.0
"""Silence after which a comment line is sent: proxies and clients give up on a stream without bytes."""

SILENCE = b": keep-alive\n\n"
DONE = b"data: [DONE]\n\n"


def encode(document: object) -> bytes:
    """One event. JSON holds no line break, so one data line is enough."""
    return b"data: " + json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"


class ClientGoneError(Exception):
    """The client closed the connection before the answer was complete."""


T = TypeVar("T")


async def unless_gone(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """Run ``work``; when the client disconnects, cancel it and raise :class:`ClientGoneError`."""
    task = asyncio.ensure_future(work)
    watch = asyncio.ensure_future(_gone(receive))
    try:
        await asyncio.wait((task, watch), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientGoneError
        return task.result()
    finally:
        task.cancel()
        watch.cancel()
        await asyncio.gather(task, watch, return_exceptions=True)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def events_or_silence(generation: Generation, silence_s: float) -> AsyncIterator[Event | None]:
    """The events of a generation; None whenever nothing came for a while."""
    while True:
        try:
            async with asyncio.timeout(silence_s):
                event = await anext(generation, None)
        except TimeoutError:
            yield None
            continue
        if event is None:
            return
        yield event


class EventStream(Response):
    """Sends the chunks of a generation as they come; ends the generation when the client goes away.

    Args:
        generation: What is being streamed.
        chunks: Its events as bytes.
    """

    media_type = "text/event-stream"

    def __init__(self, generation: Generation, chunks: AsyncGenerator[bytes, None]) -> None:
        # X-Accel-Buffering keeps nginx from collecting the stream.
        super().__init__(headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._generation = generation
        self._chunks = chunks

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Stream, as an ASGI application."""
        del scope
        with self._generation, suppress(ClientGoneError):
            await unless_gone(receive, self._send(send))

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        async with aclosing(self._chunks):
            async for chunk in self._chunks:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
