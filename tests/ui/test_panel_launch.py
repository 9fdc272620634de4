"""The launch form: values with origins, inline problems, plan, command, start, profiles."""

from __future__ import annotations

import shlex
from dataclasses import replace

import pytest
from textual.widgets import Button, Input, Static

from kt_tui.config import load_config, set_value
from kt_tui.launch.schema import SCHEMA, parameters_for
from kt_tui.paths import Paths
from kt_tui.profiles import load_profile
from kt_tui.services import LaunchRequest
from kt_tui.supervise.types import EngineState
from kt_tui.ui.app import KtApp
from kt_tui.ui.screens.dialogs import Ask, AskText
from kt_tui.ui.screens.launch import LaunchScreen
from kt_tui.ui.widgets.choice import Choice
from kt_tui.ui.widgets.paramform import ParameterForm, ParameterRow, typed_problem
from tests.ui.panel_helpers import GIB, MACHINE, PanelServices, calm, settled, toasts, wait_until


def row(app: KtApp, name: str) -> ParameterRow:
    return app.screen.query_one(f"#row-{name}", ParameterRow)


def shown(app: KtApp, name: str, part: str) -> str:
    return str(row(app, name).query_one(f".{part}", Static).content)


def launch_screen(app: KtApp) -> LaunchScreen:
    assert isinstance(app.screen, LaunchScreen)
    return app.screen


async def test_the_form_has_a_row_for_each_parameter_of_the_engine(services: PanelServices) -> None:
    app = KtApp(services, LaunchRequest("demo"))
    async with app.run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        rows = [one.parameter for one in app.screen.query_one(ParameterForm).rows]
        assert rows == list(parameters_for("embedded"))


async def test_each_value_shows_where_it_comes_from(services: PanelServices, kt_paths: Paths) -> None:
    set_value(kt_paths, "launch.max-running-requests", "7")
    services.config = load_config(kt_paths, {})
    app = KtApp(services, LaunchRequest("demo", {"port": 31000}))
    async with app.run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        await wait_until(pilot, lambda: launch_screen(app).plan is not None)
        assert shown(app, "cpu-threads", "origin") == "hardware"
        assert row(app, "cpu-threads").query_one(Input).placeholder == "4"
        assert shown(app, "max-running-requests", "origin") == "config"
        assert shown(app, "chunked-prefill-size", "origin") == "default"
        assert (shown(app, "port", "origin"), shown(app, "port", "mark")) == ("set here", "•")
        assert shown(app, "host", "mark") == ""


async def test_the_command_follows_every_keystroke(services: PanelServices) -> None:
    app = KtApp(services, LaunchRequest("demo"))
    async with app.run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        app.screen.query_one("#field-port", Input).focus()
        await pilot.press(*"31234")
        await wait_until(pilot, lambda: launch_screen(app).plan and launch_screen(app).plan.port == 31234)
        command = str(app.screen.query_one("#command", Static).content)
        plan = launch_screen(app).plan
        assert plan is not None
        # What is shown is, to a shell, exactly what is run.
        words = shlex.split(command.replace("\\\n", " "))
        assert [word for word in words if "=" not in word or word.startswith("-")] == list(plan.argv)
        await pilot.press(*["backspace"] * 5)
        await wait_until(pilot, lambda: launch_screen(app).plan and launch_screen(app).plan.port == 30000)
        assert shown(app, "port", "mark") == ""


async def test_a_bad_value_is_told_under_its_field_while_typing(services: PanelServices) -> None:
    app = KtApp(services, LaunchRequest("demo"))
    async with app.run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        app.screen.query_one("#field-port", Input).focus()
        await pilot.press(*"70000")
        await wait_until(pilot, lambda: row(app, "port").has_class("-invalid"))
        assert "at most 65535" in shown(app, "port", "help")
        await pilot.press(*["backspace"] * 5, *"x")
        await wait_until(pilot, lambda: "whole number" in shown(app, "port", "help"))
        await pilot.press("f5")
        await wait_until(pilot, lambda: "port" in toasts(app))
        assert services.supervisor.started == []
        await pilot.press("backspace")
        await wait_until(pilot, lambda: not row(app, "port").has_class("-invalid"))


@pytest.mark.parametrize("parameter", SCHEMA, ids=lambda parameter: parameter.name)
def test_an_empty_field_is_never_a_problem_and_garbage_never_an_exception(parameter) -> None:  # type: ignore[no-untyped-def]
    assert typed_problem(parameter, "") is None
    assert typed_problem(parameter, "   ") is None
    for text in ("-1", "9" * 40, "\x1b[31m", "é", "auto", "[/]", "1e3"):
        assert typed_problem(parameter, text) is None or isinstance(typed_problem(parameter, text), str)


async def test_start_runs_what_the_form_says(services: PanelServices) -> None:
    services.prepared = True
    app = KtApp(services, LaunchRequest("demo", {"cpu-threads": 2}, extra=("--verbose",)))
    async with app.run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        await pilot.press("f5")
        await wait_until(pilot, lambda: services.supervisor.started)
        argv = services.supervisor.started[0].argv
        assert argv[argv.index("--cpu-threads") + 1] == "2"
        assert argv[-1] == "--verbose"
        plan = launch_screen(app).plan
        assert plan is not None
        assert argv == plan.argv


