"""One answer from an OpenAI-compatible server, as events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from kt_tui.chat import http
from kt_tui.chat.answer import AnswerReader
from kt_tui.chat.events import ChatError, ChatEvent, ChatOptions, Endpoint, Waiting
from kt_tui.chat.finish import Stopwatch
from kt_tui.chat.models import resolve_model, served_models
from kt_tui.chat.sse import SseDecoder, SseError
from kt_tui.text import one_line

if TYPE_CHECKING:
    import httpx

_FIRST_WAIT, _LONGEST_WAIT = 1.0, 5.0


class _StreamOptionsError(Exception):
    """The server refuses ``stream_options``, which only asks for the token counts."""


async def stream_chat(
    endpoint: Endpoint, messages: Sequence[Mapping[str, Any]], options: ChatOptions | None = None
) -> AsyncGenerator[ChatEvent, None]:
    """Ask for an answer and yield its events; the last one is `Finished` or `Failed`, never an exception.

    Cancelling the task that iterates, or closing the iterator (``contextlib.aclosing``), closes the connection at
    once, which tells the server to stop generating.
    """
    options = options or ChatOptions()
    loop = asyncio.get_running_loop()
    due = loop.time() + options.wait_s
    pause = _FIRST_WAIT
    count_tokens = True
    while True:
        reader = AnswerReader(Stopwatch())
        try:
            if not endpoint.model:
                endpoint = (await resolve_model(endpoint)).endpoint
            body = _request_body(endpoint, messages, options, count_tokens)
            # Closed by name at each level: a generator that is only dropped closes its connection some time later.
            async with aclosing(_exchange(endpoint, body, options, reader)) as events:
                async for event in events:
                    yield event
            return
        except _StreamOptionsError:
            count_tokens = False
        except http.NotReadyError as error:
            if loop.time() + pause > due:
                yield reader.fail(str(error))
                return
            yield Waiting(error.reason, error.progress)
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, _LONGEST_WAIT)
        except ChatError as error:
            yield reader.fail(str(error))
            return


def _request_body(
    endpoint: Endpoint, messages: Sequence[Mapping[str, Any]], options: ChatOptions, count_tokens: bool
) -> dict[str, Any]:
    wanted = {
        "temperature": options.temperature,
        "top_p": options.top_p,
        "max_tokens": options.max_tokens,
        "seed": options.seed,
        "stop": list(options.stop) or None,
    }
    body: dict[str, Any] = {"model": endpoint.model, "messages": [dict(message) for message in messages]}
    body.update({name: value for name, value in wanted.items() if value is not None})
    if options.stream:
        body["stream"] = True
        if count_tokens:
            body["stream_options"] = {"include_usage": True}
    body.update(options.extra)
    return body


async def _exchange(
    endpoint: Endpoint, body: dict[str, Any], options: ChatOptions, reader: AnswerReader
) -> AsyncGenerator[ChatEvent, None]:
    import httpx

    http.checked(endpoint)
    # Lone surrogates (a paste from a broken source) cannot be sent as UTF-8; JSON's own escapes can carry them.
    content = json.dumps(body).encode("ascii")
    headers = {"Content-Type": "application/json", "Accept": "text/event-stream, application/json"}
    try:
        async with http.new_client(endpoint, options.silence_s) as client:
            reader.watch.restart()
            request = client.stream(
                "POST", endpoint.url("/v1/chat/completions"), content=content, headers=headers
            )
            async with request as response:
                if response.status_code != 200:
                    await _refused(endpoint, response, body)
                if options.stream and not _is_json(response):
                    async with aclosing(_read_stream(response, reader)) as events:
                        async for event in events:
                            yield event
                else:
                    document = http.parse_json(await http.read_limited(response, http.BODY_LIMIT))
                    for event in reader.whole(document):
                        yield event
    except httpx.ConnectError as error:
        raise http.connect_error(endpoint, error) from error
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        for event in reader.broken_off(http.connection_sentence(endpoint, error)):
            yield event


def _is_json(response: httpx.Response) -> bool:
    return str(response.headers.get("content-type", "")).lower().startswith("application/json")


async def _read_stream(response: httpx.Response, reader: AnswerReader) -> AsyncGenerator[ChatEvent, None]:
    decoder = SseDecoder()
    kind = response.headers.get("content-type", "").lower()
    if kind.startswith("text/html"):
        words, _ = await http.read_error(response)
        yield reader.fail(
            f"The server answered with a web page instead of an answer{': ' + words if words else ''}."
        )
        return
    try:
        async for piece in response.aiter_bytes():
            for sse in decoder.feed(piece):
                for event in reader.take(sse):
                    yield event
                if reader.ended:
                    return
        for sse in decoder.finish():
            for event in reader.take(sse):
                yield event
    except SseError as fault:
        yield reader.fail(f"malformed event: {fault}")
    for event in reader.end_of_stream():
        yield event


async def _refused(endpoint: Endpoint, response: httpx.Response, body: Mapping[str, Any]) -> None:
    """Raise what an error status means."""
    words, document = await http.read_error(response)
    status = response.status_code
    if status == 503 and (loading := http.loading_error(words, document)):
        raise loading
    if status in {400, 422} and "stream_options" in body and "stream_options" in words:
        raise _StreamOptionsError
    if status == 404:
        served = await served_models(endpoint)
        names = ", ".join(one_line(name, 80) for name in served) or "none"
        raise ChatError(
            f"The server does not know the model {one_line(endpoint.model, 80)!r}; it serves: {names}. "
            "Choose one with --model."
        )
    raise ChatError(http.status_sentence(endpoint, status, words))
