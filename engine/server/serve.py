"""Runs the server: HTTP first, so that ``/health`` tells how loading goes, then the model, until a signal."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
import socket
import sys
import traceback
from collections.abc import Generator
from dataclasses import asdict

import uvicorn

from engine.api import Engine
from engine.config import EngineConfig
from engine.errors import EngineError
from engine.loading import Sources
from engine.server.app import create_app
from engine.server.log import Log

DRAIN_S = 3.0
"""How long running requests may go on after a signal to stop."""


class _Server(uvicorn.Server):
    """uvicorn without its own signal handling, which ends the process by the signal instead of with code 0."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


async def serve(
    config: EngineConfig, listener: socket.socket, log: Log, sources: Sources | None = None
) -> int:
    """Serve until SIGTERM or SIGINT.

    Args:
        config: What to serve.
        listener: A socket that listens already.
        log: Where to write what happens.
        sources: Where tokenizer and model come from; None takes the configured checkpoint.

    Returns:
        The exit code: 0 after a signal, 1 when the model cannot be loaded or the engine died.
    """
    engine = Engine(config, log.progress, sources)
    server = _Server(
        uvicorn.Config(
            create_app(engine, log),
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",
            server_header=False,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=1,
        )
    )
    loop = asyncio.get_running_loop()
    asked_to_stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, asked_to_stop.set)
    http = loop.create_task(server.serve(sockets=[listener]))
    stopping = loop.create_task(asked_to_stop.wait())
    engine.start()
    try:
        return await _run(engine, listener, log, stopping)
    finally:
        await engine.close(DRAIN_S)
        server.should_exit = True
        await http
        stopping.cancel()
        log.line("stopped")


async def _run(engine: Engine, listener: socket.socket, log: Log, stopping: asyncio.Task[bool]) -> int:
    config = engine.config
    loading = asyncio.ensure_future(engine.loaded())
    await asyncio.wait((loading, stopping), return_when=asyncio.FIRST_COMPLETED)
    if not stopping.done():
        try:
            ready = loading.result()
        except EngineError as error:
            return failed(error, log)
        port = listener.getsockname()[1]
        load_s = f"{ready.load_seconds:.2f}"
        # What was loaded stays: the collector need not look at it again and again.
        gc.freeze()
        if ready.kernels is not None:
            log.line("kernels", **asdict(ready.kernels))
        log.line("ready", host=config.host, port=port, model=config.model_name, load_s=load_s)
        ended = asyncio.ensure_future(engine.ended())
        await asyncio.wait((ended, stopping), return_when=asyncio.FIRST_COMPLETED)
        if not stopping.done():
            fault = ended.exception() or RuntimeError("the engine thread ended")
            return failed(EngineError(f"The engine died of {type(fault).__name__}: {fault}"), log)
        ended.cancel()
    loading.cancel()
    log.line("stopping", requests=engine.open_requests)
    return 0


def failed(error: EngineError, log: Log) -> int:
    """Say in one line what went wrong; the traceback only for developers."""
    if log.debug:
        traceback.print_exception(error)
    text = " ".join(str(error).split())
    text = "".join(c if c.isprintable() else "?" for c in text)
    with contextlib.suppress(OSError):
        print(f"kt-engine error: {text}", file=sys.stderr, flush=True)  # noqa: T201  # this is the program's output
    return 1
