"""The launch form: values with origins, inline problems, plan, command, start, profiles."""

from __future__ import annotations

import shlex
import time
from dataclasses import replace

import pytest
from textual.widgets import Button, Input, Static

from kt_tui.chat import Metrics
from kt_tui.config import load_config, set_value
from kt_tui.launch.schema import SCHEMA, parameters_for
from kt_tui.monitor.snapshot import ProcessSample
from kt_tui.paths import Paths
from kt_tui.profiles import Conditions, Profile, delete_profile, load_profile
from kt_tui.services import LaunchRequest
from kt_tui.supervise.types import EngineState
from kt_tui.ui.app import KtApp
from kt_tui.ui.screens.dialogs import Ask, AskText
from kt_tui.ui.screens.launch import LaunchScreen
from kt_tui.ui.widgets.choice import Choice
from kt_tui.ui.widgets.paramform import ParameterForm, ParameterRow, typed_problem
from tests.ui.panel_helpers import GIB, MACHINE, PanelServices, calm, settled, snapshot, toasts, wait_until


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


@pytest.mark.parametrize("state", [EngineState.STARTING, EngineState.LOADING])
async def test_enter_again_while_it_loads_does_nothing(services: PanelServices, state: EngineState) -> None:
    services.prepared = True
    app = KtApp(services, LaunchRequest("demo"))
    async with app.run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        assert app.focused is app.screen.query_one("#start", Button)
        await pilot.press("enter")
        await wait_until(pilot, lambda: services.supervisor.started)
        services.supervisor.play(state, phase="weights")
        await calm(pilot)
        await pilot.press("enter", "enter", "space")
        await calm(pilot)
        assert isinstance(app.screen, LaunchScreen)
        assert len(services.supervisor.started) == 1
        # And when it has ended, Enter starts again.
        services.supervisor.play(EngineState.FAILED, pid=None, reason="out of memory")
        await wait_until(pilot, lambda: app.focused is app.screen.query_one("#start", Button))


async def test_enter_again_while_the_model_is_made_does_nothing(services: PanelServices) -> None:
    services.may_finish.clear()
    app = KtApp(services, LaunchRequest("demo"))
    async with app.run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        await pilot.press("enter")
        await wait_until(pilot, lambda: app.activity is not None and app.starter.busy)
        await pilot.press("enter", "enter")
        await wait_until(pilot, lambda: app.screen.query_one("#start", Button).disabled)
        assert isinstance(app.screen, LaunchScreen)
        await pilot.press("f5")
        await wait_until(pilot, lambda: "Making demo is under way; wait for it, or press Esc" in toasts(app))
        services.may_finish.set()
        await wait_until(pilot, lambda: services.supervisor.started)
        assert len(services.supervisor.started) == 1


@pytest.mark.parametrize("key", ["f5", "enter"])
async def test_a_second_start_on_home_leaves_the_first_alone(services: PanelServices, key: str) -> None:
    services.may_finish.clear()
    services.save_profile(Profile("other", "smollm2"))
    app = KtApp(services)
    async with app.run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        app.start(LaunchRequest("demo", {"cpu-threads": 2}))
        await wait_until(pilot, lambda: app.starter.busy and app.activity is not None)
        if key == "enter":
            app.screen.query_one("#profile-list").focus()
        await pilot.press(key, key)
        await wait_until(pilot, lambda: "Making demo is under way" in toasts(app))
        assert app.last_request == LaunchRequest("demo", {"cpu-threads": 2})
        services.may_finish.set()
        await wait_until(pilot, lambda: services.supervisor.started)
        argv = services.supervisor.started[0].argv
        assert argv[argv.index("--cpu-threads") + 1] == "2"
        assert len(services.supervisor.started) == 1
        # The chat still opens for the first one, although a second was asked for meanwhile.
        services.supervisor.play(EngineState.READY)
        await wait_until(pilot, lambda: app.current_mode == "chat")


async def test_f5_on_home_asks_before_it_ends_a_running_engine(services: PanelServices) -> None:
    app = KtApp(services)
    async with app.run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        services.supervisor.play(EngineState.LOADING, pid=1, model="demo", port=30000, host="127.0.0.1")
        await calm(pilot)
        await pilot.press("f5")
        await wait_until(pilot, lambda: isinstance(app.screen, Ask) and app.screen.is_attached)
        await pilot.press("f5", "escape")
        await calm(pilot)
        assert (services.supervisor.started, services.supervisor.stopped) == ([], 0)
        assert len(app.screen_stack) == 1


