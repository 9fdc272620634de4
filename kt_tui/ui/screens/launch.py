"""Launch: parameters with their origins, whether it fits, the exact command, start."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.timer import Timer
from textual.widgets import Button, Static

from kt_tui.errors import KtError
from kt_tui.launch.schema import EMBEDDED, parameters_for
from kt_tui.profiles import name_problem
from kt_tui.services import LaunchRequest
from kt_tui.ui.nextstep import DEMO_MODEL
from kt_tui.ui.plan_text import command_content, fit_words, memory_rows, messages, plan_parts
from kt_tui.ui.profile_text import stored_text
from kt_tui.ui.screens.base import ModeScreen
from kt_tui.ui.screens.dialogs import Answer, Ask, AskText
from kt_tui.ui.widgets.bars import StackBar
from kt_tui.ui.widgets.card import ProgressCard
from kt_tui.ui.widgets.choice import Choice
from kt_tui.ui.widgets.facts import Facts
from kt_tui.ui.widgets.paramform import ParameterForm

if TYPE_CHECKING:
    from kt_tui.launch import LaunchPlan

NO_PROFILE = "none"
DEBOUNCE = 0.15


class LaunchScreen(ModeScreen):
    """The form of one launch, planned again at each edit."""

    MODE = "launch"
    CSS_PATH = "launch.tcss"
    AUTO_FOCUS = "#start"
    HELP = (
        "**Launch** shows every parameter with the value in force and where it comes from. Type a value to set it, "
        "empty the field to take it back. A dot marks what you set. The memory bar, the checks and the command follow "
        "as you type; the command shown is the command that is run."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f5", "start", "Start", id="launch.start"),
        Binding("ctrl+s", "save", "Save as profile", id="launch.save"),
        Binding("c", "copy_command", "Copy command", id="launch.copy"),
        Binding("ctrl+r", "reset", "Reset", id="launch.reset"),
        Binding("escape", "app.cancel_activity", "Cancel", show=False),
    ]

    def __init__(self) -> None:
        super().__init__()
        self.plan: LaunchPlan | None = None
        self._model = DEMO_MODEL
        self._extra: tuple[str, ...] = ()
        self._engine: str | None = None
        self._timer: Timer | None = None

    def compose_body(self) -> ComposeResult:
        """Choice of model and profile; form; fit, checks and command; buttons."""
        with Container(id="launch"):
            with Vertical(id="launch-form", classes="box") as box:
                box.border_title = "Parameters"
                with Horizontal(id="launch-what"):
                    yield Static("Model", classes="what-label", markup=False)
                    yield Choice((self._model,), self._model, id="model")
                    yield Static("Profile", classes="what-label", markup=False)
                    yield Choice((NO_PROFILE,), NO_PROFILE, id="profile")
                yield ParameterForm(parameters_for(EMBEDDED), id="form")
            with Vertical(id="launch-side"):
                with Vertical(id="launch-fit", classes="box") as fit:
                    fit.border_title = "Memory"
                    yield StackBar(id="fit-bar")
                    yield Facts(16, id="fit-facts")
                with VerticalScroll(id="launch-checks", classes="box", can_focus=False) as checks:
                    checks.border_title = "Checks"
                    yield Static("", id="checks", markup=False)
                with VerticalScroll(id="launch-command", classes="box", can_focus=False) as command:
                    command.border_title = "Command"
                    yield Static("", id="command", markup=False)
        with Vertical(id="launch-foot"):
            yield ProgressCard()
            with Horizontal(id="launch-buttons"):
                yield Button("Start", id="start", variant="primary", compact=True)
                yield Button("Save as profile", id="save", compact=True)
                yield Static("", id="launch-word", markup=False)

    def on_mount(self) -> None:
        """Show what the command line asked for, if it did."""
        app = self.kt
        app.engine_status_signal.subscribe(self, lambda _: self._show_state())
        app.activity_signal.subscribe(self, lambda _: self._show_state())
        app.profiles_signal.subscribe(self, self._show_profiles)
        self._show_profiles(app.profile_names)
        self._list_models()
        self.show_request(app.opening or LaunchRequest(DEMO_MODEL))

    def on_screen_resume(self) -> None:
        """The machine's memory and the models may have changed meanwhile."""
        self._list_models()
        self.replan()
        self._show_state()

    # -- what is asked for ------------------------------------------------------------------------------------

    def show_request(self, request: LaunchRequest) -> None:
        """Fill the form from a request."""
        self._model, self._extra, self._engine = request.model, request.extra, request.engine
        self._offer("#model", self.query_one("#model", Choice).options, request.model)
        self._offer("#profile", self.query_one("#profile", Choice).options, request.profile or NO_PROFILE)
        self.query_one(ParameterForm).fill(request.options)
        self.plan = None
        self.replan()

    @property
    def request(self) -> LaunchRequest:
        """What the form asks for now."""
        profile = self.query_one("#profile", Choice).value
        options = self.query_one(ParameterForm).options()
        return LaunchRequest(
            self._model, options, self._extra, None if profile == NO_PROFILE else profile, self._engine
        )

    def _offer(self, selector: str, options: tuple[str, ...], value: str) -> None:
        choice = self.query_one(selector, Choice)
        choice.options = options if value in options else (*options, value)
        choice.value = value

    @work(group="launch-models", exclusive=True)
    async def _list_models(self) -> None:
        entries = await asyncio.to_thread(self.services.list_models)
        if self.composed:
            self._offer("#model", tuple(entry.name for entry in entries), self._model)

    def _show_profiles(self, names: tuple[str, ...]) -> None:
        choice = self.query_one("#profile", Choice)
        self._offer("#profile", (NO_PROFILE, *names), choice.value or NO_PROFILE)

    @on(Choice.Changed, "#model")
    def _model_changed(self, event: Choice.Changed) -> None:
        self._model, self.plan = event.value, None
        self.replan()

    @on(Choice.Changed, "#profile")
    def _profile_changed(self, event: Choice.Changed) -> None:
        self._take_profile(event.value)

    @work(group="launch-profile", exclusive=True)
    async def _take_profile(self, name: str) -> None:
        if name != NO_PROFILE:
            try:
                profile = await self.services.load_profile(name)
            except KtError as error:
                self.kt.say(str(error), "error")
            else:
                # The profile's own extra options are added by the plan.
                self._model, self._engine, self.plan = profile.model, profile.engine, None
                self._offer("#model", self.query_one("#model", Choice).options, profile.model)
        self.replan()

    # -- the plan ---------------------------------------------------------------------------------------------

    def on_parameter_form_edited(self) -> None:
        """Plan again shortly after the last keystroke."""
        if self._timer is not None:
            self._timer.stop()
        self._timer = self.set_timer(DEBOUNCE, self.replan)

    @work(group="plan", exclusive=True)
    async def replan(self) -> None:
        """Work the launch out in a thread and show it."""
        request = self.request
        try:
            plan = await asyncio.to_thread(self.services.plan, request, before=self.plan)
        except KtError as error:
            self.plan = None
            if self.composed:
                self.query_one("#checks", Static).update(f"✗ {error}")
        else:
            self.plan = plan
            if self.composed:
                self._show_plan(plan)

    def _show_plan(self, plan: LaunchPlan) -> None:
        problems = {error.parameter: error.text for error in plan.errors if error.parameter is not None}
        self.query_one(ParameterForm).show_plan(plan.parameters, problems)
        self.query_one("#fit-bar", StackBar).show(*plan_parts(plan))
        self.query_one("#fit-facts", Facts).show(memory_rows(plan))
        self.query_one("#launch-fit").border_title = fit_words(plan)
        self.query_one("#checks", Static).update(messages(plan))
        self.query_one("#command", Static).update(self._command(plan))
        checks = self.query_one("#launch-checks")
        checks.set_class(bool(plan.errors), "-bad")
        checks.set_class(not plan.errors and not plan.warnings, "-good")
        self._show_state()

    def _command(self, plan: LaunchPlan) -> Content:
        return command_content(
            plan, self.request.options, lines=self.has_class("-wide") and self.has_class("-tall")
        )

    def on_resize(self) -> None:
        """The command is laid out for the present size."""
        if self.plan is not None:
            self.query_one("#command", Static).update(self._command(self.plan))

    def _show_state(self) -> None:
        app = self.kt
        busy = app.activity is not None or app.engine_status.state.active
        start = self.query_one("#start", Button)
        if busy and start.has_focus:
            # Textual would give the focus to the next button, and a second Enter would press that one.
            self.set_focus(None)
        start.disabled = busy
        if not busy and self.focused is None and self.is_current:
            start.focus()
        word = ""
        if app.activity is not None or app.engine_status.state in {"starting", "loading", "stopping"}:
            word = ""
        elif app.engine_status.state == "ready":
            word = f"{app.engine_status.model} is ready: 5 opens the chat, F5 stops it"
        elif self.plan is not None and self.plan.errors:
            word = "the checks speak against it" if self.plan.blocking(force=True) else "starting asks first"
        self.query_one("#launch-word", Static).update(word)

    # -- actions ----------------------------------------------------------------------------------------------

    @on(Button.Pressed, "#start")
    def _start_pressed(self) -> None:
        self.action_start()

    @on(Button.Pressed, "#save")
    def _save_pressed(self) -> None:
        self.action_save()

    @work(group="launch-start", exclusive=True)
    async def action_start(self) -> None:
        """Start what the form asks for; ask first if only predictions speak against it."""
        app = self.kt
        if app.engine_status.state.active:
            app.action_toggle_engine()
            return
        if app.refuses_another_start():
            return
        request = self.request
        try:
            plan = await asyncio.to_thread(self.services.plan, request, before=self.plan)
        except KtError as error:
            app.say(str(error), "error")
            return
        self.plan = plan
        self._show_plan(plan)
        if facts := plan.blocking(force=True):
            app.say(str(facts[0]), "error")
            return
        if plan.errors:
            text = "\n".join(str(error) for error in plan.errors)
            question = Ask(
                "Start anyway?",
                text,
                [Answer("no", "Change something"), Answer("yes", "Start anyway", "warning")],
            )
            if await app.push_screen_wait(question) != "yes":
                return
        app.start(request, force=bool(plan.errors))

    @work(group="launch-save", exclusive=True)
    async def action_save(self) -> None:
        """Save the form by name."""
        app = self.kt
        request = self.request
        measured = app.measured if app.last_request == request else {}
        try:
            profile = await asyncio.to_thread(self.services.compose_profile, request, measured)
        except KtError as error:
            app.say(str(error), "error")
            return
        left_out = [key for key in request.options if key not in profile.options]
        name = await app.push_screen_wait(
            AskText(
                "Save as profile",
                "Name of the profile. It is listed on Home, and `--profile NAME` takes it on the command line. "
                f"It stores:\n\n{stored_text(profile, left_out)}",
                check=_name_check,
            )
        )
        if not name:
            return
        profile, overwrite = replace(profile, name=name), False
        if name in app.profile_names:
            answers = [Answer("no", "Keep it"), Answer("yes", "Replace it", "warning")]
            question = Ask("Replace the profile?", f"There is a profile {name}.", answers)
            if await app.push_screen_wait(question) != "yes":
                return
            overwrite = True
        try:
            await asyncio.to_thread(self.services.save_profile, profile, overwrite=overwrite)
        except KtError as error:
            app.say(str(error), "error")
            return
        app.say(f"Saved the profile {name}")
        app.read_profiles()

    def action_copy_command(self) -> None:
        """Copy the command, quoted for a shell."""
        if self.plan is not None:
            self.kt.copy(self.plan.preview)

    def action_reset(self) -> None:
        """Take every value back."""
        self._extra, self._engine = (), None
        self.query_one(ParameterForm).fill({})
        self.replan()


def _name_check(name: str) -> str | None:
    return name_problem(name.strip())
