"""The full-screen app: the shell, and the engine that runs behind it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from textual import work
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.reactive import var
from textual.signal import Signal

from kt_tui.errors import KtError
from kt_tui.services import ChatSession, LaunchRequest
from kt_tui.supervise.types import EngineState, EngineStatus
from kt_tui.ui.alerts import alerts
from kt_tui.ui.nextstep import DEMO_MODEL
from kt_tui.ui.shell import Shell
from kt_tui.ui.starting import Activity, Starter

if TYPE_CHECKING:
    from textual.command import Provider

    from kt_tui.chat import Metrics
    from kt_tui.hardware import Machine
    from kt_tui.monitor import Snapshot
    from kt_tui.services import Services

LEAVE_S = 20.0
"""Longest way out after a signal; longer than stopping an engine takes."""

_FOLLOWING_MODES = {"home", "models", "launch"}
"""Where a user waits for the engine; from elsewhere the panel does not jump to the chat by itself."""


def _palette_provider() -> type[Provider]:
    """Imported when the palette is opened first."""
    from kt_tui.ui.commands import KtCommands

    return KtCommands


class SnapshotTaken(Message):
    """The sampler's thread has new figures."""

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__()
        self.snapshot = snapshot


class KtApp(Shell):
    """The panel. Screens read ``services``, follow the signals and ask for things through actions.

    Args:
        services: The domain.
        opening: The launch that the command line named: its form is opened.
        chat_session: The server that the command line named: the chat talks to it.
        on_painted: Called when the first screen is on the terminal.
    """

    COMMANDS: ClassVar = {_palette_provider}
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f5", "toggle_engine", "Start/stop", show=False, id="app.engine"),
    ]

    engine_status: var[EngineStatus] = var(EngineStatus())
    activity: var[Activity | None] = var(None)

    def __init__(
        self,
        services: Services,
        opening: LaunchRequest | None = None,
        chat_session: ChatSession | None = None,
        on_painted: Callable[[], None] | None = None,
    ) -> None:
        first = "chat" if chat_session is not None else "home" if opening is None else "launch"
        super().__init__(services, first_mode=first)
        self.opening = opening
        self.chat_session = chat_session
        self.engine_status_signal: Signal[EngineStatus] = Signal(self, "engine-status")
        self.activity_signal: Signal[Activity | None] = Signal(self, "activity")
        self.snapshot_signal: Signal[Snapshot] = Signal(self, "snapshot")
        self.machine_signal: Signal[Machine] = Signal(self, "machine")
        self.profiles_signal: Signal[tuple[str, ...]] = Signal(self, "profiles")
        self.starter = Starter(services, self._set_activity)
        self.last_request: LaunchRequest | None = None
        self.profile_names: tuple[str, ...] = ()
        self.last_metrics: Metrics | None = None
        """Times of the newest answer of the engine that runs now."""
        self.snapshot: Snapshot | None = None
        """The newest figures, if there are any yet."""
        self._on_painted = on_painted
        self._opens_chat = False
        self._stop_listening: list[Callable[[], None]] = []

    # -- life -------------------------------------------------------------------------------------------------

    def on_mount(self) -> None:
        """Paint first; all else follows."""
        self.call_after_refresh(self._begin)
        for number in (signal.SIGTERM, signal.SIGHUP):
            with contextlib.suppress(RuntimeError, ValueError):  # not in the main thread: a test
                asyncio.get_running_loop().add_signal_handler(number, self._leave_at_once, number)

    def _leave_at_once(self, number: signal.Signals) -> None:
        """The machine goes down or the terminal is gone: leave as at Ctrl+Q, without a question.

        A terminal that is gone can hold up the way out for ever, so it has a deadline.
        """
        deadline = threading.Timer(LEAVE_S, os._exit, (128 + number,))
        deadline.daemon = True
        deadline.start()
        self.exit(128 + number, return_code=128 + number)

    def _take_snapshot(self, snapshot: Snapshot) -> None:
        """Called in the sampler's thread."""
        self.post_message(SnapshotTaken(snapshot))

    @work(group="begin")
    async def _begin(self) -> None:
        """Follow the engine and the sampler; read the slow things in threads."""
        if self._on_painted is not None:
            self._on_painted()
        supervisor = self.services.supervisor
        sampler = await asyncio.to_thread(lambda: self.services.sampler)
        self._stop_listening = [
            supervisor.subscribe(self._set_engine_status),
            sampler.subscribe(self._take_snapshot),
        ]
        sampler.start()
        self.read_machine()
        self.read_profiles()
        self.launch_notes = tuple(await asyncio.to_thread(self.services.launch_notes))
        for problem in self.notes:
            self.say(problem, "warning")
        try:
            if await self.services.supervisor.attach():
                self.say(f"Found the engine that was left running: {self.engine_status.model}")
        except KtError as error:
            self.say(str(error), "error")

    async def on_unmount(self) -> None:
        """Let go of everything; an engine that is not kept is stopped."""
        for stop in self._stop_listening:
            stop()
        self.starter.cancel()
        self.services.sampler.stop()
        await self.services.supervisor.close()

    # -- what screens use -------------------------------------------------------------------------------------

    @property
    def alerts(self) -> tuple[str, ...]:
        """What deserves attention now."""
        return alerts(self.engine_status, self.snapshot, self.notes)

    @work(group="machine", exclusive=True)
    async def read_machine(self) -> None:
        """Read the machine in a thread and tell everyone."""
        self.machine_signal.publish(await asyncio.to_thread(self.services.machine))

    @work(group="profiles", exclusive=True)
    async def read_profiles(self) -> None:
        """Read the names of the profiles, newest first, and tell everyone."""
        listed = await asyncio.to_thread(self.services.list_profiles)
        by_age = sorted(
            listed.profiles, key=lambda p: p.created.timestamp() if p.created else 0.0, reverse=True
        )
        self.profile_names = tuple(profile.name for profile in by_age)
        self.profiles_signal.publish(self.profile_names)

    # -- state from elsewhere ---------------------------------------------------------------------------------

    def _set_engine_status(self, status: EngineStatus) -> None:
        self.engine_status = status

    def _set_activity(self, activity: Activity | None) -> None:
        self.activity = activity

    def watch_engine_status(self, before: EngineStatus, status: EngineStatus) -> None:
        """Tell everyone; open the chat once the engine that the user waits for answers."""
        self.engine_status_signal.publish(status)
        if status.state is before.state:
            return
        if status.state is EngineState.STARTING:
            self.last_metrics = None
        if status.state is EngineState.READY and self._opens_chat:
            self._opens_chat = False
            if (
                self.current_mode in _FOLLOWING_MODES
                and len(self.screen_stack) == 1
                and self.has_mode("chat")
            ):
                self.call_next(self.action_show_mode, "chat")
            else:
                self.say(f"{status.model} is ready")
        elif status.state is EngineState.FAILED:
            self._opens_chat = False
            self.say(status.reason, "error")

    def watch_activity(self, activity: Activity | None) -> None:
        """Tell everyone."""
        self.activity_signal.publish(activity)

    def on_snapshot_taken(self, message: SnapshotTaken) -> None:
        """Tell everyone."""
        self.snapshot = message.snapshot
        self.snapshot_signal.publish(message.snapshot)

    @property
    def measured(self) -> dict[str, object]:
        """What the engine that runs now has shown so far: speed of the newest answer, most memory since its start."""
        status = self.engine_status
        if status.state is not EngineState.READY or status.started_at is None:
            return {}
        found: dict[str, object] = {}
        if self.last_metrics is not None:
            known = self.last_metrics.to_json()
            found = {name: known[name] for name in ("tokens_per_s", "ttft_s") if known[name] is not None}
        history, age = self.services.sampler.history, time.time() - status.started_at
        newest = self.snapshot.monotonic if self.snapshot is not None else 0.0
        recent = sum(moment >= newest - age for moment in history.times())
        peak = history.peak("engine_rss", recent) if recent else None
        return {**found, "peak_memory_bytes": int(peak)} if found and peak else found

    async def open_launch_form(self, model: str) -> None:
        """Show the launch form of a model."""
        request = LaunchRequest(model)
        self.opening = request
        await self.action_show_mode("launch")
        show = getattr(self.screen, "show_request", None)
        if show is not None:
            show(request)

    # -- the engine -------------------------------------------------------------------------------------------

    def action_start_model(self, name: str) -> None:
        """Start a model with what configuration and hardware say."""
        self.start(LaunchRequest(name))

    @work(group="engine")
    async def action_start_profile(self, name: str) -> None:
        """Start a saved launch."""
        try:
            profile = await self.services.load_profile(name)
        except KtError as error:
            self.say(str(error), "error")
            return
        self.start(LaunchRequest(profile.model, profile=name, engine=profile.engine))

    def action_start_again(self) -> None:
        """Start what was started last, or the demo."""
        self.start(self.last_request or self.opening or LaunchRequest(DEMO_MODEL))

    @work(group="engine")
    async def start(self, request: LaunchRequest, *, force: bool = False) -> None:
        """Make the model if needed and launch it; the chat opens when it answers."""
        if self.refuses_another_start():
            return
        self.last_request = request
        self._opens_chat = True
        try:
            await self.starter.launch(request, force=force)
        except KtError as error:
            self._opens_chat = False
            self.say(str(error), "error")

    def refuses_another_start(self) -> bool:
        """Whether an engine runs or is on its way, and says so: a second start must not disturb the first."""
        if self.engine_status.state.active:
            self.say(
                f"{self.engine_status.model} is {self.engine_status.state}; stop it first (F5)", "warning"
            )
            return True
        if self.starter.busy:
            what = self.activity.title if self.activity is not None else "A launch"
            way = ", or press Esc" if self.activity is not None and self.activity.cancellable else ""
            self.say(f"{what} is under way; wait for it{way}", "warning")
            return True
        return False

    @work(group="prepare")
    async def prepare(self, name: str, *, verify: bool = False) -> None:
        """Make, mend or verify a model."""
        try:
            if verify:
                problems = await self.starter.verify(name)
                if problems:
                    self.say("; ".join(problems), "error")
                else:
                    self.say(f"{name} is sound: every byte was read and compared")
            else:
                await self.starter.prepare(name)
                self.say(f"{name} is ready to start")
        except KtError as error:
            self.say(str(error), "error")

    def action_cancel_activity(self) -> None:
        """End a preparation."""
        if self.activity is not None and self.activity.cancellable:
            self.starter.cancel()

    @work(group="engine")
    async def action_toggle_engine(self) -> None:
        """Start the last launch, or ask whether to stop the engine."""
        from kt_tui.ui.screens.dialogs import Answer, Ask

        if not self.engine_status.state.active:
            self.action_start_again()
            return
        question = Ask(
            "Stop the engine?",
            f"{self.engine_status.model} is {self.engine_status.state}. Running answers end where they are.",
            [Answer("cancel", "Let it run"), Answer("stop", "Stop it", "error", "s")],
        )
        if await self.push_screen_wait(question) == "stop":
            await self._stop_engine()

    async def _stop_engine(self) -> bool:
        """Stop, and say so if something is left."""
        self._opens_chat = False
        try:
            report = await self.services.supervisor.stop()
        except KtError as error:
            self.say(str(error), "error")
            return False
        if not report.gone:
            left = (
                ", ".join(f"{one.name} ({one.pid})" for one in report.survivors) or "the port is still open"
            )
            self.say(f"The engine did not end completely: {left}", "error")
        return report.gone

    @work(group="quit", exclusive=True)
    async def action_quit(self) -> None:  # type: ignore[override]
        """Leave; ask first if an engine runs."""
        from kt_tui.ui.screens.dialogs import Answer, Ask

        if any(isinstance(screen, Ask) for screen in self.screen_stack):
            return
        if self.engine_status.state.active:
            question = Ask(
                "Leave kt-tui?",
                f"{self.engine_status.model} is {self.engine_status.state}. A later kt-tui finds an engine that is "
                "left running.",
                [
                    Answer("cancel", "Stay"),
                    Answer("keep", "Leave it running", key="l"),
                    Answer("stop", "Stop it and leave", "error", "s"),
                ],
            )
            answer = await self.push_screen_wait(question)
            if answer == "keep":
                await self.services.supervisor.keep_running()
            elif answer != "stop" or not await self._stop_engine():
                return
        self.exit(0)
