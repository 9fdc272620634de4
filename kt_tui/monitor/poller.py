"""Asks the engine for its figures in a thread of its own, so that a hung server cannot hold up anything else."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kt_tui.monitor.figures import CounterReading, read_counters, read_loads, with_rates
from kt_tui.monitor.snapshot import EngineFigures

if TYPE_CHECKING:
    import httpx

_BODY_LIMIT = 4 << 20
_DEADLINE = 5.0  # seconds for one answer as a whole, however slowly its bytes come


@dataclass(frozen=True)
class EngineTarget:
    """The engine to watch: its process and where it answers."""

    pid: int
    base_url: str
    api_key: str | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Answer:
    """The newest figures, or why there are none; ``time`` is monotonic seconds."""

    time: float
    figures: EngineFigures | None = None
    reason: str = ""


NO_ENGINE = "no engine is running"


class FiguresPoller:
    """Keeps `answer` fresh while it runs."""

    def __init__(self, target: Callable[[], EngineTarget | None], interval: float = 1.0) -> None:
        self._target = target
        self.interval = interval
        self.answer = Answer(time.monotonic(), reason=NO_ENGINE)
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._before: CounterReading | None = None
        self._watched: EngineTarget | None = None

    def start(self) -> None:
        """Start asking."""
        self._stop.clear()
        # A daemon: a server that sends its headers byte by byte may hold it for long, and must not hold the exit.
        self._thread = threading.Thread(target=self._run, name="engine-figures", daemon=True)
        self._thread.start()

    def stop(self, patience: float = 1.0) -> None:
        """Stop asking; waits at most ``patience`` seconds for an answer that is under way."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(patience)
            self._thread = None

    def _run(self) -> None:
        stop = self._stop
        client: httpx.Client | None = None
        try:
            while not stop.wait(self.interval):
                target = self._target()
                if target != self._watched:
                    self._watched, self._before = target, None
                if target is None or not target.base_url:
                    self.answer = Answer(time.monotonic(), reason=NO_ENGINE)
                    continue
                if client is None:
                    client = _new_client()
                self.answer = self._ask(client, target)
        finally:
            if client is not None:
                client.close()

    def _ask(self, client: httpx.Client, target: EngineTarget) -> Answer:
        loads, reason = _fetch(client, target, "/v1/loads")
        figures = read_loads(loads) if loads is not None else None
        if figures is None:
            return Answer(time.monotonic(), reason=reason or "the engine does not tell its load")
        body, _ = _fetch(client, target, "/metrics")
        if body is not None:
            now = CounterReading(time.monotonic(), read_counters(body))
            figures = with_rates(figures, self._before, now)
            self._before = now
        return Answer(time.monotonic(), figures)


def _new_client() -> httpx.Client:
    import httpx

    return httpx.Client(trust_env=False, verify=False, timeout=2.0)  # noqa: S501 - plain HTTP on this machine


def _fetch(client: httpx.Client, target: EngineTarget, path: str) -> tuple[bytes | None, str]:
    """The body of an answer with status 200, or None and why."""
    import httpx

    headers = {"Authorization": f"Bearer {target.api_key}"} if target.api_key else {}
    due = time.monotonic() + _DEADLINE
    try:
        with client.stream("GET", target.base_url + path, headers=headers) as response:
            if response.status_code != 200:
                return None, f"the engine answers {path} with status {response.status_code}"
            body = bytearray()
            for piece in response.iter_bytes():
                body += piece
                if len(body) > _BODY_LIMIT or time.monotonic() > due:
                    return None, f"the engine's answer to {path} is too long or too slow"
            return bytes(body), ""
    except (httpx.HTTPError, httpx.InvalidURL):
        return None, "the engine does not answer (yet)"
