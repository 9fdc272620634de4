"""The sampling thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kt_tui.errors import KtError
from kt_tui.monitor import host
from kt_tui.monitor.history import History
from kt_tui.monitor.poller import EngineTarget, FiguresPoller
from kt_tui.monitor.snapshot import GpuSample, Snapshot
from kt_tui.monitor.tree import TreeReader
from kt_tui.text import one_line

# Seconds that a reading stays good; parts that are not named are read at each tick. Asking a driver costs more than
# reading a file, and a node's memory changes slowly.
LIFETIMES: Mapping[str, float] = {"nodes": 5.0, "gpus": 2.0}
_ABSENT_LIFETIME = 30.0  # a GPU driver that is not there is looked for this often


@dataclass
class _Part:
    """The last reading of one part."""

    value: Any = None
    reason: str = ""
    read_at: float = 0.0
    good_until: float = 0.0


class Sampler:
    """One thread that publishes a `Snapshot` every ``interval`` seconds (and a second one that asks the engine).

    Subscribers are called from that thread and must hand over quickly (``post_message``, ``call_soon_threadsafe``);
    one that raises is not called again.

    Args:
        target: Asked at each tick which engine to watch; None for no engine.
        gpus: Reads all GPUs; raises `KtError` with a sentence when there is no driver. None for no GPU reader.
        interval: Seconds between snapshots, 0.1 to 60; may be changed while running.
        capacity: Snapshots that ``history`` remembers.
    """

    def __init__(
        self,
        target: Callable[[], EngineTarget | None] = lambda: None,
        gpus: Callable[[], Sequence[GpuSample]] | None = None,
        interval: float = 1.0,
        capacity: int = 600,
    ) -> None:
        self.history = History(capacity)
        self.latest: Snapshot | None = None
        self._target = target
        self._gpus = gpus
        self._interval = _bounded(interval)
        self._poller = FiguresPoller(target, self._interval)
        self._subscribers: list[Callable[[Snapshot], None]] = []
        self._lock = threading.Lock()
        self._wake = threading.Condition()
        self._running = False
        self._thread: threading.Thread | None = None
        self._tree = TreeReader()
        self._parts: dict[str, _Part] = {}

    @property
    def interval(self) -> float:
        """Seconds between snapshots."""
        return self._interval

    @interval.setter
    def interval(self, seconds: float) -> None:
        with self._wake:
            self._interval = self._poller.interval = _bounded(seconds)
            self._wake.notify_all()

    def subscribe(self, callback: Callable[[Snapshot], None]) -> Callable[[], None]:
        """Call ``callback`` with each snapshot; the function given back ends that."""
        with self._lock:
            self._subscribers.append(callback)

        return lambda: self._leave(callback)

    def _leave(self, callback: Callable[[Snapshot], None]) -> None:
        with self._lock:
            if callback in self._subscribers:
                self._subscribers.remove(callback)

    def start(self) -> None:
        """Start the thread; does nothing if it runs."""
        if self._thread is not None:
            return
        self._running = True
        self._poller.start()
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop the threads and wait for them (at most two seconds)."""
        with self._wake:
            self._running = False
            self._wake.notify_all()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(1.0)
        self._thread = None
        self._poller.stop()

    def _run(self) -> None:
        host.read_cpu()  # sets the mark from which the first percentages count
        while True:
            began = time.monotonic()
            with self._wake:
                # Looked at anew after each wake-up, so that a shorter interval takes effect at once.
                while self._running and (left := began + self._interval - time.monotonic()) > 0:
                    self._wake.wait(left)
                if not self._running:
                    return
            self._publish(self.sample())

    def _publish(self, snapshot: Snapshot) -> None:
        self.history.add(snapshot)
        self.latest = snapshot
        with self._lock:
            subscribers = tuple(self._subscribers)
        for callback in subscribers:
            try:
                callback(snapshot)
            except Exception:
                # A screen that is gone without having left; the others, and this thread, go on.
                self._leave(callback)

    def sample(self) -> Snapshot:
        """Read everything that is due, now, in this thread."""
        now = time.monotonic()
        target = self._target()
        cpu = self._part("cpu", now, host.read_cpu)
        memory = self._part(
            "memory", now, host.read_main_memory, absent="the kernel does not tell its memory"
        )
        nodes = self._part("nodes", now, host.read_nodes)
        gpus = self._part("gpus", now, self._gpus) if self._gpus else _Part((), "no GPU reader")
        process = self._part(
            "process",
            now,
            lambda: self._tree.read(target.pid) if target else None,
            absent="the engine's process is gone" if target else "no engine is running",
        )
        answer = self._poller.answer
        engine = answer.figures if target is not None else None
        parts = {"cpu": cpu, "memory": memory, "nodes": nodes, "gpus": gpus, "process": process}
        reasons = {name: part.reason for name, part in parts.items() if part.reason}
        ages = {name: now - part.read_at for name, part in parts.items() if part.read_at}
        if engine is None:
            reasons["engine"] = answer.reason if target is not None else "no engine is running"
        else:
            ages["engine"] = now - answer.time
        return Snapshot(
            time=time.time(),
            monotonic=now,
            cpu=cpu.value,
            memory=memory.value,
            nodes=nodes.value or (),
            gpus=tuple(gpus.value or ()),
            process=process.value,
            engine=engine,
            reasons=reasons,
            ages=ages,
        )

    def _part(self, name: str, now: float, read: Callable[[], Any], absent: str = "") -> _Part:
        """The part's value, read again if its time is over; one failing part never spoils another."""
        part = self._parts.setdefault(name, _Part())
        if part.read_at and now < part.good_until:
            return part
        lifetime = LIFETIMES.get(name, 0.0)
        try:
            part.value, part.reason = read(), ""
        except KtError as error:
            part.value, part.reason = None, one_line(str(error))
            lifetime = max(lifetime, _ABSENT_LIFETIME)
        except Exception as error:
            part.value, part.reason = None, one_line(f"cannot be read: {type(error).__name__}: {error}")
        if part.value is None and not part.reason:
            part.reason = absent
        part.read_at, part.good_until = now, now + lifetime
        return part


def _bounded(seconds: float) -> float:
    return min(max(seconds, 0.1), 60.0)
