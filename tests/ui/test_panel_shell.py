"""Modes, tab bar, help, jump mode, palette, sizes, quitting."""

from __future__ import annotations

from dataclasses import replace

import pytest
from textual.command import CommandPalette
from textual.widgets import Button, Input, Static

from kt_tui.config import load_config
from kt_tui.paths import Paths
from kt_tui.services import LaunchRequest
from kt_tui.supervise.types import EngineState, EngineStatus
from kt_tui.ui.app import KtApp
from kt_tui.ui.screens.dialogs import Ask
from kt_tui.ui.screens.help import HelpScreen
from kt_tui.ui.screens.jump import JumpScreen, labels
from kt_tui.ui.widgets.footer import KeyFooter
from kt_tui.ui.widgets.statusbar import StatusBar
from tests.ui.panel_helpers import BUSY, PanelServices, settled, snapshot, toasts, wait_until

READY = EngineStatus(
    EngineState.READY, "ready", 1.0, "", "", 4242, "127.0.0.1", 30000, "demo", "embedded", 900.0, 960.0
)


async def test_digits_show_the_modes_in_the_order_of_the_tab_bar(services: PanelServices) -> None:
    app = KtApp(services)
    async with app.run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        assert app.current_mode == "home"
        for key, mode in (("2", "models"), ("3", "launch"), ("4", "monitor"), ("1", "home")):
            await pilot.press(key)
            await wait_until(pilot, lambda mode=mode: app.current_mode == mode)
            assert app.screen.query_one(f"#tab-{mode}").has_class("-current")


async def test_digits_type_into_a_field_and_alt_digits_still_switch(services: PanelServices) -> None:
    app = KtApp(services, LaunchRequest("demo"))
    async with app.run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        field = app.screen.query_one("#field-cpu-threads", Input)
        field.focus()
        await pilot.press("2")
        assert (field.value, app.current_mode) == ("2", "launch")
        await pilot.press("alt+4")
        await wait_until(pilot, lambda: app.current_mode == "monitor")


async def test_a_click_on_a_tab_shows_its_mode(services: PanelServices) -> None:
    app = KtApp(services)
    async with app.run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        await pilot.click("#tab-models")
        await wait_until(pilot, lambda: app.current_mode == "models")


async def test_the_footer_shows_at_most_six_keys_and_f1(services: PanelServices) -> None:
    app = KtApp(services)
    async with app.run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        for mode in ("models", "launch", "monitor", "chat", "logs"):
            await app.action_show_mode(mode)
            await wait_until(pilot, lambda: len(app.screen.query("FooterKey")) > 1)
            keys = list(app.screen.query_one(KeyFooter).query("FooterKey"))
            assert len(keys) <= 7
            assert keys[-1].has_class("help-key")
            assert sum(key.region.width for key in keys) <= 120


async def test_f1_explains_the_focused_widget_and_its_keys(services: PanelServices) -> None:
    app = KtApp(services, LaunchRequest("demo"))
    async with app.run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        app.screen.query_one("#field-cpu-threads", Input).focus()
        await pilot.press("f1")
        await wait_until(pilot, lambda: isinstance(app.screen, HelpScreen) and app.screen.is_attached)
        help_screen = app.screen
        assert isinstance(help_screen, HelpScreen)
        assert "--cpu-threads" in help_screen._markdown
        assert any("Save as profile" in str(what) for _, what in help_screen._keys)
        await pilot.press("escape")
        await wait_until(pilot, lambda: not isinstance(app.screen, HelpScreen))


async def test_jump_mode_focuses_the_widget_under_the_typed_letter(services: PanelServices) -> None:
    app = KtApp(services, LaunchRequest("demo"))
    async with app.run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        await pilot.press("ctrl+o")
        await wait_until(pilot, lambda: isinstance(app.screen, JumpScreen) and app.screen.is_attached)
        jump = app.screen
        assert isinstance(jump, JumpScreen)
        letter, (widget, region) = next(
            (letter, place) for letter, place in jump._by_label.items() if place[0].id == "field-port"
        )
        marks = {str(mark.content): mark.region.offset for mark in jump.query(".jump-label").results(Static)}
        assert marks[letter] == region.offset
        await pilot.press(letter)
        await wait_until(pilot, lambda: app.screen.focused is widget)


