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
from functools import partial
from typing import TYPE_CHECKING, Any

from engine.config import EngineConfig
from engine.loading import LoadCancelledError, Ready, Sources, as_engine_error, load, real_sources, room_for
from engine.output import Generation, Mailbox, TextOutput
from engine.progress import Progress, ProgressCallback
from engine.request import Event, Request, RequestError, SamplingParams, TextEvent
from engine.stats import EngineStats

if TYPE_CHECKING:
    from engine.scheduler import Scheduler

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
            mailbox.call(partial(_settle, self._loaded, as_engine_error(self.config, error)))
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
        ready, runner = load(self.config, self._sources, self._progress)
        from engine.scheduler import Limits, Scheduler

        limits = Limits(self.config.max_running_requests, self.config.chunked_prefill_size)
        scheduler = Scheduler(runner, limits, ready.text.end_ids, self.stats)
        self.stats.load_seconds = ready.load_seconds
        self.ready = ready
        return scheduler

    def _progress(self, progress: Progress) -> None:
        if self._closing.is_set():
            raise LoadCancelledError
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


def _settle(future: asyncio.Future[Any] | None, result: object) -> None:
    """Resolve a future, on its event loop."""
    if future is None or future.done():
        return
    if isinstance(result, Exception):
        future.set_exception(result)
        future.exception()  # marks it as seen: nobody has to wait for it
    else:
        future.set_result(result)
