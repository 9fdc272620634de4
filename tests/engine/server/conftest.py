"""A real HTTP server on a free port, with the fake model behind it."""

from __future__ import annotations

import asyncio
import io
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
import uvicorn

from engine.api import Engine
from engine.config import EngineConfig
from engine.loading import Sources
from engine.progress import ProgressCallback
from engine.server.app import create_app
from engine.server.listen import bind
from engine.server.log import Log
from engine.text.model import TextModel
from tests.engine.fakes import FakeRunner, text_model

CONFIG = EngineConfig(model=Path("/models/fake"), port=0, served_model_name="fake")


@dataclass
class Service:
    """A running server."""

    url: str
    engine: Engine
    runner: FakeRunner
    written: io.StringIO

    @property
    def client(self) -> openai.OpenAI:
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key="none", max_retries=0, timeout=20)

    @property
    def async_client(self) -> openai.AsyncOpenAI:
        return openai.AsyncOpenAI(base_url=f"{self.url}/v1", api_key="none", max_retries=0, timeout=20)

    @property
    def log(self) -> str:
        return self.written.getvalue()

    def load(self) -> dict[str, Any]:
        loads: dict[str, Any] = httpx.get(f"{self.url}/v1/loads").json()["loads"][0]
        return loads

    def wait_until_idle(self, seconds: float = 10) -> None:
        end = time.monotonic() + seconds
        while self.load()["num_total_reqs"] or self.engine.open_requests:
            assert time.monotonic() < end, f"still busy: {self.load()}"
            time.sleep(0.01)


@contextmanager
def running(
    runner: FakeRunner | None = None,
    text: TextModel | None = None,
    *,
    before_load: Callable[[], object] = lambda: None,
    keep_alive_s: float = 10,
    **settings: Any,
) -> Iterator[Service]:
    config, runner, text = replace(CONFIG, **settings), runner or FakeRunner(), text or text_model()
    written = io.StringIO()
    listener = bind(config.host, config.port)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    started: list[tuple[Engine, asyncio.AbstractEventLoop, uvicorn.Server]] = []
    up = threading.Event()

    def load(_: EngineConfig, progress: ProgressCallback) -> FakeRunner:
        before_load()
        return runner

    async def main() -> None:
        log = Log("info", written)
        engine = Engine(config, log.progress, Sources(lambda _: text, load))
        server = uvicorn.Server(
            uvicorn.Config(
                create_app(engine, log, keep_alive_s),
                log_config=None,
                lifespan="off",
                timeout_graceful_shutdown=1,
            )
        )
        engine.start()
        started.append((engine, asyncio.get_running_loop(), server))
        up.set()
        await server.serve(sockets=[listener])
        assert await engine.close(0.5)

    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    assert up.wait(10)
    engine, _, server = started[0]
    try:
        yield Service(url, engine, runner, written)
    finally:
        server.should_exit = True
        thread.join(20)
        assert not thread.is_alive()


def wait_ready(service: Service) -> Service:
    end = time.monotonic() + 20
    while httpx.get(f"{service.url}/health").status_code != 200:
        assert time.monotonic() < end
        time.sleep(0.01)
    return service


@pytest.fixture
def start() -> Iterator[Callable[..., Service]]:
    """Starts servers, waits until each is ready, and stops all at the end."""
    with ExitStack() as stack:
        yield lambda *args, **settings: wait_ready(stack.enter_context(running(*args, **settings)))


@pytest.fixture
def start_loading() -> Iterator[Callable[..., Service]]:
    """The same, without waiting until it is ready."""
    with ExitStack() as stack:
        yield lambda *args, **settings: stack.enter_context(running(*args, **settings))


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    """One ready server for tests that only ask questions."""
    with running() as service:
        yield wait_ready(service)
