"""Pictures of the screens with a fixed machine, fixed figures and a played engine.

A difference is shown by ``pytest --snapshot-report``; ``pytest --snapshot-update`` takes new pictures.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from textual.pilot import Pilot

from kt_tui.services import LaunchRequest
from kt_tui.supervise.types import EngineState
from kt_tui.ui.app import KtApp
from kt_tui.ui.widgets import statusbar
from tests.ui.panel_helpers import BUSY, PanelServices, calm, settled, snapshot, wait_until

SIZES = [(120, 40), (80, 24)]
Compare = Callable[..., bool]


class FrozenClock:
    """A clock that stands still two minutes after the engine was ready."""

    @staticmethod
    def time() -> float:
        return 1120.0


@pytest.fixture(autouse=True)
def still(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing blinks, nothing counts seconds, no path of this machine is shown."""
    import kt_tui.launch.command
    from kt_tui.ui.screens import home, monitor

    monkeypatch.setenv("TEXTUAL_ANIMATIONS", "none")
    monkeypatch.setattr(kt_tui.launch.command.sys, "executable", "/opt/kt/bin/python")
    for module in (statusbar, home, monitor):
        monkeypatch.setattr(module, "time", FrozenClock)


def run_before(services: PanelServices, mode: str, *, busy: bool) -> Callable[[Pilot[Any]], Awaitable[None]]:
    """Bring the app into ``mode``, with an idle machine or a working engine."""

    async def prepare(pilot: Pilot[Any]) -> None:
        app = pilot.app
        assert isinstance(app, KtApp)
        await settled(pilot)
        await app.action_show_mode(mode)
        if busy:
            services.supervisor.play(
                EngineState.READY,
                phase="ready",
                pid=4242,
                model="demo",
                host="127.0.0.1",
                port=30000,
                started_at=990.0,
                ready_at=1000.0,
            )
        for tick in range(60):
            speed = 18.4 if tick % 10 else 6.0
            figures = {**BUSY, "engine": figures_at(speed)} if busy else {}
            services.sampler.publish(snapshot(at=1000.0 + tick, **figures))
        await calm(pilot)
        if mode == "launch":
            await wait_until(pilot, lambda: app.screen.plan is not None)
        await pilot.pause()
        services.sampler.publish(services.sampler.latest or snapshot())
        await pilot.pause()

    return prepare


def figures_at(speed: float) -> Any:
    """The engine's figures at a speed."""
    return replace(BUSY["engine"], tokens_per_s=speed)


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
def test_home_of_a_fresh_machine(
    snap_compare: Compare, services: PanelServices, size: tuple[int, int]
) -> None:
    app = KtApp(services)
    assert snap_compare(app, terminal_size=size, run_before=run_before(services, "home", busy=False))


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
def test_launch_form(snap_compare: Compare, services: PanelServices, size: tuple[int, int]) -> None:
    app = KtApp(services, LaunchRequest("demo", {"cpu-threads": 2}))
    assert snap_compare(app, terminal_size=size, run_before=run_before(services, "launch", busy=False))


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
def test_monitor_of_a_working_engine(
    snap_compare: Compare, services: PanelServices, size: tuple[int, int]
) -> None:
    app = KtApp(services)
    assert snap_compare(app, terminal_size=size, run_before=run_before(services, "monitor", busy=True))


def test_models_in_daylight(snap_compare: Compare, services: PanelServices) -> None:
    services.set_config("ui.theme", "kt-light")
    app = KtApp(services)
    assert snap_compare(app, terminal_size=(120, 40), run_before=run_before(services, "models", busy=False))
