"""Measured speeds of launches, kept by the services and told by the next plan."""

from __future__ import annotations

import pytest

from kt_tui.hardware.fingerprint import fingerprint
from kt_tui.launch.record import read_measured
from kt_tui.services import LaunchRequest
from kt_tui.supervise.types import EngineState
from tests.ui.panel_helpers import MACHINE, PanelServices


def test_what_a_launch_reached_is_told_by_the_next_plan(services: PanelServices) -> None:
    before = services.plan(LaunchRequest("demo")).speed["decode"]
    ceiling = before["ceiling_tokens_per_s"]
    assert ceiling is not None
    assert before["error"] is None
    services.supervisor.play(EngineState.READY, model="demo", engine="embedded")
    services.record_decode(ceiling / 4)
    (kept,) = read_measured(services.paths)
    assert (kept.model, kept.hardware, kept.what) == ("demo", fingerprint(MACHINE), "decode")
    after = services.plan(LaunchRequest("demo")).speed["decode"]
    assert after["expected_tokens_per_s"] == pytest.approx(ceiling / 4)
    assert after["error"]["runs"] == 1


@pytest.mark.parametrize(
    ("state", "model"),
    [(EngineState.READY, "another"), (EngineState.STOPPED, "demo"), (EngineState.IDLE, "demo")],
)
def test_only_the_planned_engine_that_runs_is_measured(
    services: PanelServices, state: EngineState, model: str
) -> None:
    services.plan(LaunchRequest("demo"))
    services.supervisor.play(state, model=model, engine="embedded")
    services.record_decode(10.0)
    assert read_measured(services.paths) == []