async def test_too_little_memory_asks_and_only_then_starts(services: PanelServices) -> None:
    services.prepared = True
    services._read_machine = lambda: replace(
        MACHINE, memory=replace(MACHINE.memory, total=1 * GIB, available=GIB // 8)
    )
    app = KtApp(services, LaunchRequest("demo"))
    async with app.run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        await wait_until(
            pilot, lambda: app.screen.query_one("#launch-fit").border_title == "Memory: does not fit"
        )
        assert app.screen.query_one("#launch-checks").has_class("-bad")
        await pilot.press("f5")
        await wait_until(pilot, lambda: isinstance(app.screen, Ask) and app.screen.is_attached)
        await pilot.press("escape")
        await wait_until(pilot, lambda: isinstance(app.screen, LaunchScreen))
        assert services.supervisor.started == []
        await pilot.press("f5")
        await wait_until(pilot, lambda: isinstance(app.screen, Ask) and app.screen.is_attached)
        app.screen.query_one("#yes", Button).press()
        await wait_until(pilot, lambda: services.supervisor.started)


async def test_the_form_is_saved_as_a_profile_and_offered(services: PanelServices, kt_paths: Paths) -> None:
    app = KtApp(services, LaunchRequest("demo", {"cpu-threads": 2}))
    async with app.run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        await pilot.press("ctrl+s")
        await wait_until(pilot, lambda: isinstance(app.screen, AskText) and app.screen.is_attached)
        await pilot.press(*"a/b")
        await wait_until(pilot, lambda: str(app.screen.query_one("#problem", Static).content))
        await pilot.press("enter")
        assert isinstance(app.screen, AskText)  # a bad name does not close the question
        await pilot.press("backspace", "backspace", *"fast", "enter")
        await wait_until(pilot, lambda: "afast" in app.profile_names)
        saved = load_profile(kt_paths, "afast")
        assert (saved.model, dict(saved.options)) == ("demo", {"cpu-threads": 2})
        await wait_until(pilot, lambda: "afast" in app.screen.query_one("#profile", Choice).options)


async def test_a_profile_is_never_replaced_unasked(services: PanelServices, kt_paths: Paths) -> None:
    from kt_tui.profiles import Profile

    services.save_profile(Profile("fast", "demo", options={"cpu-threads": 1}))
    app = KtApp(services, LaunchRequest("demo", {"cpu-threads": 2}))
    async with app.run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        await wait_until(pilot, lambda: app.profile_names)
        await pilot.press("ctrl+s")
        await wait_until(pilot, lambda: isinstance(app.screen, AskText) and app.screen.is_attached)
        await pilot.press(*"fast", "enter")
        await wait_until(pilot, lambda: isinstance(app.screen, Ask) and app.screen.is_attached)
        await pilot.press("escape")
        await wait_until(pilot, lambda: isinstance(app.screen, LaunchScreen))
        await calm(pilot)
        assert dict(load_profile(kt_paths, "fast").options) == {"cpu-threads": 1}


async def test_choosing_a_profile_fills_in_its_values(services: PanelServices) -> None:
    from kt_tui.profiles import Profile

    services.save_profile(Profile("fast", "demo", options={"cpu-threads": 1}))
    app = KtApp(services, LaunchRequest("demo"))
    async with app.run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        await wait_until(pilot, lambda: "fast" in app.screen.query_one("#profile", Choice).options)
        app.screen.query_one("#profile", Choice).focus()
        await pilot.press("right")
        await wait_until(pilot, lambda: shown(app, "cpu-threads", "origin") == "profile")
        assert row(app, "cpu-threads").query_one(Input).placeholder == "1"


async def test_enter_on_a_model_opens_its_form(services: PanelServices) -> None:
    app = KtApp(services)
    async with app.run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        await pilot.press("2")
        await wait_until(
            pilot,
            lambda: app.screen.query("#model-table") and app.screen.query_one("#model-table").row_count == 2,
        )
        await pilot.press("down", "enter")
        await wait_until(pilot, lambda: app.current_mode == "launch")
        await wait_until(pilot, lambda: app.screen.query_one("#model", Choice).value == "smollm2")
        await wait_until(pilot, lambda: "cut short" in str(app.screen.query_one("#checks", Static).content))


async def test_models_are_made_and_verified_from_the_list(services: PanelServices) -> None:
    app = KtApp(services)
    async with app.run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        await pilot.press("2")
        await wait_until(
            pilot,
            lambda: app.screen.query("#model-table") and app.screen.query_one("#model-table").row_count == 2,
        )
        await pilot.press("p")
        await wait_until(pilot, lambda: "demo is ready to start" in toasts(app))
        await wait_until(pilot, lambda: str(app.screen.chosen.state) == "complete")
        await pilot.press("down")
        await wait_until(pilot, lambda: app.screen.chosen.name == "smollm2")
        await pilot.press("v")
        await wait_until(pilot, lambda: "the file is cut short" in toasts(app))


async def test_start_is_off_while_an_engine_runs(services: PanelServices) -> None:
    app = KtApp(services, LaunchRequest("demo"))
    async with app.run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        services.supervisor.play(EngineState.READY, pid=1, model="demo", port=30000, host="127.0.0.1")
        await wait_until(pilot, lambda: app.screen.query_one("#start", Button).disabled)
        services.supervisor.play(EngineState.STOPPED, pid=None)
        await wait_until(pilot, lambda: not app.screen.query_one("#start", Button).disabled)
