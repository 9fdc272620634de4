"""The engine behind any front end: a thread that owns model and scheduler, and async iterators of events.

All methods are for one event loop's thread, except where they say otherwise. Heavy imports (torch) happen in the
engine thread, so that the front end answers from its first moment.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from engine.config import EngineConfig
from engine.errors import EngineError
from engine.output import Generation, Mailbox, TextOutput
from engine.progress import Progress, ProgressCallback
from engine.request import Event, Request, RequestError, SamplingParams, TextEvent
from engine.stats import EngineStats

if TYPE_CHECKING:
    from engine.scheduler import Scheduler, StepRunner
    from engine.text.model import TextModel

    class LoadedRunner(StepRunner, Protocol):
        """A runner as it comes from loading."""

        vocab_size: int
        context_length: int


@dataclass(frozen=True, slots=True)
class Sources:
    """Where the engine's parts come from; tests put their own here."""

    text: Callable[[EngineConfig], TextModel]
    runner: Callable[[EngineConfig, ProgressCallback], LoadedRunner]


def real_sources() -> Sources:
    """Tokenizer and model of the configured checkpoint."""

    def text(config: EngineConfig) -> TextModel:
        from engine.text.load import load_text

        return load_text(config.model)

    def runner(config: EngineConfig, progress: ProgressCallback) -> LoadedRunner:
        from engine.runner import Runner

        return Runner.load(config, progress)

    return Sources(text, runner)


@dataclass(frozen=True, slots=True)
class Ready:
    """What is known once the model is loaded.

    Attributes:
        text: Tokenizer, chat template, end tokens.
        vocab_size: Rows of the output layer.
        context_length: Tokens of one sequence that the model allows.
        kv_tokens: Tokens that the key-value cache holds.
        load_seconds: How long loading took.
    """

    text: TextModel
    vocab_size: int
    context_length: int
    kv_tokens: int
    load_seconds: float


class _LoadCancelledError(Exception):
    """The engine was told to close while it was loading."""


_Command = Callable[["Scheduler"], None]


class Engine:
    """Loads a model in its own thread and generates for many callers at once.

    Args:
        config: What to load and its limits.
        report: Called in the engine thread with each progress report of loading.
        sources: Where the parts come from.
    """

    def __init__(
        self,
        config: EngineConfig,
        report: ProgressCallback = lambda _: None,
        sources: Sources | None = None,
    ) -> None:
        self.config = config
        self.stats = EngineStats(max_running_requests=config.max_running_requests)
        self.progress = Progress("start", 0, 0)
        self.ready: Ready | None = None
        self.accepts = True
        self._report = report
        self._sources = sources or real_sources()
        self._commands: queue.SimpleQueue[_Command | None] = queue.SimpleQueue()
        self._closing = threading.Event()
        self._open: set[str] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._mailbox: Mailbox | None = None
        self._loaded: asyncio.Future[Any] | None = None
        self._ended: asyncio.Future[Any] | None = None

    def start(self) -> None:
        """Begin loading; needs a running event loop."""
        loop = asyncio.get_running_loop()
        self._loaded, self._ended = loop.create_future(), loop.create_future()
        self._mailbox = Mailbox(loop)
        # A daemon, because loading cannot be interrupted inside one read or one native call.
        threading.Thread(target=self._run, args=(self._mailbox,), name="engine", daemon=True).start()

    async def loaded(self) -> Ready:
        """Wait until the model is ready.

        Raises:
            EngineError: It cannot be loaded.
        """
        if self._loaded is None:
            raise RuntimeError("start() was not called")
        ready: Ready = await asyncio.shield(self._loaded)
        return ready

    async def ended(self) -> None:
        """Wait until the engine thread is over.

        Raises:
            Exception: It died of this.
        """
        if self._ended is None:
            raise RuntimeError("start() was not called")
        await asyncio.shield(self._ended)

    def submit(
        self, prompt_ids: list[int], params: SamplingParams, request_id: str | None = None
    ) -> Generation:
        """Ask for a continuation.

        Args:
            prompt_ids: The prompt.
            params: How to continue it.
            request_id: A name of the caller's, which must be unique; None makes one.

        Raises:
            RequestError: The engine is not ready or is full, or the prompt does not fit.
        """
        if self.ready is None or self._mailbox is None or not self.accepts:
            raise RequestError("The engine takes no requests now.", code="unavailable", status=503)
        room = room_for(prompt_ids, self.ready)
        limit = self.config.max_running_requests + self.config.max_queued_requests
        if len(self._open) >= limit:
            raise RequestError(
                f"The queue is full ({len(self._open)} requests); try again in a moment.",
                code="rate_limit_exceeded",
                status=429,
            )
        name = request_id or uuid.uuid4().hex
        request = Request(name, tuple(prompt_ids), params, time.monotonic())
        generation = Generation(self, name, len(prompt_ids))
        self._open.add(name)
        self._idle.clear()
        max_tokens = min(params.max_tokens or room, room)
        post = partial(self._mailbox.put, partial(self._deliver, generation))
        output = TextOutput(self.ready.text.new_decoder(), params.stop, post)
        self._commands.put(lambda scheduler: scheduler.submit(request, output, max_tokens))
        return generation

    @property
    def open_requests(self) -> int:
        """Requests that were submitted and are not over."""
        return len(self._open)

    async def close(self, deadline_s: float = 3.0) -> bool:
        """Take no more requests, let the running ones end until the deadline, abort the rest, end the thread.

        Returns:
            Whether the thread is over. It is not if loading does not react (a read that hangs).
        """
        self.accepts = False
        with suppress(TimeoutError):
            async with asyncio.timeout(deadline_s):
                await self._idle.wait()
        self._closing.set()
        self._commands.put(None)
        with suppress(Exception):  # what it died of is for those who wait for `ended`
            await asyncio.wait_for(self.ended(), deadline_s)
        return self._ended is None or self._ended.done()

    def abort(self, request_id: str) -> None:
        """End a request before the next step."""
        self._commands.put(lambda scheduler: scheduler.abort(request_id))

    def _deliver(self, generation: Generation, event: Event) -> None:
        """On the event loop: hand an event to its generation."""
        if not isinstance(event, TextEvent):
            self._open.discard(generation.id)
            if not self._open:
                self._idle.set()
        generation.deliver(event)

    # ------------------------------------------------------------------ the engine thread

    def _run(self, mailbox: Mailbox) -> None:
        try:
            scheduler = self._load()
        except BaseException as error:
            mailbox.call(partial(_settle, self._loaded, self._as_engine_error(error)))
            mailbox.call(partial(_settle, self._ended, None))
            return
        mailbox.call(partial(_settle, self._loaded, self.ready))
        failure: Exception | None = None
        try:
            while not self._closing.is_set():
                self._take_commands(scheduler, wait=not scheduler.has_work)
                if scheduler.has_work and not self._closing.is_set():
                    scheduler.step()
                mailbox.flush()
        except Exception as error:
            failure = error
        self.accepts = False
        self._take_commands(scheduler, wait=False)
        scheduler.abort_all()
        mailbox.flush()
        mailbox.call(partial(_settle, self._ended, failure))

    def _load(self) -> Scheduler:
        began = time.monotonic()
        self._progress(Progress("start", 0, 1, "importing torch"))
        from engine.scheduler import Limits, Scheduler

        self._progress(Progress("start", 1, 1))
        self._progress(Progress("checkpoint", 0, 2, "tokenizer and chat template"))
        text = self._sources.text(self.config)
        self._progress(Progress("checkpoint", 1, 2))
        runner = self._sources.runner(self.config, self._progress)
        self._progress(Progress("warmup", 0, 1, "first step"))
        _warm_up(runner, next(iter(text.end_ids), 0))
        self._progress(Progress("warmup", 1, 1))
        seconds = time.monotonic() - began
        ready = Ready(text, runner.vocab_size, runner.context_length, runner.stats.kv_tokens_total, seconds)
        limits = Limits(self.config.max_running_requests, self.config.chunked_prefill_size)
        scheduler = Scheduler(runner, limits, text.end_ids, self.stats)
        self.stats.load_seconds = seconds
        self.ready = ready
        return scheduler

    def _progress(self, progress: Progress) -> None:
        if self._closing.is_set():
            raise _LoadCancelledError
        self.progress = progress
        self._report(progress)

    def _take_commands(self, scheduler: Scheduler, *, wait: bool) -> None:
        """Carry out what was asked; with ``wait``, sleep until something is."""
        while True:
            try:
                command = self._commands.get(block=wait)
            except queue.Empty:
                return
            wait = False
            if command is not None:
                command(scheduler)

    def _as_engine_error(self, error: BaseException) -> Exception:
        if isinstance(error, EngineError):
            return error
        if isinstance(error, _LoadCancelledError):
            return EngineError("Loading was stopped.")
        if isinstance(error, MemoryError):
            what = "there is not enough memory; use a smaller model or close other programs"
        else:
            what = f"{type(error).__name__}: {' '.join(str(error).split())[:500]}"
        wrapped = EngineError(f"{self.config.model} could not be loaded: {what}.")
        wrapped.__cause__ = error
        return wrapped


