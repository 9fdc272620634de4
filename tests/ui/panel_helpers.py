"""The panel with a played engine, fixed figures and a fixed machine; waiting without sleeping."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from textual.pilot import Pilot

from kt_tui.catalog import ModelEntry, ModelState, PrepareCancelled, PrepareProgress
from kt_tui.hardware.machine import Cpu, Driver, Machine, Memory, Numa, NumaNode
from kt_tui.monitor.history import History
from kt_tui.monitor.snapshot import CpuSample, EngineFigures, MemorySample, ProcessSample, Snapshot
from kt_tui.paths import Paths
from kt_tui.services import LaunchRequest, Services
from kt_tui.supervise.log import LogRing
from kt_tui.supervise.types import EngineSpec, EngineState, EngineStatus, StopReport
from kt_tui.ui.app import KtApp

GIB = 1 << 30

MACHINE = Machine(
    cpu=Cpu(
        model="EPYC 9654 96-Core Processor",
        arch="x86_64",
        sockets=1,
        physical_cores=4,
        logical_cpus=8,
        usable_physical_cores=4,
        usable_logical_cpus=8,
        isa=("avx2", "avx512f", "avx512_bf16", "avx512_vnni"),
    ),
    numa=Numa((NumaNode(0, tuple(range(8)), 64 * GIB, 50 * GIB),)),
    memory=Memory(total=64 * GIB, available=50 * GIB, page_cache=6 * GIB),
    driver=Driver(error="LIBRARY_NOT_FOUND"),
)

DEMO = ModelEntry(
    "demo",
    aliases=("m2-demo",),
    format="safetensors-fp8",
    bytes=343 << 20,
    family="minimax_m2",
    description="a mixture of experts for a first look",
    preparable=True,
    served_name="demo",
    target=Path("/models/demo"),
)
SMALL = ModelEntry("smollm2", state=ModelState.WRONG, format="gguf-q4_1", problems=("the file is cut short",))


def snapshot(at: float = 1000.0, **changes: Any) -> Snapshot:
    """Figures of one moment, the same each time."""
    base = Snapshot(
        time=at,
        monotonic=at,
        cpu=CpuSample(31.0, (10.0, 90.0, 45.0, 0.0, 20.0, 55.0, 5.0, 23.0)),
        memory=MemorySample(64 * GIB, 50 * GIB, 14 * GIB, 6 * GIB, 0, 0),
        reasons={"gpus": "no NVIDIA driver"},
    )
    return replace(base, **changes)


BUSY = {
    "process": ProcessSample(4242, 1, 3 * GIB, 380.0, 12),
    "engine": EngineFigures(1, 0, 512, 8192, 0.0625, 18.4, 0.0, 96),
}


class PlayedSupervisor:
    """An engine whose states the test plays."""

    def __init__(self) -> None:
        self.status = EngineStatus()
        self.api_key: str | None = None
        self.log = LogRing()
        self.started: list[EngineSpec] = []
        self.kept = False
        self.stopped = 0
        self.closed = 0
        self.kept_engine: EngineStatus | None = None
        self.report = StopReport(gone=True)
        self._callbacks: list[Callable[[EngineStatus], None]] = []

    def play(self, state: EngineState, **changes: Any) -> None:
        """Let the engine come into a state."""
        self.status = replace(self.status, state=state, **changes)
        for callback in tuple(self._callbacks):
            callback(self.status)

    def subscribe(self, callback: Callable[[EngineStatus], None]) -> Callable[[], None]:
        self._callbacks.append(callback)
        return lambda: self._callbacks.remove(callback)

    async def start(self, spec: EngineSpec) -> None:
        self.started.append(spec)
        self.play(
            EngineState.STARTING,
            pid=4242,
            host=spec.host,
            port=spec.port,
            model=spec.model,
            engine=spec.engine,
        )

    async def stop(self, grace: float = 10.0) -> StopReport:
        self.stopped += 1
        self.play(EngineState.STOPPED, pid=None, reason="stopped")
        return self.report

    async def attach(self) -> bool:
        if self.kept_engine is None:
            return False
        self.status = self.kept_engine
        self.play(EngineState.READY)
        return True

    async def keep_running(self, keep: bool = True) -> None:
        self.kept = keep

    async def close(self) -> None:
        self.closed += 1


class PlayedSampler:
    """Figures that the test publishes."""

    def __init__(self) -> None:
        self.history = History(600)
        self.latest: Snapshot | None = None
        self.interval = 1.0
        self.running = False
        self._callbacks: list[Callable[[Snapshot], None]] = []

    def subscribe(self, callback: Callable[[Snapshot], None]) -> Callable[[], None]:
        self._callbacks.append(callback)
        return lambda: self._callbacks.remove(callback)

    def start(self) -> None:
        self.running = True

    def stop(self) -> None:
        self.running = False

    def publish(self, figures: Snapshot) -> None:
        """New figures arrive, as from the sampler's thread."""
        self.latest = figures
        self.history.add(figures)
        for callback in tuple(self._callbacks):
            callback(figures)


