"""Bars, graphs, core strip, numbers in words, alerts, the monitor's content."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kt_tui.hardware.machine import Limits, Machine, Memory
from kt_tui.monitor.snapshot import CpuSample, EngineFigures, GpuSample, MemorySample, NodeSample
from kt_tui.supervise.types import EngineState, EngineStatus
from kt_tui.ui.alerts import alerts
from kt_tui.ui.app import KtApp
from kt_tui.ui.figures import duration, ids, rate, sentence, size, stopped
from kt_tui.ui.machine_text import machine_rows
from kt_tui.ui.monitor_text import gpu_content, memory_content, node_content
from kt_tui.ui.widgets.bars import cells_of
from kt_tui.ui.widgets.corestrip import CoreStrip
from kt_tui.ui.widgets.graph import Graph, braille_rows, nice_ceiling
from tests.ui.panel_helpers import BUSY, GIB, MACHINE, PanelServices, settled, snapshot, wait_until


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (None, "n/a"),
        (math.nan, "n/a"),
        (0, "0 B"),
        (999, "999 B"),
        (1000, "0.98 KiB"),
        (343 << 20, "343 MiB"),
        (int(6.25 * GIB), "6.25 GiB"),
        (64 * GIB, "64.0 GiB"),
        (1 << 40, "1.00 TiB"),
        (-3 * GIB, "-3.00 GiB"),
        (1 << 70, "1048576 PiB"),
    ],
)
def test_sizes_in_words(count: float | None, text: str) -> None:
    assert size(count) == text


def test_times_rates_and_lists_in_words() -> None:
    assert [duration(s) for s in (None, 0, 59.9, 60, 3725, 90000)] == [
        "n/a",
        "0 s",
        "59 s",
        "1 min",
        "1 h 02 min",
        "1 d 1 h",
    ]
    assert (rate(None), rate(18.44), rate(212.4)) == ("n/a tok/s", "18.4 tok/s", "212 tok/s")
    assert ids((3, 0, 1, 2, 8)) == "0-3,8"
    assert (sentence("it is"), stopped("it is."), sentence("")) == ("It is.", "it is.", "")


@given(
    st.lists(st.floats(0, 1e12, allow_nan=False), max_size=8),
    st.floats(0, 1e13, allow_nan=False),
    st.integers(0, 300),
)
def test_bars_never_overflow_and_show_every_part_while_there_is_room(
    values: list[float], total: float, width: int
) -> None:
    cells = cells_of(values, total, width)
    assert len(cells) == len(values)
    assert all(count >= 0 for count in cells)
    assert sum(cells) <= width
    if 0 < sum(values) <= total and len(values) * 2 <= width and all(v > total / width for v in values):
        assert all(cells)


@given(
    st.lists(st.none() | st.floats(0, 1e6, allow_nan=False), max_size=200),
    st.integers(1, 60),
    st.integers(1, 8),
)
def test_graphs_fill_their_box_exactly(values: list[float | None], width: int, height: int) -> None:
    top = nice_ceiling(max((v for v in values if v is not None), default=0.0))
    rows = braille_rows(values, width, height, top)
    assert [len(row) for row in rows] == [width] * height
    shown = [v for v in values[-2 * width :] if v is not None]
    assert any(row.strip() for row in rows) == bool(shown)


def test_a_rising_series_rises_to_the_right() -> None:
    # 0 is one dot of the base line, 25 % two dots, 50 % four, 100 % eight.
    assert braille_rows([0, 25, 50, 100], 2, 2, 100) == [" ⢸", "⣠⣿"]
    assert braille_rows([None, 100], 1, 1, 100) == ["⢸"]


@pytest.mark.parametrize(("value", "top"), [(0, 1), (0.3, 0.5), (1, 1), (18.4, 20), (51, 100), (2e6, 2e6)])
def test_scales_are_round(value: float, top: float) -> None:
    assert nice_ceiling(value) == pytest.approx(top)


@pytest.mark.parametrize("cpus", [1, 2, 8, 64, 256, 1024])
@pytest.mark.parametrize("width", [40, 80, 120])
async def test_the_core_strip_shows_every_core_within_its_box(cpus: int, width: int) -> None:
    from textual.app import App, ComposeResult

    from kt_tui.ui.theming import variable_defaults

    class Bare(App[None]):
        def get_theme_variable_defaults(self) -> dict[str, str]:
            return variable_defaults(self.current_theme)

        def compose(self) -> ComposeResult:
            yield CoreStrip()

    app = Bare()
    async with app.run_test(size=(width, 60)) as pilot:
        strip = app.query_one(CoreStrip)
        half = max(cpus // 2, 1)
        strip.group([(0, range(half)), (1, range(half, cpus))])
        strip.show([100.0 * (cpu % 2) for cpu in range(cpus)])
        await pilot.pause()
        lines = [strip.render_line(y) for y in range(strip.size.height)]
        assert all(line.cell_length == width for line in lines)
        text = "".join(line.text for line in lines)
        if "%" in text:
            assert text.count("%") == cpus
        else:
            assert text.count("▁") + text.count("█") == cpus
            assert strip.size.height <= 2 * -(-half // (width - 8)) + 1


def test_memory_is_split_into_words_that_add_up() -> None:
    text = memory_content(snapshot(), 60).plain
    assert "14.0 GiB used" in text
    assert "6.00 GiB page cache" in text
    assert "44.0 GiB free" in text
    assert "64.0 GiB in all" in text
    assert max(len(line) for line in text.split("\n")) <= 60
    assert memory_content(snapshot(memory=None, reasons={"memory": "no /proc"}), 60).plain == "no /proc"


def test_what_a_driver_refuses_is_left_out_not_guessed() -> None:
    gpus = (GpuSample(0, "H200", 140 * GIB, 62 * GIB, 61.0, 412.0, 64.0), GpuSample(1, "MIG 1g"))
    lines = gpu_content(snapshot(gpus=gpus), 60).plain.split("\n")
    assert lines[0] == "0 H200  61% busy  412 W  64 °C"
    assert "62.0 GiB of 140 GiB" in lines[1]
    assert lines[2] == "1 MIG 1g  n/a"
    assert gpu_content(snapshot(), 60).plain == "no NVIDIA driver"
    nodes = node_content(
        (NodeSample(0, 8 * GIB, 2 * GIB, 9 * GIB), NodeSample(1, 8 * GIB, 8 * GIB)), 60
    ).plain
    assert all(len(line) <= 60 for line in nodes.split("\n"))


def test_alerts_are_quiet_until_there_is_something() -> None:
    assert alerts(EngineStatus(), None) == ()
    assert alerts(EngineStatus(), snapshot(**BUSY)) == ()
    low = MemorySample(64 * GIB, GIB, 63 * GIB, 0, 0, 0)
    assert "nearly full" in alerts(EngineStatus(), snapshot(memory=low))[0]
    full = EngineFigures(4, 2, 8192, 8192, 1.0, 3.0)
    assert "key-value cache" in alerts(EngineStatus(), snapshot(engine=full))[0]
    assert alerts(EngineStatus(EngineState.FAILED, reason="x"), None, ("y",)) == ("The engine failed: x", "y")


async def test_the_monitor_freezes_and_goes_on(services: PanelServices) -> None:
    app = KtApp(services)
    async with app.run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        await app.action_show_mode("monitor")
        services.sampler.publish(snapshot(**BUSY))
        strip = app.screen.query_one(CoreStrip)
        await wait_until(pilot, lambda: strip._busy[:2] == (10.0, 90.0))
        await pilot.press("space")
        busy = CpuSample(99.0, (99.0,) * 8)
        services.sampler.publish(snapshot(at=1001.0, cpu=busy, **BUSY))
        await pilot.pause()
        assert strip._busy[:2] == (10.0, 90.0)
        assert "frozen" in str(app.screen.query_one("#cores").border_title)
        await pilot.press("space")
        await wait_until(pilot, lambda: strip._busy[0] == 99.0)
        title = str(app.screen.query_one("#history-tokens_per_s").border_title)
        assert "now 18.4" in title


async def test_the_monitor_draws_nothing_while_hidden_and_nothing_twice(
    services: PanelServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = KtApp(services)
    async with app.run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        await app.action_show_mode("monitor")
        services.sampler.publish(snapshot(**BUSY))
        graph = app.screen.query_one("#graph-cpu", Graph)
        strip = app.screen.query_one(CoreStrip)
        await wait_until(pilot, lambda: graph._values and graph.size.width)
        services.sampler.publish(snapshot(at=1000.5, **BUSY))  # now with the final sizes of the boxes
        await pilot.pause()
        drawn: list[object] = []
        for widget in (strip, app.screen.query_one("#memory-text"), app.screen.query_one("#engine-facts")):
            monkeypatch.setattr(widget, "refresh", lambda *a, _id=widget.id, **k: drawn.append(_id))
        services.sampler.publish(snapshot(at=1001.0, **BUSY))
        await pilot.pause()
        assert drawn == []
        await app.action_show_mode("home")
        await pilot.pause()
        services.sampler.publish(snapshot(at=1002.0, cpu=CpuSample(1.0, (1.0,) * 8), **BUSY))
        await pilot.pause()
        assert drawn == []


@pytest.mark.parametrize(
    ("machine", "shown"),
    [
        (MACHINE, None),
        (replace(MACHINE, memory=Memory(total=64 * GIB, available=GIB)), "1 error: see kt-tui doctor"),
        (
            replace(MACHINE, memory=Memory(64 * GIB, available=9 * GIB), limits=Limits(shm_size=1)),
            "2 warnings: see kt-tui doctor",
        ),
    ],
)
def test_home_counts_what_the_doctor_finds(machine: Machine, shown: str | None) -> None:
    assert dict(machine_rows(machine, None)).get("Doctor") == shown