def _settle(future: asyncio.Future[Any] | None, result: object) -> None:
    """Resolve a future, on its event loop."""
    if future is None or future.done():
        return
    if isinstance(result, Exception):
        future.set_exception(result)
        future.exception()  # marks it as seen: nobody has to wait for it
    else:
        future.set_result(result)


def room_for(prompt_ids: list[int], ready: Ready) -> int:
    """How many tokens may follow a prompt.

    Raises:
        RequestError: The prompt is empty, holds an unknown token id or does not fit.
    """
    tokens = len(prompt_ids)
    if not tokens:
        raise RequestError("The prompt is empty.", param="prompt", code="invalid_value")
    if not 0 <= min(prompt_ids) <= max(prompt_ids) < ready.vocab_size:
        raise RequestError(
            f"The prompt holds a token id outside 0..{ready.vocab_size - 1}.",
            param="prompt",
            code="invalid_value",
        )
    limit = min(ready.context_length, ready.kv_tokens)
    if tokens < limit:
        return limit - tokens
    if ready.context_length <= ready.kv_tokens:
        bound = f"the model's context is {ready.context_length} tokens, and one must be left for the answer"
    else:
        bound = (
            f"the key-value cache holds {ready.kv_tokens} tokens (the model's context would be "
            f"{ready.context_length}); start the engine with a larger --max-total-tokens"
        )
    raise RequestError(
        f"The prompt is too long: it has {tokens} tokens, but {bound}.",
        param="messages",
        code="context_length_exceeded",
    )


def _warm_up(runner: LoadedRunner, token_id: int) -> None:
    """Run one step, so that the first request finds everything in place and a broken model is found now."""
    from engine.runner import Row
    from engine.sampler import Sampler, SamplingError

    sequence = runner.open_sequence()
    try:
        if not runner.reserve(sequence, 1):
            raise EngineError("The key-value cache has no room for a single token; raise --max-total-tokens.")
        (logits,) = runner.step([Row(sequence, [token_id], True)])
        if logits is not None:
            Sampler(SamplingParams(temperature=0)).draw(logits)
    except SamplingError as error:
        raise EngineError(f"The first step went wrong: {error}.") from error
    finally:
        runner.close_sequence(sequence)
