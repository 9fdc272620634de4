from __future__ import annotations

from collections.abc import Iterator
from contextlib import asynccontextmanager
from typing import Any

from textual.app import App, ComposeResult
from textual.geometry import Offset
from textual.pilot import Pilot
from textual.selection import Selection

from kt_tui.ui.widgets.transcript import Answer, Entry, Kind, Transcript
from tests.ui.chat_helpers import wait_until
from tests.ui.transcript_cases import MARKDOWN, WIDE


class Host(App[None]):
    def compose(self) -> ComposeResult:
        yield Transcript()

    @property
    def transcript(self) -> Transcript:
        return self.query_one(Transcript)


@asynccontextmanager
async def open_transcript(size: tuple[int, int] = (80, 20)) -> Iterator[tuple[Transcript, Pilot[Any]]]:
    app = Host()
    async with app.run_test(size=size) as pilot:
        app.transcript.focus()
        await pilot.pause()
        yield app.transcript, pilot


def history(turns: int) -> list[Entry]:
    entries: list[Entry] = []
    for turn in range(turns):
        entries.append(Entry(Kind.USER, f"question {turn}"))
        entries.append(Answer(f"answer {turn}\n\n" + MARKDOWN[turn % len(MARKDOWN)], footer=f"footer {turn}"))
    return entries


def screen_rows(transcript: Transcript) -> list[str]:
    return [transcript.render_line(y).text.rstrip() for y in range(transcript.size.height)]


async def test_speakers_stand_in_the_margin_and_text_beside_them() -> None:
    async with open_transcript() as (transcript, _pilot):
        transcript.show([Entry(Kind.USER, "hello"), Answer("**Hi** there", footer="TTFT 1 s")])
        assert screen_rows(transcript)[:7] == [
            "",
            " you   hello",
            "",
            " kt    Hi there",
            "",
            "       TTFT 1 s",
            "",
        ]


async def test_it_follows_the_end_until_scrolled_up_and_again_at_the_end() -> None:
    async with open_transcript() as (transcript, pilot):
        transcript.show(history(20))
        answer = Answer()
        answer.streaming = True
        transcript.add(answer)
        assert transcript.follow
        await pilot.press("pageup")
        await pilot.pause()
        assert not transcript.follow
        before = screen_rows(transcript)
        for _ in range(50):
            answer.append("more text\n\n")
            transcript.update_rows(arrived=True)
        assert screen_rows(transcript) == before
        assert transcript.unseen
        await pilot.press("end")
        assert transcript.follow
        assert not transcript.unseen
        assert screen_rows(transcript)[-1] == "       more text"


async def test_the_end_of_a_finished_answer_is_in_view() -> None:
    async with open_transcript() as (transcript, _pilot):
        answer = Answer()
        answer.streaming = True
        transcript.show([Entry(Kind.USER, "go"), answer])
        answer.append("\n\n".join(MARKDOWN))
        transcript.update_rows(arrived=True)
        answer.footer = "TTFT 1 s"
        answer.finish()
        transcript.update_rows(arrived=True)
        assert screen_rows(transcript)[-1] == "       TTFT 1 s"


async def test_only_what_is_near_the_window_is_rendered() -> None:
    async with open_transcript() as (transcript, _pilot):
        transcript.show(history(250))
        rendered = sum(
            piece.lines is not None for entry in transcript.entries if entry.split for piece in entry.pieces
        )
        assert sum(entry.split for entry in transcript.entries) < 40
        assert rendered < 80


async def test_scrolling_up_through_guessed_heights_never_jumps() -> None:
    async with open_transcript() as (transcript, pilot):
        transcript.show(history(60))
        await pilot.pause()
        before = screen_rows(transcript)
        for _ in range(40):
            transcript.scroll_to(y=transcript.scroll_offset.y - 3)
            after = screen_rows(transcript)
            assert after[3:] == before[:-3]
            before = after


async def test_every_row_can_be_reached_once() -> None:
    async with open_transcript() as (transcript, pilot):
        transcript.show(history(30))
        await pilot.press("home")
        await pilot.pause()
        seen = screen_rows(transcript)
        while not transcript.follow:
            top = transcript.scroll_offset.y
            transcript.scroll_to(y=top + 7)
            moved = transcript.scroll_offset.y - top
            seen += screen_rows(transcript)[-moved:] if moved else []
        text = "\n".join(seen)
        for turn in range(30):
            assert text.count(f"question {turn}\n") == 1
            assert text.count(f"footer {turn}\n" if turn < 29 else f"footer {turn}") == 1


async def test_resizing_keeps_the_end_at_the_end_and_a_place_at_its_place() -> None:
    async with open_transcript() as (transcript, pilot):
        transcript.show(history(40))
        for size in ((60, 20), (120, 50), (40, 18), (80, 20)):
            await pilot.resize_terminal(*size)
            await wait_until(pilot, lambda size=size: transcript.size.width == size[0])
            assert transcript.follow
            assert screen_rows(transcript)[-1] == "       footer 39"
        await pilot.press("up", "up", "up", "up")
        await pilot.pause()
        top = next(row for row in screen_rows(transcript) if "question" in row)
        await pilot.resize_terminal(50, 20)
        await wait_until(pilot, lambda: transcript.size.width == 50)
        assert any(top.strip() in row for row in screen_rows(transcript))