def test_jump_labels_are_distinct_and_of_one_length() -> None:
    for count in (0, 1, 26, 27, 200):
        made = labels(count)
        assert len(set(made)) == count
        assert len({len(label) for label in made}) <= 1


async def test_the_palette_finds_modes_and_themes(services: PanelServices) -> None:
    app = KtApp(services)
    async with app.run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        await pilot.press("ctrl+p")
        await wait_until(pilot, lambda: isinstance(app.screen, CommandPalette))
        await pilot.press(*"monitor")
        await wait_until(
            pilot,
            lambda: app.screen.query("CommandList") and app.screen.query_one("CommandList").option_count,
        )
        await pilot.press("enter")
        await wait_until(pilot, lambda: app.current_mode == "monitor")


@pytest.mark.parametrize(
    ("size", "present"),
    [((120, 40), "-wide"), ((100, 30), "-medium"), ((80, 24), "-normal"), ((60, 16), "-narrow")],
)
async def test_each_mode_lays_out_at_each_size(
    services: PanelServices, size: tuple[int, int], present: str
) -> None:
    app = KtApp(services)
    async with app.run_test(size=size) as pilot:
        await settled(pilot)
        services.sampler.publish(snapshot(**BUSY))
        for mode in app.modes_shown:
            await app.action_show_mode(mode.name)
            await pilot.pause()
            assert app.screen.has_class(present)
            body = app.screen.query_one(".mode-body")
            assert body.region.height == size[1] - 3
            assert not app.screen.query_one(".too-small").display


@pytest.mark.parametrize("width", [60, 63, 64, 80, 120])
async def test_every_tab_can_be_seen_at_every_width(services: PanelServices, width: int) -> None:
    app = KtApp(services)
    async with app.run_test(size=(width, 24)) as pilot:
        await settled(pilot)
        last = app.screen.query("Tab").last()
        await wait_until(pilot, lambda: last.region.right <= width)
        assert last.region.width > len("6 ")


async def test_too_small_a_terminal_gets_a_hint_and_recovers(services: PanelServices) -> None:
    app = KtApp(services)
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        for small in ((59, 24), (80, 15), (20, 4), (1, 1)):
            await pilot.resize_terminal(*small)
            await wait_until(pilot, lambda: app.screen.query_one(".too-small").display)
            assert not app.screen.query_one(".mode-body").display
        await pilot.resize_terminal(80, 24)
        await wait_until(pilot, lambda: app.screen.query_one(".mode-body").display)


async def test_quitting_without_an_engine_does_not_ask(services: PanelServices) -> None:
    app = KtApp(services)
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await pilot.press("ctrl+q")
        await wait_until(pilot, lambda: not app.is_running)
    assert app.return_value == 0
    assert (services.supervisor.closed, services.sampler.running) == (1, False)


@pytest.mark.parametrize(
    ("answer", "stopped", "kept", "left"),
    [("stop", 1, False, True), ("keep", 0, True, True), ("cancel", 0, False, False)],
)
async def test_quitting_with_an_engine_asks(
    services: PanelServices, answer: str, stopped: int, kept: bool, left: bool
) -> None:
    app = KtApp(services)
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        services.supervisor.status = READY
        services.supervisor.play(EngineState.READY)
        await pilot.press("ctrl+q")
        await wait_until(pilot, lambda: isinstance(app.screen, Ask) and app.screen.is_attached)
        app.screen.query_one(f"#{answer}", Button).press()
        if left:
            await wait_until(pilot, lambda: not app.is_running)
        else:
            await wait_until(pilot, lambda: not isinstance(app.screen, Ask))
            assert app.is_running
    assert (services.supervisor.stopped, services.supervisor.kept) == (stopped, kept)


