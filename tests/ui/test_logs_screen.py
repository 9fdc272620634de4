from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from textual.geometry import Offset
from textual.pilot import Pilot
from textual.selection import Selection
from textual.widgets import Input, Static

from kt_tui.supervise.types import EngineState
from kt_tui.ui.logmodel import Level
from kt_tui.ui.screens.logs import shorten
from kt_tui.ui.widgets.logview import LogView
from tests.ui.chat_helpers import READY, BareLogs, PanelApp, wait_until

LOG_PATH = Path("/var/log/engines/demo.log")


class Logs:
    def __init__(self, app: PanelApp, pilot: Pilot[Any]) -> None:
        self.app, self.pilot = app, pilot

    @property
    def view(self) -> LogView:
        return self.app.screen.query_one(LogView)

    @property
    def state(self) -> str:
        return str(self.app.screen.query_one("#logs-state", Static).content)

    @property
    def rows(self) -> list[str]:
        return [self.view.render_line(y).text.rstrip() for y in range(self.view.size.height)]

    async def print(self, text: str) -> None:
        log = self.app.services.supervisor.log
        log.feed(text.encode())
        await wait_until(self.pilot, lambda: not self.view._waiting)

    async def wait(self, condition: Any) -> None:
        await wait_until(self.pilot, condition)


@asynccontextmanager
async def open_logs(home: Path, size: tuple[int, int] = (100, 20), before: str = "") -> AsyncIterator[Logs]:
    app = PanelApp(BareLogs(), home, replace(READY, log_path=LOG_PATH, started_at=1.0))
    app.services.supervisor.log.feed(before.encode())
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        yield Logs(app, pilot)


def numbered(count: int, first: int = 0) -> str:
    return "".join(f"line {number}\n" for number in range(first, first + count))


async def test_what_was_printed_before_and_after_opening_is_shown(tmp_path: Path) -> None:
    async with open_logs(tmp_path, before="early\n") as logs:
        await logs.print("late\n")
        await logs.wait(lambda: logs.rows[1].endswith("late"))
        assert logs.rows[0].endswith("early")
        assert "2 lines" in logs.state
        assert str(LOG_PATH) in logs.state


async def test_a_ring_with_replaced_lines_is_shown_whole(tmp_path: Path) -> None:
    async with open_logs(tmp_path, before="first\n\rLoad 1%\rLoad 2%\n") as logs:
        await logs.wait(lambda: logs.rows[1].endswith("Load 2%"))
        assert logs.rows[0].endswith("first")


async def test_it_follows_until_scrolled_up(tmp_path: Path) -> None:
    async with open_logs(tmp_path) as logs:
        await logs.print(numbered(100))
        await logs.wait(lambda: logs.rows[-1:] and logs.rows[-1].endswith("line 99"))
        await logs.pilot.press("pageup")
        await logs.wait(lambda: not logs.view.follow)
        before = logs.rows
        await logs.print(numbered(100, 100))
        assert logs.rows == before
        assert "stopped, G follows" in logs.state
        await logs.pilot.press("G")
        await logs.wait(lambda: logs.rows[-1:] and logs.rows[-1].endswith("line 199"))


async def test_lines_that_leave_at_the_front_do_not_move_what_is_read(tmp_path: Path) -> None:
    async with open_logs(tmp_path) as logs:
        await logs.print(numbered(10_000))
        await logs.wait(lambda: len(logs.view.model) == 10_000)
        await logs.pilot.press("pageup", "pageup")
        await logs.wait(lambda: not logs.view.follow)
        before = logs.rows
        await logs.print(numbered(500, 10_000))
        await logs.wait(lambda: logs.view.model.removed == 500)
        assert logs.rows == before
        # The line above the log is drawn a moment later.
        await logs.wait(lambda: "500 older only in the file" in logs.state)


async def test_filtering_by_typing(tmp_path: Path) -> None:
    async with open_logs(tmp_path) as logs:
        await logs.print(numbered(50) + "WARNING odd\n")
        await logs.pilot.press("slash", *"line 4\\d$")
        await logs.wait(lambda: len(logs.view.model.shown) == 10)
        await logs.pilot.press("enter")
        assert logs.app.focused is logs.view
        assert "10 shown" in logs.state
        await logs.pilot.press("f")
        assert len(logs.view.model.shown) == 51
        await logs.pilot.press("escape")
        assert logs.view.model.pattern is None
        assert logs.app.screen.query_one(Input).value == ""


async def test_brackets_in_a_filter_and_in_lines_are_only_text(tmp_path: Path) -> None:
    async with open_logs(tmp_path) as logs:
        await logs.print("[/some/path] [bold]x[/bold]\n[@click=app.quit]y[/]\n")
        await logs.pilot.press("slash", *"[/so")
        await logs.wait(lambda: len(logs.view.model.shown) == 1)
        assert logs.rows[0].endswith("[/some/path] [bold]x[/bold]")
        assert "text [/so" in logs.state


async def test_levels_and_the_first_error(tmp_path: Path) -> None:
    async with open_logs(tmp_path) as logs:
        await logs.print(
            numbered(30) + "WARNING w\nValueError: cause\n" + numbered(30) + "RuntimeError: later\n"
        )
        await logs.pilot.press("x")
        await logs.wait(lambda: any(row.endswith("ValueError: cause") for row in logs.rows))
        assert not logs.view.follow
        assert "2 errors" in logs.state
        await logs.pilot.press("l")
        assert logs.view.model.threshold is Level.WARNING
        assert [row[10:] for row in logs.rows[:3]] == [
            "WARNING w",
            "ValueError: cause",
            "RuntimeError: later",
        ]
        await logs.pilot.press("l")
        assert len(logs.view.model.shown) == 2
        await logs.pilot.press("l")
        assert len(logs.view.model.shown) == 63