async def test_the_arguments_of_a_profile_are_given_once(services: PanelServices) -> None:
    services.prepared = True
    services.save_profile(Profile("p", "demo", extra=("--verbose",)))
    app = KtApp(services)
    async with app.run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        await app.action_start_profile("p").wait()
        await wait_until(pilot, lambda: services.supervisor.started)
        assert services.supervisor.started[0].argv.count("--verbose") == 1


def question(app: KtApp) -> str:
    return str(app.screen.query_one(".dialog > Static", Static).content)


async def test_saving_shows_what_is_stored(services: PanelServices) -> None:
    app = KtApp(
        services, LaunchRequest("demo", {"cpu-threads": 2, "api-key": "hush"}, extra=("--hf-token=hush",))
    )
    async with app.run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        await pilot.press("ctrl+s")
        await wait_until(pilot, lambda: isinstance(app.screen, AskText) and app.screen.is_attached)
        text = question(app)
        assert "model    demo\n" in text
        assert "engine   embedded\n" in text
        assert "options  --cpu-threads 2\n" in text
        assert "engine's --hf-token=(hidden)\n" in text
        assert "measured nothing yet" in text
        assert "left out --api-key, a secret" in text
        assert "hush" not in text


async def test_what_the_running_engine_has_shown_is_stored_with_the_launch_that_it_is(
    services: PanelServices, kt_paths: Paths
) -> None:
    services.prepared = True
    app = KtApp(services, LaunchRequest("demo", {"cpu-threads": 2}))
    async with app.run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        await pilot.press("f5")
        await wait_until(pilot, lambda: services.supervisor.started)
        services.supervisor.play(EngineState.READY, started_at=time.time() - 100)
        services.sampler.publish(
            snapshot(at=500.0, process=ProcessSample(1, 1, 9 * GIB, None, 1))
        )  # before its start
        services.sampler.publish(snapshot(at=1000.0, process=ProcessSample(1, 1, 3 * GIB, None, 1)))
        services.sampler.publish(snapshot(at=1001.0, process=ProcessSample(1, 1, 2 * GIB, None, 1)))
        await wait_until(
            pilot, lambda: app.current_mode == "chat" and app.snapshot and app.snapshot.time == 1001.0
        )
        app.last_metrics = Metrics(ttft_s=0.25, tpot_s=0.05, tokens_per_s=20.0)
        await app.action_show_mode("launch")
        await wait_until(pilot, lambda: app.current_mode == "launch" and app.screen.is_attached)
        await pilot.press("ctrl+s")
        await wait_until(pilot, lambda: isinstance(app.screen, AskText) and app.screen.is_attached)
        assert (
            "measured decode 20.0 tokens/s\n         first token after 0.25 s\n         peak memory 3.00 GiB"
            in question(app)
        )
        await pilot.press(*"fast", "enter")
        await wait_until(pilot, lambda: "fast" in app.profile_names)
        saved = load_profile(kt_paths, "fast")
        assert {key: value for key, value in saved.measured.items() if key != "at"} == {
            "tokens_per_s": 20.0,
            "ttft_s": 0.25,
            "peak_memory_bytes": 3 * GIB,
        }
        assert saved.conditions.machine["cores"] == 4
        # Another launch than the one that runs was not measured.
        app.screen.query_one("#field-port", Input).focus()
        await pilot.press(*"31234", "ctrl+s")
        await wait_until(pilot, lambda: isinstance(app.screen, AskText) and app.screen.is_attached)
        assert "measured nothing yet" in question(app)


async def test_a_profile_that_was_made_on_other_hardware_is_told_in_the_form(services: PanelServices) -> None:
    services.save_profile(
        Profile("fast", "demo", conditions=Conditions("0" * 16, {"cpu": "Xeon", "gpus": "none"}))
    )
    app = KtApp(services, LaunchRequest("demo", profile="fast"))
    async with app.run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        await wait_until(
            pilot, lambda: "saved on other hardware" in str(app.screen.query_one("#checks", Static).content)
        )


async def test_a_profile_that_is_gone_meanwhile_is_a_sentence_when_saving(services: PanelServices) -> None:
    services.save_profile(Profile("fast", "demo"))
    app = KtApp(services, LaunchRequest("demo", profile="fast"))
    async with app.run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        delete_profile(services.paths, "fast")
        await pilot.press("ctrl+s")
        await wait_until(pilot, lambda: "there is no profile 'fast'" in toasts(app))
        assert isinstance(app.screen, LaunchScreen)
