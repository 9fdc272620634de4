"""From a fresh machine to the chat by pressing Enter; failures on the way."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
from textual.widgets import Button, OptionList, Static

from kt_tui.catalog import PrepareError
from kt_tui.profiles import Profile
from kt_tui.services import LaunchRequest
from kt_tui.supervise.types import EngineError, EngineState
from kt_tui.ui.app import KtApp
from kt_tui.ui.widgets.bars import PhaseBar
from kt_tui.ui.widgets.card import ProgressCard
from kt_tui.ui.widgets.composer import Prompt
from tests.ui.panel_helpers import PanelServices, settled, toasts, wait_until


@pytest.mark.parametrize("opening", [None, LaunchRequest("demo")])
async def test_enter_makes_the_demo_starts_it_and_opens_the_chat(
    services: PanelServices, opening: LaunchRequest | None
) -> None:
    services.may_finish.clear()
    app = KtApp(services, opening)
    async with app.run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        await wait_until(pilot, lambda: isinstance(app.focused, Button))
        await pilot.press("enter")
        card = app.screen.query_one(ProgressCard)
        await wait_until(pilot, lambda: card.has_class("-shown") and app.activity and app.activity.share)
        assert app.activity is not None
        assert app.activity.phase == "writing the weights"
        assert "120 MiB of 343 MiB" in app.activity.detail
        assert services.supervisor.started == []

        services.may_finish.set()
        await wait_until(pilot, lambda: services.supervisor.started)
        (spec,) = services.supervisor.started
        assert spec.argv[1:4] == ("-m", "engine", "serve")
        for share in (0.1, 0.6):
            services.supervisor.play(EngineState.LOADING, phase="weights", progress=share)
            await wait_until(
                pilot, lambda share=share: f"{share * 100:.0f}%" in card.query_one(PhaseBar).render().plain
            )
        services.supervisor.play(EngineState.READY, phase="ready", progress=1.0, ready_at=1.0)
        await wait_until(pilot, lambda: app.current_mode == "chat")
        await wait_until(pilot, lambda: isinstance(app.focused, Prompt))


async def test_a_user_who_went_elsewhere_is_not_pulled_to_the_chat(services: PanelServices) -> None:
    services.prepared = True
    app = KtApp(services)
    async with app.run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        app.action_start_model("demo")
        await wait_until(pilot, lambda: services.supervisor.started)
        await pilot.press("6")
        await wait_until(pilot, lambda: app.current_mode == "logs")
        services.supervisor.play(EngineState.READY)
        await wait_until(pilot, lambda: "demo is ready" in toasts(app))
        assert app.current_mode == "logs"


async def test_esc_cancels_the_making_of_a_model(services: PanelServices) -> None:
    services.may_finish.clear()
    app = KtApp(services)
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await wait_until(pilot, lambda: isinstance(app.focused, Button))
        await pilot.press("enter")
        await wait_until(pilot, lambda: app.activity is not None and app.activity.cancellable)
        await pilot.press("escape")
        await wait_until(pilot, lambda: app.activity is None)
        assert "cancelled" in toasts(app)
        assert services.supervisor.started == []
        await wait_until(pilot, lambda: app.screen.query_one("#next", Button).display)


async def test_a_model_that_cannot_be_made_is_said_and_the_panel_goes_on(
    services: PanelServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full_disk(*_: object) -> None:
        raise PrepareError("demo could not be made: no space left on /cache; 343 MiB are needed")

    monkeypatch.setattr(services, "prepare", full_disk)
    app = KtApp(services)
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        app.action_start_model("demo")
        await wait_until(pilot, lambda: "no space left" in toasts(app))
        assert app.activity is None
        assert not app.starter.busy


async def test_an_engine_that_cannot_be_started_is_said(
    services: PanelServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def taken(_: object) -> None:
        raise EngineError("Port 30000 is taken by another program; choose another port.")

    services.prepared = True
    monkeypatch.setattr(services.supervisor, "start", taken)
    app = KtApp(services)
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        app.action_start_model("demo")
        await wait_until(pilot, lambda: "Port 30000 is taken" in toasts(app))


async def test_a_crash_while_loading_becomes_the_next_step(services: PanelServices) -> None:
    services.prepared = True
    app = KtApp(services)
    async with app.run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        app.action_start_model("demo")
        await wait_until(pilot, lambda: services.supervisor.started)
        services.supervisor.play(EngineState.FAILED, reason="it was killed (signal 9), probably for memory")
        await wait_until(pilot, lambda: "signal 9" in app.screen.query_one("#step-text", Static).content)
        assert "signal 9" in "\n".join(app.alerts)
        button = app.screen.query_one("#next", Button)
        assert str(button.label) == "Start demo again"
        button.press()
        await wait_until(pilot, lambda: len(services.supervisor.started) == 2)


async def test_two_starts_at_once_start_one_engine(services: PanelServices) -> None:
    services.may_finish.clear()
    app = KtApp(services)
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        app.action_start_model("demo")
        await wait_until(pilot, lambda: app.starter.busy)
        app.action_start_model("demo")
        await wait_until(pilot, lambda: "is under way" in toasts(app))
        services.may_finish.set()
        await wait_until(pilot, lambda: services.supervisor.started)
        await pilot.pause(0.05)
        assert len(services.supervisor.started) == 1


async def test_a_saved_launch_is_the_next_step_and_starts_by_name(services: PanelServices) -> None:
    services.prepared = True
    services.save_profile(Profile("quick", "demo", options={"cpu-threads": 3}))
    app = KtApp(services)
    async with app.run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        await wait_until(pilot, lambda: app.screen.query_one("#profile-list", OptionList).option_count == 1)
        await wait_until(pilot, lambda: str(app.screen.query_one("#next", Button).label) == "Start quick")
        await pilot.press("enter")
        await wait_until(pilot, lambda: services.supervisor.started)
        argv = services.supervisor.started[0].argv
        assert argv[argv.index("--cpu-threads") + 1] == "3"


async def test_starting_runs_off_the_loop(services: PanelServices, monkeypatch: pytest.MonkeyPatch) -> None:
    """Finding, planning and making may take seconds; the panel must stay alive meanwhile."""
    threads: list[bool] = []
    for name in ("find_model", "plan", "prepare"):
        real = getattr(services, name)

        def watched(*arguments: object, _real=real, **named: object) -> object:  # type: ignore[no-untyped-def]
            threads.append(threading.current_thread() is threading.main_thread())
            return _real(*arguments, **named)

        monkeypatch.setattr(services, name, watched)
    app = KtApp(services)
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        app.action_start_model("demo")
        await wait_until(pilot, lambda: services.supervisor.started)
    assert threads
    assert not any(threads)


async def test_home_names_the_machine_and_says_that_no_gpu_is_normal(services: PanelServices) -> None:
    from kt_tui.ui.widgets.facts import Facts

    app = KtApp(services)
    async with app.run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        await wait_until(
            pilot, lambda: "EPYC 9654" in app.screen.query_one("#machine-facts", Facts).render().plain
        )
        text = app.screen.query_one("#machine-facts", Facts).render().plain
        assert "4 usable physical, 8 logical CPUs" in text
        assert "no NVIDIA driver" in text
        assert not app.screen.query_one("#alerts").display


async def test_broken_settings_are_an_alert_not_a_crash(services: PanelServices) -> None:
    services.config = replace(services.config, notes=("config.toml line 3, column 9: bad value",))
    app = KtApp(services)
    async with app.run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        await wait_until(pilot, lambda: app.screen.query_one("#alerts").display)
        assert "line 3, column 9" in str(app.screen.query_one("#alert-text", Static).content)