async def test_n_goes_from_match_to_match(tmp_path: Path) -> None:
    async with open_logs(tmp_path) as logs:
        await logs.print(numbered(300))
        await logs.pilot.press("slash", *"line .00$", "enter", "f", "g", "n")
        current = [logs.view.current]
        await logs.pilot.press("n")
        current.append(logs.view.current)
        await logs.pilot.press("N")
        current.append(logs.view.current)
        assert [row.line.text for row in current if row] == ["line 100", "line 200", "line 100"]


async def test_long_lines_are_cut_or_wrapped(tmp_path: Path) -> None:
    async with open_logs(tmp_path, size=(70, 20)) as logs:
        await logs.print("a" * 150 + "\nnext\n")
        assert logs.rows[1].endswith("next")
        await logs.pilot.press("right")
        assert logs.rows[1].endswith(" next"[8:]) or "next" not in logs.rows[1]
        await logs.pilot.press("w")
        await logs.wait(lambda: logs.view.wrapped)
        assert logs.rows[3].endswith("next")
        assert sum(row.count("a") for row in logs.rows) == 150


async def test_wide_characters_keep_every_row_as_wide_as_the_widget(tmp_path: Path) -> None:
    async with open_logs(tmp_path, size=(61, 20)) as logs:
        await logs.print("你好世界" * 40 + "\n\U0001f468\u200d\U0001f469\u200d\U0001f467 x\ne\u0301\n")
        for key in ("w", "w", "right"):
            await logs.pilot.press(key)
            for y in range(logs.view.size.height):
                strip = logs.view.render_line(y)
                assert strip.cell_length == sum(part.cell_length for part in strip) == logs.view.size.width


async def test_a_selection_copies_lines_without_the_clock_and_without_wraps(tmp_path: Path) -> None:
    async with open_logs(tmp_path, size=(70, 20)) as logs:
        await logs.print("first\n" + "b" * 100 + "\nlast\n")
        logs.app.screen.selections = {logs.view: Selection(Offset(2, 0), Offset(2, 2))}
        await logs.pilot.press("ctrl+c")
        assert logs.app.copied == ["rst\n" + "b" * 100 + "\nla"]
        await logs.pilot.press("w")
        logs.app.screen.selections = {logs.view: Selection(None, None)}
        await logs.pilot.press("ctrl+c")
        assert logs.app.copied[1] == "first\n" + "b" * 100 + "\nlast"


async def test_a_mouse_drag_selects_log_text(tmp_path: Path) -> None:
    async with open_logs(tmp_path) as logs:
        await logs.print("some words\n")
        await logs.pilot.mouse_down(logs.view, offset=(10, 0))
        await logs.pilot.hover(logs.view, offset=(13, 0))
        await logs.pilot.mouse_up(logs.view, offset=(13, 0))
        assert logs.app.screen.get_selected_text() == "some"


async def test_y_copies_what_the_filter_shows(tmp_path: Path) -> None:
    async with open_logs(tmp_path) as logs:
        await logs.print("one\ntwo\nthree\n")
        await logs.pilot.press("slash", *"t", "enter", "y")
        await logs.wait(lambda: logs.app.copied)
        assert logs.app.copied == ["two\nthree"]


async def test_a_new_engine_begins_a_new_log(tmp_path: Path) -> None:
    async with open_logs(tmp_path, before="old\n") as logs:
        log = logs.app.services.supervisor.log
        log.clear()
        log.feed(b"new\n")
        logs.app.engine(replace(READY, state=EngineState.STARTING, started_at=2.0))
        await logs.wait(lambda: [row.line.text for row in logs.view.model] == ["new"])


async def test_a_flood_is_drawn_in_few_frames_and_bounded(tmp_path: Path) -> None:
    async with open_logs(tmp_path) as logs:
        log, flushes = logs.app.services.supervisor.log, 0
        real = logs.view.flush

        def counting() -> None:
            nonlocal flushes
            flushes += 1
            real()

        logs.view.flush = counting  # type: ignore[method-assign]
        for start in range(0, 50_000, 100):
            log.feed(numbered(100, start).encode())
        await logs.wait(lambda: logs.rows[-1:] and logs.rows[-1].endswith("line 49999"))
        assert flushes < 20
        assert len(logs.view.model) == 10_000
        assert "40,000 older only in the file" in logs.state


async def test_an_empty_log_says_what_will_be_here(tmp_path: Path) -> None:
    async with open_logs(tmp_path) as logs:
        assert logs.app.screen.has_class("-empty")
        await logs.pilot.press("x", "n", "w", "l", "G", "g", "y")
        await logs.print("line\n")
        await logs.wait(lambda: not logs.app.screen.has_class("-empty"))


def test_paths_are_shortened_from_the_front() -> None:
    assert shorten(Path("/a/b/c.log"), 40) == "/a/b/c.log"
    assert shorten(Path("/a/very/long/path/to/the.log"), 14) == "…th/to/the.log"
    assert shorten(Path("/a/b"), 5) == ""
    assert shorten(Path.home() / "x", 40) == "~/x"