async def test_every_painted_row_has_the_width_of_the_widget() -> None:
    async with open_transcript((47, 30)) as (transcript, _pilot):
        transcript.show([Answer("\n\n".join([*WIDE, *MARKDOWN])), Entry(Kind.USER, "\n".join(WIDE))])
        transcript.scroll_to(y=0)
        while True:
            for y in range(transcript.size.height):
                strip = transcript.render_line(y)
                assert (
                    strip.cell_length
                    == sum(segment.cell_length for segment in strip)
                    == transcript.size.width
                )
            if transcript.follow:
                break
            transcript.scroll_to(y=transcript.scroll_offset.y + 20)


async def test_a_selection_over_messages_copies_their_source_lines() -> None:
    async with open_transcript((50, 20)) as (transcript, pilot):
        question = "a question that is long enough to take two rows of the screen"
        transcript.show([Entry(Kind.USER, question), Answer("First.\n\n```py\nx = 1\n```", footer="TTFT")])
        transcript.screen.selections = {transcript: Selection(Offset(9, 1), Offset(60, 9))}
        await pilot.pause()
        assert transcript.screen.get_selected_text() == f"{question[2:]}\n\nFirst.\n\nx = 1"


async def test_dragging_with_the_mouse_selects() -> None:
    async with open_transcript() as (transcript, pilot):
        transcript.show([Entry(Kind.USER, "drag over these words")])
        await pilot.pause()
        await pilot.mouse_down(transcript, offset=(7, 1))
        await pilot.hover(transcript, offset=(15, 1))
        await pilot.mouse_up(transcript, offset=(15, 1))
        assert transcript.screen.get_selected_text() == "drag over"


async def test_a_selected_row_is_painted_in_the_selections_style_and_keeps_its_width() -> None:
    async with open_transcript() as (transcript, pilot):
        transcript.show([Answer("你好 **world**")])
        transcript.screen.selections = {transcript: Selection(None, None)}
        await pilot.pause()
        strip = transcript.render_line(1)
        chosen = transcript.screen.get_component_rich_style("screen--selection").bgcolor
        marked = [segment.text for segment in strip if segment.style and segment.style.bgcolor == chosen]
        assert "".join(marked) == "你好 world"
        assert strip.cell_length == transcript.size.width


async def test_the_cursor_moves_by_message() -> None:
    async with open_transcript() as (transcript, pilot):
        transcript.show(history(10))
        await pilot.press("up")
        assert transcript.cursor == 19
        await pilot.press("up", "k")
        assert transcript.cursor == 17
        await pilot.press("j")
        assert transcript.cursor == 18
        await pilot.press("down", "down")
        assert transcript.cursor is None
        assert transcript.follow
        await pilot.press("g")
        await pilot.pause()
        assert (transcript.cursor, transcript.scroll_offset.y) == (0, 0)
        assert screen_rows(transcript)[1] == "▌you   question 0"


async def test_reasoning_is_toggled_by_key_and_by_click() -> None:
    async with open_transcript() as (transcript, pilot):
        transcript.show([Answer("So.", "because", handle="thinking  1.0 s")])
        assert "       ▸ thinking  1.0 s" in screen_rows(transcript)[1].replace("kt ", "   ")
        await pilot.press("t")
        assert screen_rows(transcript)[2] == "         because"
        await pilot.click(transcript, offset=(10, 1))
        await pilot.pause()
        assert "because" not in "".join(screen_rows(transcript))


async def test_a_stream_repaints_only_the_rows_that_changed() -> None:
    async with open_transcript() as (transcript, pilot):
        answer = Answer()
        answer.streaming = True
        transcript.show([Entry(Kind.USER, "go"), answer])
        answer.append("First paragraph.\n\nSecond")
        transcript.update_rows(arrived=True)
        await pilot.pause()
        regions: list[Any] = []
        real = transcript.refresh
        transcript.refresh = lambda *given, **options: (regions.extend(given), real(*given, **options))[1]  # type: ignore[method-assign,assignment]
        answer.append(" part")
        transcript.update_rows(arrived=True)
        assert [(region.y, region.height) for region in regions] == [(5, 1)]


async def test_a_theme_change_restyles_and_keeps_the_place() -> None:
    async with open_transcript() as (transcript, pilot):
        transcript.show(history(20))
        await pilot.press("pageup")
        await pilot.pause()
        before, style = screen_rows(transcript), transcript.palette.text
        pilot.app.theme = "textual-light"
        await wait_until(pilot, lambda: transcript.palette.text != style)
        assert screen_rows(transcript) == before


async def test_a_megabyte_in_one_line_stays_responsive() -> None:
    async with open_transcript() as (transcript, pilot):
        answer = Answer()
        answer.streaming = True
        transcript.add(answer)
        for _ in range(20):
            answer.append("x" * 50_000)
            transcript.update_rows(arrived=True)
        answer.finish()
        transcript.update_rows(arrived=True)
        await pilot.pause()
        assert transcript.layout_rows.height < 600
        assert len(answer.content) == 1_000_000


async def test_an_empty_answer_and_an_empty_transcript_draw_nothing() -> None:
    async with open_transcript() as (transcript, pilot):
        transcript.show([Answer(), Entry(Kind.USER, "")])
        await pilot.press("up", "t", "y", "home", "end")
        transcript.show([])
        await pilot.press("up", "down", "t", "home", "end", "pageup")
        assert set(screen_rows(transcript)) == {""}