async def test_f5_asks_before_it_stops_the_engine(services: PanelServices) -> None:
    app = KtApp(services)
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        services.supervisor.status = READY
        services.supervisor.play(EngineState.READY)
        await pilot.press("f5")
        await wait_until(pilot, lambda: isinstance(app.screen, Ask) and app.screen.is_attached)
        await pilot.press("escape")
        await wait_until(pilot, lambda: not isinstance(app.screen, Ask))
        assert services.supervisor.stopped == 0
        await pilot.press("f5")
        await wait_until(pilot, lambda: isinstance(app.screen, Ask) and app.screen.is_attached)
        app.screen.query_one("#stop", Button).press()
        await wait_until(pilot, lambda: services.supervisor.stopped == 1)


async def test_a_stop_that_leaves_something_is_said(services: PanelServices) -> None:
    from kt_tui.supervise.types import StopReport, Survivor

    app = KtApp(services)
    services.supervisor.report = StopReport(gone=False, survivors=(Survivor(77, "python"),))
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        services.supervisor.status = READY
        services.supervisor.play(EngineState.READY)
        await pilot.press("f5")
        await wait_until(pilot, lambda: isinstance(app.screen, Ask) and app.screen.is_attached)
        app.screen.query_one("#stop", Button).press()
        await wait_until(pilot, lambda: "python (77)" in toasts(app))


async def test_a_kept_engine_is_found_again(services: PanelServices) -> None:
    services.supervisor.kept_engine = replace(READY, kept=True)
    app = KtApp(services)
    async with app.run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        await wait_until(pilot, lambda: app.engine_status.state is EngineState.READY)
        assert "demo" in toasts(app)
        assert app.current_mode == "home"  # found, not started from here: nobody waits for the chat


async def test_the_status_line_follows_engine_and_figures(services: PanelServices) -> None:
    app = KtApp(services)
    async with app.run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        bar = app.screen.query_one(StatusBar)
        assert "no engine" in bar.render().plain
        services.supervisor.play(EngineState.LOADING, phase="weights", progress=0.42, model="demo", pid=1)
        await wait_until(pilot, lambda: "loading demo weights 42%" in bar.render().plain)
        services.supervisor.play(EngineState.READY, phase="ready", progress=None)
        services.sampler.publish(snapshot(**BUSY))
        await wait_until(pilot, lambda: "18.4 tok/s" in bar.render().plain)
        assert "14.0 GiB of 64.0 GiB" in bar.render().plain
        assert bar.render().cell_length <= bar.size.width


async def test_equal_figures_do_not_repaint_the_status_line(
    services: PanelServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = KtApp(services)
    async with app.run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        services.sampler.publish(snapshot())
        await pilot.pause()
        bar = app.screen.query_one(StatusBar)
        repaints: list[object] = []
        monkeypatch.setattr(bar, "refresh", lambda *a, **k: repaints.append(a))
        services.sampler.publish(snapshot(at=1001.0))
        await pilot.pause()
        assert repaints == []
        services.sampler.publish(snapshot(at=1002.0, **BUSY))
        await wait_until(pilot, lambda: repaints)


async def test_text_from_outside_is_never_markup(services: PanelServices) -> None:
    app = KtApp(services)
    nasty = "[bold]x[/bold] [/] [@click=app.quit]y[/]"
    async with app.run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        app.say(nasty)
        services.supervisor.play(EngineState.FAILED, reason=nasty, model=nasty)
        await wait_until(pilot, lambda: nasty in app.screen.query_one("#step-text", Static).content)
        assert nasty in toasts(app)
        await pilot.pause()
        assert app.is_running


async def test_a_launch_option_of_the_settings_that_does_not_exist_is_told(
    services: PanelServices, kt_paths: Paths
) -> None:
    kt_paths.config.mkdir(parents=True)
    kt_paths.config_file.write_text("[launch]\ncpu-threds = 4\n")
    services.config = load_config(kt_paths, {})
    app = KtApp(services)
    async with app.run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        await wait_until(pilot, lambda: "there is no launch option --cpu-threds" in toasts(app))
        assert any("cpu-threds" in alert for alert in app.alerts)
