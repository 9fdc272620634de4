"""What the screens work with, built once and handed to the app; tests hand in others."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from kt_tui.config import Config, load_config, set_value
from kt_tui.errors import KtError
from kt_tui.net import bind_problem
from kt_tui.paths import Paths, user_paths

if TYPE_CHECKING:
    from kt_tui.catalog import ModelEntry, PrepareProgress
    from kt_tui.chat import ChatOptions, Endpoint
    from kt_tui.hardware import Machine
    from kt_tui.launch import LaunchPlan
    from kt_tui.monitor import EngineTarget, GpuSample, Sampler
    from kt_tui.profiles import Conditions, Profile, ProfileList
    from kt_tui.supervise import EngineStatus, Supervisor


@dataclass(frozen=True)
class LaunchRequest:
    """What the user wants started.

    Attributes:
        model: Name or path of the model.
        options: Launch options that the user set (long name without dashes -> value).
        extra: Options for the engine that kt-tui does not know, as typed.
        profile: Name of the profile that fills in what ``options`` leaves open.
        engine: ``embedded`` or ``sglang``; None leaves the choice to the planner.
    """

    model: str
    options: Mapping[str, object] = field(default_factory=dict)
    extra: tuple[str, ...] = ()
    profile: str | None = None
    engine: str | None = None


@dataclass(frozen=True)
class ChatSession:
    """A chat that the command line asked for, with a server of its own.

    Attributes:
        endpoint: The server.
        options: What goes with each request.
        system: The system prompt; empty for none.
        saved: Whether the conversation goes into the history.
    """

    endpoint: Endpoint
    options: ChatOptions
    system: str = ""
    saved: bool = True


OnProgress = Callable[["PrepareProgress"], None]


class Services:
    """The domain, as the screens see it. Methods marked *blocking* belong into a worker thread.

    What takes time to import or to read is made at its first use, so that the screen is painted before.

    Args:
        paths: The user's folders.
        environ: The environment of the panel.
        supervisor: The one engine process; None makes the real one.
        sampler: Live figures; None makes the real one.
        machine: Reads the machine (once, in a worker thread); None reads this one.
    """

    def __init__(
        self,
        paths: Paths,
        environ: Mapping[str, str],
        supervisor: Supervisor | None = None,
        sampler: Sampler | None = None,
        *,
        machine: Callable[[], Machine] | None = None,
        ports: Callable[[str, int], str | None] = bind_problem,
    ) -> None:
        self.paths = paths
        self.environ = environ
        self.config = load_config(paths, environ)
        self._supervisor = supervisor
        self._sampler = sampler
        self._read_machine = machine
        self._ports = ports
        self._machine: Machine | None = None
        self._machine_lock = threading.Lock()
        self._conditions: tuple[object, Conditions] | None = None
        self._predicted: dict[tuple[str, str], tuple[str, float]] = {}

    @cached_property
    def supervisor(self) -> Supervisor:
        """The one engine process."""
        if self._supervisor is not None:
            return self._supervisor
        from kt_tui.supervise import Supervisor

        return Supervisor(self.paths, self.environ)

    @cached_property
    def sampler(self) -> Sampler:
        """Live figures of the machine and the engine."""
        if self._sampler is not None:
            return self._sampler
        from kt_tui.monitor import Sampler

        supervisor, environ = self.supervisor, self.environ
        return Sampler(
            target=lambda: engine_target(supervisor.status, supervisor.api_key),
            gpus=lambda: read_gpus(environ),
            interval=refresh_seconds(self.config),
        )

    @property
    def known_machine(self) -> Machine | None:
        """The machine if it has been read already."""
        return self._machine

    def machine(self) -> Machine:
        """The machine this panel runs on. Blocking the first time."""
        with self._machine_lock:
            if self._machine is None:
                self._machine = (self._read_machine or self._read_this_machine)()
            return self._machine

    def _read_this_machine(self) -> Machine:
        from kt_tui.hardware import read_machine

        return read_machine(environ=self.environ)

    def set_config(self, key: str, text: str) -> None:
        """Write one setting into the user's file and read the settings again."""
        set_value(self.paths, key, text)
        self.config = load_config(self.paths, self.environ)

    def launch_notes(self) -> list[str]:
        """What is wrong with the launch options of the user's settings, one sentence each. Blocking."""
        from kt_tui.launch.configured import launch_notes

        return launch_notes(self.config)

    def list_models(self) -> list[ModelEntry]:
        """The catalogue. Blocking."""
        from kt_tui.catalog import list_models

        return list_models(self.paths, self.config)

    def find_model(self, name_or_path: str) -> ModelEntry:
        """One model by what the user typed. Blocking; raises `kt_tui.catalog.UnknownModel`."""
        from kt_tui.catalog import find_model

        return find_model(name_or_path, self.paths, self.config)

    def is_prepared(self, entry: ModelEntry) -> bool:
        """Whether the model can be started as it lies on disk."""
        from kt_tui.catalog import is_prepared

        return is_prepared(entry)

    def prepare(self, entry: ModelEntry, on_progress: OnProgress, cancel: threading.Event) -> Path:
        """Make or mend a model. Blocking; raises `kt_tui.catalog.PrepareError`."""
        from kt_tui.catalog import prepare

        return prepare(entry, self.paths, on_progress, cancel)

    def verify(self, entry: ModelEntry, on_progress: OnProgress, cancel: threading.Event) -> list[str]:
        """Problems found by reading every byte of a model. Blocking."""
        from kt_tui.catalog import verify

        return verify(entry, on_progress, cancel)

    def list_profiles(self) -> ProfileList:
        """Saved launches, and what is wrong with those that cannot be read. Blocking."""
        from kt_tui.profiles import list_profiles

        return list_profiles(self.paths)

    async def load_profile(self, name: str) -> Profile:
        """One saved launch; raises `kt_tui.profiles.ProfileError`."""
        from kt_tui.profiles import load_profile

        return await asyncio.to_thread(load_profile, self.paths, name)

    def compose_profile(self, request: LaunchRequest, measured: Mapping[str, object]) -> Profile:
        """A launch as a profile without a name; secrets are left out. Blocking.

        Args:
            request: The launch; what it leaves open comes from the profile that it names.
            measured: Figures of exactly this launch; empty without any.

        Raises:
            KtError: The profile that it starts from cannot be read.
        """
        from kt_tui.launch.saving import compose_profile, stamped
        from kt_tui.launch.schema import EMBEDDED
        from kt_tui.profiles import load_profile
        from kt_tui.secret import is_secret

        base = load_profile(self.paths, request.profile) if request.profile else None
        path = None
        with contextlib.suppress(KtError):
            path = self.find_model(request.model).path
        return compose_profile(
            "",
            request.model,
            engine=request.engine or (base.engine if base else None) or EMBEDDED,
            options={name: value for name, value in request.options.items() if not is_secret(name)},
            extra=request.extra,
            base=base,
            measured=stamped(measured) if measured else None,
            conditions=self.conditions(path),
        )

    def save_profile(self, profile: Profile, *, overwrite: bool = False) -> Path:
        """Save a launch by name. Blocking; raises `kt_tui.profiles.ProfileError`."""
        from kt_tui.profiles import save_profile

        return save_profile(self.paths, profile, overwrite=overwrite)

    def plan(self, request: LaunchRequest, *, before: LaunchPlan | None = None) -> LaunchPlan:
        """What a launch would be: parameters with origins, memory, command. Blocking.

        Args:
            request: What the user wants.
            before: An earlier plan for the same model, which saves reading the checkpoint's headers again.

        Raises:
            KtError: There is no such model or profile.
        """
        from kt_tui.hardware import refresh_memory
        from kt_tui.launch import plan_launch
        from kt_tui.launch.conditions import checkpoint_of, with_condition_warnings
        from kt_tui.launch.record import prediction_of
        from kt_tui.launch.sglang_outlook import with_sglang_memory
        from kt_tui.launch.speed import with_speed
        from kt_tui.profiles import load_profile

        # A port that our own running engine holds says nothing about the next launch.
        occupied = self.supervisor.status.state.active
        machine = self.machine()
        profile = load_profile(self.paths, request.profile) if request.profile else None
        entry = self.find_model(request.model)
        plan = plan_launch(
            entry,
            machine if self._read_machine else refresh_memory(machine),
            self.config,
            profile,
            environ=self.environ,
            options=request.options,
            extra=request.extra,
            engine=request.engine,
            facts=before.facts if before is not None else None,
            bind_problem=None if occupied else self._ports,
        )
        plan = with_sglang_memory(plan, entry, machine)
        plan = with_speed(plan, entry, machine, self.paths)
        if (ceiling := prediction_of(plan.speed, "decode")) is not None:
            self._predicted[plan.served_name, plan.engine] = (entry.name, ceiling)
        if profile is None or not profile.conditions:
            return plan
        own = profile.model in {request.model, entry.name}
        return with_condition_warnings(plan, profile, self.conditions(checkpoint_of(plan) if own else None))

    def record_decode(self, tokens_per_s: float) -> None:
        """Keep a measured decode speed of the running engine beside what its plan predicted. Blocking.

        Does nothing for an engine that was not planned here, or whose speed could not be predicted.
        """
        from kt_tui.hardware.fingerprint import fingerprint
        from kt_tui.launch.record import Measured, add_measured

        status = self.supervisor.status
        known = self._predicted.get((status.model, status.engine))
        if known is None or not status.state.active:
            return
        mark = fingerprint(self.machine())
        entry = Measured(known[0], mark, status.engine, "decode", tokens_per_s, known[1], time.time())
        with contextlib.suppress(OSError):  # an error that is not told so far is no reason to disturb a chat
            add_measured(self.paths, entry)

    def conditions(self, checkpoint: Path | None) -> Conditions:
        """This machine and a checkpoint, as profiles keep them. Blocking; the checkpoint is read once."""
        from kt_tui.launch.conditions import conditions_of

        with contextlib.suppress(OSError):
            # A file that was fetched again changes its folder, and a GGUF file itself.
            stamp = (checkpoint, checkpoint.stat().st_mtime_ns if checkpoint is not None else 0)
            if self._conditions is None or self._conditions[0] != stamp:
                self._conditions = (stamp, conditions_of(self.machine(), checkpoint))
            return self._conditions[1]
        return conditions_of(self.machine(), None)


