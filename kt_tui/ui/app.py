"""The full-screen app: modes, what they share, and how it ends."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, Literal

from rich.text import Text
from textual import work
from textual.app import App
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.reactive import var
from textual.signal import Signal
from textual.theme import Theme
from textual.widget import Widget

from kt_tui.errors import KtError
from kt_tui.paths import shipped
from kt_tui.services import LaunchRequest
from kt_tui.supervise.types import EngineState, EngineStatus
from kt_tui.ui import clipboard, crash, theming
from kt_tui.ui.alerts import alerts
from kt_tui.ui.commands import KtCommands
from kt_tui.ui.modes import Mode, available_modes
from kt_tui.ui.nextstep import DEMO_MODEL
from kt_tui.ui.starting import Activity, Starter

if TYPE_CHECKING:
    from kt_tui.hardware import Machine
    from kt_tui.monitor import Snapshot
    from kt_tui.services import Services

Severity = Literal["information", "warning", "error"]

_FOLLOWING_MODES = {"home", "models", "launch"}
"""Where a user waits for the engine; from elsewhere the panel does not jump to the chat by itself."""


class SnapshotTaken(Message):
    """The sampler's thread has new figures."""

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__()
        self.snapshot = snapshot


class KtApp(App[int]):
    """The panel. Screens read ``services``, follow the signals and ask for things through actions.

    Args:
        services: The domain.
        opening: The launch that the command line named: its form is opened.
    """

    TITLE = "kt-tui"
    CSS_PATH = "app.tcss"
    COMMANDS = {KtCommands}
    HORIZONTAL_BREAKPOINTS = [(0, "-tiny"), (60, "-narrow"), (80, "-normal"), (100, "-medium"), (120, "-wide")]
    VERTICAL_BREAKPOINTS = [(0, "-flat"), (16, "-short"), (30, "-tall")]
    BINDINGS: ClassVar[list[BindingType]] = [
        *(
            Binding(str(number), f"show_mode_number({number})", f"Mode {number}", show=False, id=f"mode.{number}")
            for number in range(1, 8)
        ),
        *(
            Binding(f"alt+{number}", f"show_mode_number({number})", show=False, priority=True, id=f"mode.alt.{number}")
            for number in range(1, 8)
        ),
        Binding("ctrl+o", "jump", "Jump", show=False, priority=True, id="app.jump"),
        Binding("f1", "help", "Help", show=False, priority=True, id="app.help"),
        Binding("f2", "choose_theme", "Theme", show=False, id="app.theme"),
        Binding("f5", "toggle_engine", "Start/stop", show=False, id="app.engine"),
        Binding("f8", "picture", "Picture of the screen", show=False, id="app.picture"),
        Binding("ctrl+q,f10", "quit", "Quit", show=False, priority=True, id="app.quit"),
    ]

    engine_status: var[EngineStatus] = var(EngineStatus())
    activity: var[Activity | None] = var(None)

    def __init__(self, services: Services, opening: LaunchRequest | None = None) -> None:
        super().__init__()
        self.services = services
        self.opening = opening
        self.engine_status_signal: Signal[EngineStatus] = Signal(self, "engine-status")
        self.activity_signal: Signal[Activity | None] = Signal(self, "activity")
        self.snapshot_signal: Signal[Snapshot] = Signal(self, "snapshot")
        self.machine_signal: Signal[Machine] = Signal(self, "machine")
        self.profiles_signal: Signal[tuple[str, ...]] = Signal(self, "profiles")
        self.starter = Starter(services, self._set_activity)
        self.last_request: LaunchRequest | None = None
        self.profile_names: tuple[str, ...] = ()
        self.modes_shown: tuple[Mode, ...] = available_modes()
        self._opens_chat = False
        self._stop_listening: list[Callable[[], None]] = []
        for mode in self.modes_shown:
            self.add_mode(mode.name, mode.factory())
        # The first screen is a mode already, so that nothing blank is painted before it.
        self._current_mode = "home" if opening is None else "launch"
        self._screen_stacks = {self._current_mode: []}
        self._theme_problems = self._register_themes()

    # -- life -------------------------------------------------------------------------------------------------

    def on_mount(self) -> None:
        """Follow the engine and the sampler; read the slow things in threads."""
        supervisor, sampler = self.services.supervisor, self.services.sampler
        self.engine_status = supervisor.status
        self._stop_listening = [
            supervisor.subscribe(self._set_engine_status),
            sampler.subscribe(lambda snapshot: self.post_message(SnapshotTaken(snapshot)) and None),
        ]
        keys = {
            key.removeprefix("keys."): str(setting.value)
            for key, setting in self.services.config.settings.items()
            if key.startswith("keys.")
        }
        if keys:
            self.set_keymap(keys)
        self._begin()

    @work(group="begin")
    async def _begin(self) -> None:
        self.services.sampler.start()
        self.read_machine()
        self.read_profiles()
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

    def _fatal_error(self) -> None:
        """Textual 8.2.8 prints a traceback with local variables here; ours goes to a file, without them."""
        error = sys.exc_info()[1] or RuntimeError("unknown")
        report = crash.write_crash_report(error, self.services.paths.state)
        self._exit_renderables.append(Text(crash.crash_sentence(error, report)))
        self._close_messages_no_wait()

    # -- what screens use -------------------------------------------------------------------------------------

    @property
    def snapshot(self) -> Snapshot | None:
        """The newest figures, if there are any yet."""
        return self.services.sampler.latest

    @property
    def notes(self) -> tuple[str, ...]:
        """What is wrong with the user's files, one sentence each."""
        return (*self.services.config.notes, *self._theme_problems)

    @property
    def alerts(self) -> tuple[str, ...]:
        """What deserves attention now."""
        return alerts(self.engine_status, self.snapshot, self.notes)

    def say(self, text: str, severity: Severity = "information") -> None:
        """Tell the user something in passing. ``text`` is never read as markup."""
        self.notify(text, severity=severity, markup=False, timeout=10 if severity == "error" else 5)

    @work(group="copy")
    async def copy(self, text: str) -> None:
        """Copy ``text`` to wherever this session can, and say where it went."""
        import asyncio

        self.copy_to_clipboard(text) if len(text) <= clipboard.OSC52_LIMIT else None
        tool = await asyncio.to_thread(clipboard.copy_with_tool, text, self.services.environ)
        what = f"Copied {len(text)} characters"
        if tool is not None:
            self.say(f"{what} with {tool}")
        elif len(text) <= clipboard.OSC52_LIMIT:
            self.say(f"{what} through the terminal (OSC 52)")
        else:
            try:
                path = clipboard.copy_to_file(text, self.services.paths.state / "copied")
            except OSError as error:
                self.say(f"Too long for the terminal's clipboard, and no file could be written: {error}", "error")
            else:
                self.say(f"Too long for the terminal's clipboard: written to {path}", "warning")

    @work(group="machine", exclusive=True)
    async def read_machine(self) -> None:
        """Read the machine in a thread and tell everyone."""
        import asyncio

        self.machine_signal.publish(await asyncio.to_thread(self.services.machine))

    @work(group="profiles", exclusive=True)
    async def read_profiles(self) -> None:
        """Read the names of the profiles, newest first, and tell everyone."""
        import asyncio

        listed = await asyncio.to_thread(self.services.list_profiles)
        by_age = sorted(listed.profiles, key=lambda p: p.created.timestamp() if p.created else 0.0, reverse=True)
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
        if status.state is EngineState.READY and self._opens_chat:
            self._opens_chat = False
            if self.current_mode in _FOLLOWING_MODES and len(self.screen_stack) == 1 and self.has_mode("chat"):
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
        self.snapshot_signal.publish(message.snapshot)

    # -- themes -----------------------------------------------------------------------------------------------

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """kt-tui's own colours for themes that do not set them."""
        return theming.variable_defaults(self.current_theme)

    @property
    def theme_names(self) -> tuple[str, ...]:
        """Our themes first, then those that come with Textual."""
        return (*self._own_themes, *sorted(set(self.available_themes) - set(self._own_themes)))

    def _register_themes(self) -> tuple[str, ...]:
        found = theming.load_themes([shipped("themes"), self.services.paths.config / "themes"])
        problems = list(found.problems)
        self._own_themes = tuple(theme.name for theme in found.themes)
        for theme in found.themes:
            self.register_theme(theme)
        wanted = str(self.services.config.get("ui.theme"))
        known = self.available_themes
        if wanted in known:
            self.theme = wanted
        else:
            problems.append(f"there is no theme {wanted!r} (ui.theme); the themes are {', '.join(self._own_themes)}")
            self.theme = next((name for name in (theming.DEFAULT_THEME, *self._own_themes) if name in known), "textual-dark")
        return tuple(problems)

    def use_theme(self, theme: Theme) -> None:
        """Register (or replace) a theme and show it."""
        self.register_theme(theme)
        self.theme = theme.name

    @work(group="theme", exclusive=True)
    async def action_use_theme(self, name: str) -> None:
        """Show a theme now and from now on."""
        import asyncio

        self.theme = name
        try:
            await asyncio.to_thread(self.services.set_config, "ui.theme", name)
        except KtError as error:
            self.say(f"The theme is used now, but not saved: {error}", "warning")

    def action_choose_theme(self) -> None:
        """List the themes in the palette."""
        from functools import partial

        commands = [(name, partial(self.action_use_theme, name)) for name in self.theme_names]
        self.search_commands(commands, placeholder="Theme")

    # -- modes and dialogs ------------------------------------------------------------------------------------

    def has_mode(self, name: str) -> bool:
        """Whether a mode is part of this installation."""
        return any(mode.name == name for mode in self.modes_shown)

    async def action_show_mode(self, name: str) -> None:
        """Show a mode, unless a dialog is open."""
        if len(self.screen_stack) == 1 and name != self.current_mode and self.has_mode(name):
            await self.switch_mode(name)

    async def action_show_mode_number(self, number: int) -> None:
        """Show a mode by its place in the tab bar."""
        if 0 < number <= len(self.modes_shown):
            await self.action_show_mode(self.modes_shown[number - 1].name)

    def action_help(self) -> None:
        """Help for what has the focus."""
        from kt_tui.ui.screens.help import HelpScreen, help_markdown

        if not isinstance(self.screen, HelpScreen):
            self.push_screen(HelpScreen(help_markdown(self.screen)))

    def action_jump(self) -> None:
        """Put a letter on everything that can take the focus."""
        from kt_tui.ui.screens.jump import JumpScreen, targets

        if len(self.screen_stack) == 1:
            self.push_screen(JumpScreen(targets(self.screen)), self._jump_to)

    def _jump_to(self, widget: Widget | None) -> None:
        if widget is not None:
            widget.focus()

    def action_picture(self) -> None:
        """Save the screen as an SVG file."""
        folder = self.services.paths.state / "pictures"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self.say(f"Saved {self.save_screenshot(path=str(folder))}")
        except OSError as error:
            self.say(f"The picture could not be saved: {error}", "error")

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
        self.start(LaunchRequest(profile.model, profile=name, engine=profile.engine, extra=profile.extra))

    def action_start_again(self) -> None:
        """Start what was started last, or the demo."""
        self.start(self.last_request or self.opening or LaunchRequest(DEMO_MODEL))

    @work(group="engine")
    async def start(self, request: LaunchRequest, *, force: bool = False) -> None:
        """Make the model if needed and launch it; the chat opens when it answers."""
        if self.engine_status.state.active:
            self.say(f"{self.engine_status.model} is running; stop it first (F5)", "warning")
            return
        self.last_request = request
        self._opens_chat = True
        try:
            await self.starter.launch(request, force=force)
        except KtError as error:
            self._opens_chat = False
            self.say(str(error), "error")

    @work(group="prepare")
    async def prepare(self, name: str, *, verify: bool = False) -> None:
        """Make, mend or verify a model."""
        try:
            if verify:
                problems = await self.starter.verify(name)
                self.say("; ".join(problems) if problems else f"{name} is sound", "error" if problems else "information")
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
            [Answer("cancel", "Let it run"), Answer("stop", "Stop it", "error")],
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
            left = ", ".join(f"{one.name} ({one.pid})" for one in report.survivors) or "the port is still open"
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
                    Answer("keep", "Leave it running"),
                    Answer("stop", "Stop it and leave", "error"),
                ],
            )
            answer = await self.push_screen_wait(question)
            if answer == "keep":
                await self.services.supervisor.keep_running()
            elif answer != "stop" or not await self._stop_engine():
                return
        self.exit(0)

    def get_key_display(self, binding: Binding) -> str:
        """Short names for keys: ``enter``, ``esc``, ``^o``."""
        names = {"escape": "esc", "space": "space", "enter": "enter", "slash": "/"}
        return names.get(binding.key) or super().get_key_display(binding)
