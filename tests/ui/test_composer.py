from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from textual import events
from textual.app import App, ComposeResult
from textual.pilot import Pilot

from kt_tui.ui.widgets.composer import Completions, Composer, Prompt
from kt_tui.ui.widgets.pastes import FOLD_CHARACTERS, Pastes
from tests.ui.chat_helpers import wait_until


class Host(App[None]):
    def __init__(self) -> None:
        super().__init__()
        self.sent: list[str] = []

    def compose(self) -> ComposeResult:
        yield Composer()

    def on_prompt_submitted(self, event: Prompt.Submitted) -> None:
        self.sent.append(event.text)
        self.query_one(Prompt).taken()


@asynccontextmanager
async def open_composer() -> AsyncIterator[tuple[Host, Prompt, Pilot[Any]]]:
    app = Host()
    async with app.run_test(size=(80, 24)) as pilot:
        prompt = app.query_one(Prompt)
        prompt.focus()
        await pilot.pause()
        yield app, prompt, pilot


async def send(pilot: Pilot[Any], app: Host, text: str) -> None:
    count = len(app.sent)
    await pilot.press(*text, "enter")
    await wait_until(pilot, lambda: len(app.sent) > count)


async def test_enter_sends_and_empties_the_field() -> None:
    async with open_composer() as (app, prompt, pilot):
        await send(pilot, app, "hello")
        assert app.sent == ["hello"]
        assert prompt.text == ""


async def test_nothing_but_spaces_is_not_sent() -> None:
    async with open_composer() as (app, prompt, pilot):
        await pilot.press("space", "enter")
        await pilot.pause(0.1)
        assert app.sent == []
        assert prompt.text == " "


async def test_new_line_keys() -> None:
    async with open_composer() as (app, prompt, pilot):
        await pilot.press("a", "ctrl+j", "b", "shift+enter", "c", "alt+enter", "d")
        assert prompt.text == "a\nb\nc\nd"
        await send(pilot, app, "")
        assert app.sent == ["a\nb\nc\nd"]


async def test_up_in_an_empty_field_brings_back_what_was_sent() -> None:
    async with open_composer() as (app, prompt, pilot):
        await send(pilot, app, "one")
        await send(pilot, app, "two")
        await pilot.press("up")
        assert prompt.text == "two"
        await pilot.press("up")
        assert prompt.text == "one"
        await pilot.press("down", "down")
        assert prompt.text == ""
        await pilot.press("x", "up")
        assert prompt.text == "x"


async def test_a_paste_keeps_its_lines_and_does_not_send() -> None:
    async with open_composer() as (app, prompt, pilot):
        prompt.post_message(events.Paste("one\rtwo\r\nthree"))
        await wait_until(pilot, lambda: prompt.text)
        assert prompt.text == "one\ntwo\nthree"
        assert app.sent == []


async def test_a_huge_paste_is_one_mark_and_is_sent_whole() -> None:
    text = "\n".join(f"你好 line {number} [b]" for number in range(60_000))
    assert len(text) > 1_000_000
    async with open_composer() as (app, prompt, pilot):
        prompt.post_message(events.Paste(text))
        await wait_until(pilot, lambda: prompt.text)
        assert prompt.text.startswith("[paste 1: 60,000 lines, ")
        await pilot.press(*" ok", "enter")
        await wait_until(pilot, lambda: app.sent)
        assert app.sent == [text + " ok"]


async def test_keys_faster_than_any_hand_are_a_paste() -> None:
    async with open_composer() as (app, prompt, pilot):
        for character in "one\rtwo\rthree":
            key = "enter" if character == "\r" else character
            prompt.post_message(events.Key(key, character))
        await wait_until(pilot, lambda: prompt.text.endswith("three"))
        assert prompt.text == "one\ntwo\nthree"
        assert app.sent == []


async def test_a_line_that_arrives_at_once_with_its_enter_is_sent() -> None:
    async with open_composer() as (app, prompt, pilot):
        for character in "hello\r":
            prompt.post_message(events.Key("enter" if character == "\r" else character, character))
        await wait_until(pilot, lambda: app.sent)
        assert app.sent == ["hello"]


async def test_commands_are_offered_and_completed() -> None:
    async with open_composer() as (app, prompt, pilot):
        completions = app.query_one(Completions)
        await pilot.press("/")
        await wait_until(pilot, lambda: completions.display)
        assert completions.option_count == 6
        await pilot.press("r", "e")
        await wait_until(pilot, lambda: completions.option_count == 1)
        await pilot.press("tab")
        await wait_until(pilot, lambda: not completions.display)
        assert prompt.text == "/retry"
        await send(pilot, app, "")
        assert app.sent == ["/retry"]


async def test_a_command_is_chosen_with_the_arrows_and_run_with_enter() -> None:
    async with open_composer() as (app, prompt, pilot):
        await pilot.press("/")
        await wait_until(pilot, lambda: prompt.completing)
        await pilot.press("down", "down", "up", "enter")
        await wait_until(pilot, lambda: app.sent)
        assert app.sent == ["/clear"]


async def test_escape_closes_the_offer_and_leaves_the_text() -> None:
    async with open_composer() as (_app, prompt, pilot):
        await pilot.press("/", "h")
        await wait_until(pilot, lambda: prompt.completing)
        await pilot.press("escape")
        await wait_until(pilot, lambda: not prompt.completing)
        assert prompt.text == "/h"


async def test_a_command_with_an_argument_waits_for_it() -> None:
    async with open_composer() as (_app, prompt, pilot):
        await pilot.press(*"/sys")
        await wait_until(pilot, lambda: prompt.completing)
        await pilot.press("enter")
        await wait_until(pilot, lambda: not prompt.completing)
        assert prompt.text.startswith("/system")


def test_pastes_fold_by_size_and_unfold_in_place() -> None:
    pastes = Pastes()
    big = "x" * (FOLD_CHARACTERS + 1)
    assert pastes.fold("small") == "small"
    first, second = pastes.fold(big), pastes.fold(big + "y")
    assert first != second
    assert pastes.expand(f"a {second} b {first}") == f"a {big}y b {big}"
    pastes.clear()
    assert pastes.expand(first) == first