def engine_target(status: EngineStatus, api_key: str | None) -> EngineTarget | None:
    """The engine that the sampler should watch, if there is one."""
    from kt_tui.monitor import EngineTarget

    if status.pid is None or not status.state.active:
        return None
    return EngineTarget(status.pid, status.base_url, api_key)


def build_services(environ: Mapping[str, str]) -> Services:
    """The real services of this user and this machine. Starts nothing."""
    return Services(user_paths(environ), environ)


def refresh_seconds(config: Config) -> float:
    """``ui.refresh_seconds`` within the bounds of the sampler."""
    value = config.get("ui.refresh_seconds")
    return min(max(float(value), 0.25), 60.0) if isinstance(value, int | float) else 1.0


def read_gpus(environ: Mapping[str, str]) -> Sequence[GpuSample]:
    """The GPUs' live figures.

    Raises:
        KtError: There is no GPU to ask; says why.
    """
    from kt_tui.hardware.gpu import gpus_from_document
    from kt_tui.hardware.nvml import gpu_document
    from kt_tui.monitor import GpuSample

    found = gpus_from_document(gpu_document(environ))
    if not found.gpus:
        raise KtError(next(iter(found.notes), "no NVIDIA GPU").removeprefix("gpus: "))
    return [
        GpuSample(
            gpu.index,
            gpu.name or "GPU",
            gpu.memory_total,
            gpu.memory_used,
            gpu.utilization_gpu,
            gpu.power_w,
            gpu.temperature_c,
        )
        for gpu in found.gpus
    ]