class PanelServices(Services):
    """The real services over a played engine, with a catalogue that the test sets."""

    supervisor: PlayedSupervisor  # type: ignore[mutable-override]
    sampler: PlayedSampler  # type: ignore[mutable-override]

    def __init__(self, paths: Paths, environ: Mapping[str, str] | None = None) -> None:
        super().__init__(
            paths,
            environ or {},
            PlayedSupervisor(),  # type: ignore[arg-type]
            PlayedSampler(),  # type: ignore[arg-type]
            machine=lambda: MACHINE,
            ports=lambda _host, _port: None,  # whatever really listens on this machine
        )
        self.entries = {"demo": DEMO, "smollm2": SMALL}
        self._prepared = False
        self.may_finish = threading.Event()
        self.may_finish.set()
        self.planned: list[LaunchRequest] = []

    def list_models(self) -> list[ModelEntry]:
        return list(self.entries.values())

    def find_model(self, name_or_path: str) -> ModelEntry:
        from kt_tui.catalog import UnknownModel

        if name_or_path not in self.entries:
            raise UnknownModel(f"there is no model {name_or_path!r}; did you mean 'demo'?")
        return self.entries[name_or_path]

    @property
    def prepared(self) -> bool:
        """Whether the demo is on disk."""
        return self._prepared

    @prepared.setter
    def prepared(self, prepared: bool) -> None:
        self._prepared = prepared
        made = replace(DEMO, state=ModelState.COMPLETE, path=Path("/models/demo"))
        self.entries["demo"] = made if prepared else DEMO

    def is_prepared(self, entry: ModelEntry) -> bool:
        return self._prepared

    def prepare(
        self, entry: ModelEntry, on_progress: Callable[[PrepareProgress], None], cancel: threading.Event
    ) -> Path:
        on_progress(PrepareProgress("weights", 120 << 20, 343 << 20))
        while not self.may_finish.wait(0.01):
            if cancel.is_set():
                raise PrepareCancelled("demo was not made: cancelled")
        self.prepared = True
        return Path("/models/demo")

    def verify(
        self, entry: ModelEntry, on_progress: Callable[[PrepareProgress], None], cancel: threading.Event
    ) -> list[str]:
        return list(entry.problems)


async def wait_until(pilot: Pilot[Any], condition: Callable[[], object], limit: float = 20.0) -> None:
    """Let the app run until ``condition`` holds."""
    deadline = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < deadline, "the awaited state never came"
        await pilot.pause(0.01)


async def settled(pilot: Pilot[Any]) -> None:
    """The machine, the models and the first screen are there."""
    app = pilot.app
    assert isinstance(app, KtApp)
    sampler: Any = app.services.sampler
    await wait_until(pilot, lambda: sampler.running and app.services.known_machine and app.screen.is_attached)
    await calm(pilot)


async def calm(pilot: Pilot[Any]) -> None:
    """All work in the background has ended (or was replaced by newer work), and what it changed is drawn."""
    await wait_until(pilot, lambda: all(worker.is_finished for worker in pilot.app.workers))
    await pilot.pause()


def toasts(app: KtApp) -> str:
    """All that was said in passing."""
    return "\n".join(str(notification.message) for notification in app._notifications)
