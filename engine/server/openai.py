"""``/v1/chat/completions`` and ``/v1/completions``."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncGenerator
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from engine.api import Engine
from engine.loading import Ready
from engine.output import Generation
from engine.request import ErrorEvent, FinishEvent, RequestError, TextEvent
from engine.server import sse
from engine.server.body import read_object
from engine.server.errors import error_body
from engine.server.log import Log
from engine.server.messages import plain_messages
from engine.server.protocol import ChatBody, CompletionBody, GenerationBody
from engine.server.shapes import ChatShape, CompletionShape, Shape, usage


@dataclass(frozen=True, slots=True)
class OpenAi:
    """The two endpoints on one engine.

    Attributes:
        engine: Generates.
        log: Gets a line for each request.
        keep_alive_s: Silence in a stream after which a comment line is sent.
    """

    engine: Engine
    log: Log
    keep_alive_s: float = sse.KEEP_ALIVE_S

    async def chat(self, request: Request) -> Response:
        """``POST /v1/chat/completions``."""
        ready = self._ready()
        body = ChatBody.read(await read_object(request))
        self._check_model(body.model)
        messages = plain_messages(body.messages)
        template = ready.text.template
        if template is None:
            raise RequestError(
                "This model has no chat template; use /v1/completions.",
                param="messages",
                code="no_chat_template",
            )

        def prompt() -> list[int]:
            text = template.render(
                messages,
                add_generation_prompt=body.add_generation_prompt,
                variables=body.chat_template_kwargs,
            )
            return _encode(ready, text, add_special_tokens=False)

        # In a thread: a long conversation takes a while, and other answers must not stop for it.
        ids = await asyncio.to_thread(prompt)
        return await self._answer(request, body, ids, ChatShape(*self._names("chatcmpl")))

    async def completions(self, request: Request) -> Response:
        """``POST /v1/completions``."""
        ready = self._ready()
        body = CompletionBody.read(await read_object(request))
        self._check_model(body.model)
        prompt = body.prompt
        if isinstance(prompt, str):
            prompt = await asyncio.to_thread(_encode, ready, prompt, add_special_tokens=True)
        return await self._answer(request, body, prompt, CompletionShape(*self._names("cmpl")))

    def _ready(self) -> Ready:
        if self.engine.ready is None:
            now = self.engine.progress
            part = "" if now.fraction is None else f", {now.fraction:.0%}"
            raise RequestError(
                f"The model is loading ({now.phase}{part}); try again in a moment.",
                code="model_loading",
                status=503,
            )
        return self.engine.ready

    def _check_model(self, model: str | None) -> None:
        served = self.engine.config.model_name
        if model is None:
            raise RequestError(
                f"model is missing; this server has {served!r}.", param="model", code="missing_model"
            )
        if model != served:
            raise RequestError(
                f"The model {model[:200]!r} is not here; this server has {served!r}.",
                param="model",
                code="model_not_found",
                status=404,
            )

    def _names(self, prefix: str) -> tuple[str, str, int]:
        return f"{prefix}-{uuid.uuid4().hex}", self.engine.config.model_name, int(time.time())

    async def _answer(
        self, request: Request, body: GenerationBody, prompt_ids: list[int], shape: Shape
    ) -> Response:
        ready = self._ready()
        params = body.sampling(ready.text.sampling_defaults)
        generation = self.engine.submit(prompt_ids, params, shape.id)
        if body.stream:
            return sse.EventStream(generation, self._chunks(generation, body.include_usage, shape))
        with generation:
            text, end = await sse.unless_gone(request.receive, generation.collect())
        self._log_end(shape, end)
        if isinstance(end, ErrorEvent):
            raise RequestError(f"The generation failed: {end.message}.", code="generation_failed", status=500)
        return JSONResponse(shape.whole(text, end))

    async def _chunks(
        self, generation: Generation, include_usage: bool, shape: Shape
    ) -> AsyncGenerator[bytes, None]:
        opening = shape.opening()
        if opening is not None:
            yield sse.encode(opening)
        async for event in sse.events_or_silence(generation, self.keep_alive_s):
            if event is None:
                yield sse.SILENCE
            elif isinstance(event, TextEvent):
                yield sse.encode(shape.piece(event.text))
            elif isinstance(event, FinishEvent):
                self._log_end(shape, event)
                yield sse.encode(shape.ending(event))
                if include_usage:
                    yield sse.encode(shape.usage_chunk(event))
            else:
                self._log_end(shape, event)
                message = f"The generation failed: {event.message}."
                yield sse.encode(error_body(message, 500, code="generation_failed"))
        yield sse.DONE

    def _log_end(self, shape: Shape, end: FinishEvent | ErrorEvent) -> None:
        if isinstance(end, ErrorEvent):
            self.log.line("request", "error", id=shape.id, finish="error", reason=end.message)
            return
        counts = usage(end)
        self.log.line(
            "request",
            id=shape.id,
            finish=end.reason.value,
            prompt_tokens=counts["prompt_tokens"],
            completion_tokens=counts["completion_tokens"],
            ttft_s=end.timing.ttft_s,
            tpot_s=end.timing.tpot_s,
        )


def _encode(ready: Ready, text: str, *, add_special_tokens: bool) -> list[int]:
    """Token ids of a prompt. One that cannot fit is refused first: encoding megabytes holds up everything else."""
    if ready.text.exceeds(text, ready.context_length):
        raise RequestError(
            f"The prompt is too long: its {len(text)} characters cannot fit into the model's context of "
            f"{ready.context_length} tokens.",
            param="messages",
            code="context_length_exceeded",
        )
    return ready.text.encode(text, add_special_tokens=add_special_tokens)
