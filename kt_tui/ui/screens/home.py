"""Home: what this machine is, how the engine is doing, and the next step."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Button, OptionList, Static
from textual.widgets.option_list import Option

from kt_tui.errors import KtError
from kt_tui.supervise.types import EngineStatus
from kt_tui.ui.alerts import alerts
from kt_tui.ui.machine_text import machine_rows
from kt_tui.ui.monitor_text import engine_summary
from kt_tui.ui.nextstep import DEMO_MODEL, NextStep, next_step
from kt_tui.ui.screens.base import ModeScreen
from kt_tui.ui.widgets.card import ProgressCard
from kt_tui.ui.widgets.facts import Facts

if TYPE_CHECKING:
    from kt_tui.catalog import ModelEntry
    from kt_tui.hardware import Machine

MOST_PROFILES = 8
NO_PROFILES = "None yet. In Launch (3), ctrl+s saves one."


class HomeScreen(ModeScreen):
    """The first screen. Enter does the next step."""

    MODE = "home"
    CSS_PATH = "home.tcss"
    AUTO_FOCUS = "#next"
    HELP = "**Home** says what this machine is, how the engine is doing, and what to do next: press Enter for that."
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "app.cancel_activity", "Cancel", show=False),
        Binding("f5", "app.toggle_engine", "Start/stop", id="home.engine"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._entry: ModelEntry | None = None
        self._prepared = False
        self._step = NextStep("", "")

    def compose_body(self) -> ComposeResult:
        """Next step above; machine, alerts and saved launches below."""
        with VerticalScroll(id="home"):
            with Vertical(id="step", classes="box") as step:
                step.border_title = "Next step"
                yield Static("", id="step-title", markup=False)
                yield Static("", id="step-text", markup=False)
                yield ProgressCard()
                yield Button("", id="next", variant="primary", compact=True)
            with Vertical(id="alerts", classes="box") as box:
                box.border_title = "Alerts"
                yield Static("", id="alert-text", markup=False)
            with Horizontal(id="columns"):
                with Vertical(id="machine", classes="box") as machine:
                    machine.border_title = "This machine"
                    yield Facts(id="machine-facts")
                with Vertical(id="right-column"):
                    with Vertical(id="engine", classes="box") as engine:
                        engine.border_title = "Engine"
                        yield Facts(10, id="engine-facts")
                    with Vertical(id="profiles", classes="box") as profiles:
                        profiles.border_title = "Saved launches"
                        yield OptionList(id="profile-list", compact=True, markup=False)
                        yield Static(NO_PROFILES, id="no-profiles", markup=False)

    def on_mount(self) -> None:
        """Follow everything that the screen shows."""
        app = self.kt
        app.engine_status_signal.subscribe(self, lambda _: self._show_step())
        app.activity_signal.subscribe(self, self._activity_changed)
        app.machine_signal.subscribe(self, self._show_machine)
        app.profiles_signal.subscribe(self, self._show_profiles)
        app.snapshot_signal.subscribe(self, lambda _: self._show_figures())
        machine = self.services.known_machine
        if machine is not None:
            self._show_machine(machine)
        else:
            self.query_one("#machine-facts", Facts).show([("", "reading…")])
        self._show_profiles(app.profile_names)
        self._show_alerts()
        self._show_step()

    def on_screen_resume(self) -> None:
        """Models may have been made meanwhile."""
        self.call_after_refresh(self._look_up_model)

    def _activity_changed(self, activity: object) -> None:
        self._show_step()
        if activity is None:
            self._look_up_model()

    @property
    def _model(self) -> str:
        return self.kt.opening.model if self.kt.opening is not None else DEMO_MODEL

    @work(group="home-model", exclusive=True)
    async def _look_up_model(self) -> None:
        try:
            self._entry = await asyncio.to_thread(self.services.find_model, self._model)
            self._prepared = await asyncio.to_thread(self.services.is_prepared, self._entry)
        except KtError as error:
            self.kt.say(str(error), "error")
        else:
            if self.composed:
                self._show_step()

    def _show_step(self) -> None:
        app = self.kt
        profile = next(iter(app.profile_names), None)
        step = next_step(
            app.engine_status,
            app.activity,
            self._model,
            self._entry,
            prepared=self._prepared,
            profile=profile,
        )
        self._show_alerts()
        self.query_one("#engine-facts", Facts).show(engine_summary(app.engine_status, time.time()))
        if step == self._step:
            return
        self._step = step
        self.query_one("#step-title", Static).update(step.title)
        self.query_one("#step-text", Static).update(step.text)
        self.query_one("#step-text", Static).display = bool(step.text)
        button = self.query_one("#next", Button)
        button.label = Content(step.label)
        button.display = bool(step.label)
        if step.label and self.focused is None:
            button.focus()

    def _show_machine(self, machine: Machine) -> None:
        self.query_one("#machine-facts", Facts).show(machine_rows(machine, self.kt.snapshot))

    def _show_figures(self) -> None:
        machine = self.services.known_machine
        if machine is not None:
            self._show_machine(machine)
        self._show_step()

    def _show_alerts(self) -> None:
        # What the engine's failure was is the next step already.
        sentences = alerts(EngineStatus(), self.kt.snapshot, self.kt.notes)
        self.query_one("#alerts").display = bool(sentences)
        self.query_one("#alert-text", Static).update("\n".join(f"! {sentence}" for sentence in sentences))

    def _show_profiles(self, names: tuple[str, ...]) -> None:
        listed = self.query_one("#profile-list", OptionList)
        listed.clear_options()
        listed.add_options([Option(name, id=name) for name in names[:MOST_PROFILES]])
        listed.highlighted = 0 if names else None  # so that Enter starts one at once
        listed.display = bool(names)
        self.query_one("#no-profiles").display = not names
        self._show_step()

    async def on_button_pressed(self, event: Button.Pressed) -> None:
        """Do the step."""
        event.stop()
        if self._step.action:
            await self.app.run_action(self._step.action)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Start a saved launch."""
        self.kt.action_start_profile(str(event.option_id))
