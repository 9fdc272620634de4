from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from textual.pilot import Pilot
from textual.widgets import OptionList

from kt_tui.chat import ContentDelta, Finished, Message, Metrics, ReasoningDelta, Status, Usage
from kt_tui.chat.store import ChatStore
from kt_tui.supervise.types import EngineState, EngineStatus
from kt_tui.ui.screens.chat import ChatScreen
from kt_tui.ui.widgets.copypicker import CopyPicker, copy_choices
from kt_tui.ui.widgets.livestrip import LiveStrip
from kt_tui.ui.widgets.transcript import Answer, Entry, Kind
from tests.ui.chat_helpers import READY, BareChat, PanelApp, PlayedStream, wait_until

LOADING = EngineStatus(
    EngineState.LOADING, "weights", 0.42, "", "", pid=1, host="127.0.0.1", port=30000, model="demo"
)


class Chat:
    def __init__(self, app: PanelApp, stream: PlayedStream, pilot: Pilot[Any]) -> None:
        self.app, self.stream, self.pilot = app, stream, pilot

    @property
    def screen(self) -> ChatScreen:
        found = self.app.screen_stack[1]
        assert isinstance(found, ChatScreen)
        return found

    async def say(self, text: str) -> None:
        await self.pilot.press(*text)
        await self.pilot.press("enter")

    async def turn(self, question: str, answer: str) -> None:
        await self.say(question)
        self.stream.answer(answer)
        await wait_until(self.pilot, lambda: self.texts[-1:] == [answer] and not self.screen.controller.busy)

    @property
    def texts(self) -> list[str]:
        return [entry.content for entry in self.screen.transcript.entries]


@asynccontextmanager
async def open_chat(
    home: Path, status: EngineStatus = READY, size: tuple[int, int] = (120, 40)
) -> AsyncIterator[Chat]:
    stream = PlayedStream()
    app = PanelApp(BareChat(stream=stream), home, status)
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        yield Chat(app, stream, pilot)


async def test_a_question_is_typed_answered_and_measured(tmp_path: Path) -> None:
    async with open_chat(tmp_path) as chat:
        assert chat.screen.has_class("-empty")
        await chat.turn("hello", "Hi **there**.")
        assert not chat.screen.has_class("-empty")
        assert chat.texts == ["hello", "Hi **there**."]
        answer = chat.screen.transcript.entries[1]
        assert isinstance(answer, Answer)
        assert answer.footer == "TTFT 1.21 s · TPOT 54 ms · 18.4 tok/s · 212 in + 96 out"


async def test_the_speed_of_a_long_answer_is_kept_and_that_of_a_short_one_not(tmp_path: Path) -> None:
    async with open_chat(tmp_path) as chat:
        await chat.say("short")
        chat.stream.play(ContentDelta("Hi."), Finished("stop", Usage(20, 31), Metrics(1.0, 0.01, 99.0, 2.0)))
        await wait_until(chat.pilot, lambda: not chat.screen.controller.busy)
        await chat.turn("long", "A long answer.")
        await wait_until(chat.pilot, lambda: chat.app.services.decoded)
        assert chat.app.services.decoded == [18.4]


async def test_escape_stops_and_keeps_the_partial_answer(tmp_path: Path) -> None:
    async with open_chat(tmp_path) as chat:
        await chat.say("go")
        chat.stream.play(ContentDelta("part of it"))
        await wait_until(chat.pilot, lambda: chat.texts == ["go", "part of it"])
        await chat.pilot.press("escape")
        await wait_until(chat.pilot, lambda: not chat.screen.controller.busy)
        assert chat.stream.closed == 1
        assert chat.screen.controller.conversation.messages[1].status is Status.STOPPED
        await chat.turn("again", "fine")
        assert [message["content"] for message in chat.stream.requests[1]] == ["go", "part of it", "again"]


async def test_writing_goes_on_while_an_answer_streams(tmp_path: Path) -> None:
    async with open_chat(tmp_path) as chat:
        await chat.say("one")
        chat.stream.play(ContentDelta("first "))
        await chat.say("two")
        await wait_until(chat.pilot, lambda: chat.screen.controller.state.queued == ("two",))
        assert "1 waiting" in str(chat.screen.composer.prompt.border_title)
        chat.stream.answer("answer")
        chat.stream.answer("second answer")
        await wait_until(chat.pilot, lambda: chat.texts == ["one", "first answer", "two", "second answer"])


async def test_escape_gives_waiting_messages_back(tmp_path: Path) -> None:
    async with open_chat(tmp_path) as chat:
        await chat.say("one")
        chat.stream.play(ContentDelta("first"))
        await chat.say("two")
        await wait_until(chat.pilot, lambda: chat.screen.controller.state.queued)
        await chat.pilot.press("escape")
        await wait_until(chat.pilot, lambda: not chat.screen.controller.busy)
        assert chat.screen.composer.prompt.text == "two"
        assert len(chat.stream.requests) == 1


async def test_a_message_sent_while_loading_goes_out_when_ready(tmp_path: Path) -> None:
    async with open_chat(tmp_path, LOADING) as chat:
        assert "loading weights 42%" in str(chat.screen.composer.prompt.placeholder)
        await chat.say("early")
        await wait_until(chat.pilot, lambda: chat.screen.controller.state.queued == ("early",))
        assert "1 sent when ready" in str(chat.screen.composer.prompt.border_title)
        chat.app.engine(READY)
        chat.stream.answer("Hi")
        await wait_until(chat.pilot, lambda: chat.texts == ["early", "Hi"])


async def test_without_an_engine_the_text_stays_and_the_way_out_is_said(tmp_path: Path) -> None:
    async with open_chat(tmp_path, EngineStatus()) as chat:
        await chat.say("hello")
        await wait_until(chat.pilot, lambda: chat.app.said)
        assert "Launch" in chat.app.said[0]
        assert chat.screen.composer.prompt.text == "hello"
        assert chat.screen.controller.state.queued == ()


async def test_slash_commands(tmp_path: Path) -> None:
    async with open_chat(tmp_path) as chat:
        await chat.turn("hello", "Hi")
        await chat.say("/info")
        await wait_until(chat.pilot, lambda: chat.screen.transcript.entries[-1].kind is Kind.NOTE)
        assert "127.0.0.1:30000" in chat.texts[-1]
        await chat.say("/retry")
        chat.stream.answer("Hi again")
        await wait_until(chat.pilot, lambda: chat.texts == ["hello", "Hi again"])
        await chat.say("/clear")
        await wait_until(chat.pilot, lambda: len(chat.texts) == 1)
        assert chat.screen.controller.conversation.messages == ()


async def test_reasoning_folds_and_ctrl_t_shows_it(tmp_path: Path) -> None:
    async with open_chat(tmp_path) as chat:
        await chat.say("go")
        chat.stream.play(ReasoningDelta("because"))
        await wait_until(chat.pilot, lambda: "because" in chat.screen.transcript.entries[1].reasoning)  # type: ignore[attr-defined]
        chat.stream.answer("So.")
        await wait_until(chat.pilot, lambda: not chat.screen.controller.busy)
        answer = chat.screen.transcript.entries[1]
        assert isinstance(answer, Answer)
        assert answer.folded
        await chat.pilot.press("ctrl+t")
        assert not answer.folded


async def test_keys_of_the_conversation_copy_retry_and_edit(tmp_path: Path) -> None:
    async with open_chat(tmp_path) as chat:
        await chat.turn("hello", "Take:\n\n```sh\nls -l\n```\n")
        chat.screen.transcript.focus()
        await chat.pilot.press("y")
        await wait_until(chat.pilot, lambda: isinstance(chat.app.screen, CopyPicker))
        await chat.pilot.press("down", "enter")
        await wait_until(chat.pilot, lambda: chat.app.copied)
        assert chat.app.copied == ["ls -l"]
        await wait_until(chat.pilot, lambda: chat.app.screen is chat.screen)
        await chat.pilot.press("r")
        chat.stream.answer("Second")
        await wait_until(chat.pilot, lambda: chat.texts == ["hello", "Second"])
        await chat.pilot.press("e")
        assert chat.screen.composer.prompt.text == "hello"
        await chat.pilot.press(*" you", "enter")
        chat.stream.answer("Third")
        await wait_until(chat.pilot, lambda: chat.texts == ["hello you", "Third"])


async def test_ctrl_c_copies_a_selection_before_it_stops_anything(tmp_path: Path) -> None:
    async with open_chat(tmp_path) as chat:
        await chat.turn("some words here", "Hi")
        await chat.say("more")
        chat.stream.play(ContentDelta("stream"))
        await wait_until(chat.pilot, lambda: chat.texts[-1:] == ["stream"])
        await chat.pilot.mouse_down(chat.screen.transcript, offset=(7, 1))
        await chat.pilot.hover(chat.screen.transcript, offset=(10, 1))
        await chat.pilot.mouse_up(chat.screen.transcript, offset=(10, 1))
        await chat.pilot.press("ctrl+c")
        assert chat.app.copied == ["some"]
        assert chat.screen.controller.busy
        await chat.pilot.press("ctrl+c")
        await wait_until(chat.pilot, lambda: not chat.screen.controller.busy)


async def test_page_keys_scroll_from_the_message_field_and_text_below_is_announced(tmp_path: Path) -> None:
    async with open_chat(tmp_path, size=(80, 24)) as chat:
        await chat.turn("go", "\n\n".join(f"paragraph {number}" for number in range(40)))
        await chat.say("more")
        await chat.pilot.press("pageup")
        await wait_until(chat.pilot, lambda: not chat.screen.transcript.follow)
        chat.stream.play(ContentDelta("new"))
        await wait_until(
            chat.pilot, lambda: "new text below" in str(chat.screen.composer.prompt.border_title)
        )
        await chat.pilot.press("ctrl+end")
        assert chat.screen.transcript.follow
        assert "new text below" not in str(chat.screen.composer.prompt.border_title)


async def test_the_live_strip_is_there_only_where_it_fits(tmp_path: Path) -> None:
    async with open_chat(tmp_path) as chat:
        strip = chat.screen.query_one(LiveStrip)
        assert strip.region.width == 30
        await chat.turn("hello", "Hi")
        rows = [strip.render_line(y).text.rstrip() for y in range(12)]
        assert "TTFT     1.21 s" in rows
        assert "speed    18.4 tok/s" in rows
        await chat.pilot.resize_terminal(100, 30)
        await wait_until(chat.pilot, lambda: not strip.region)


async def test_the_conversation_is_saved_as_it_goes(tmp_path: Path) -> None:
    async with open_chat(tmp_path) as chat:
        await chat.turn("hello", "Hi")
        path = chat.app.services.paths.chats
    store = ChatStore(path)
    (info,) = store.conversations()
    assert [(message.role, message.content) for message in store.messages(info.id)] == [
        ("user", "hello"),
        ("assistant", "Hi"),
    ]


async def test_closing_while_streaming_closes_the_connection_and_saves_the_part(tmp_path: Path) -> None:
    async with open_chat(tmp_path) as chat:
        await chat.say("hello")
        chat.stream.play(ContentDelta("partial"))
        await wait_until(chat.pilot, lambda: chat.texts == ["hello", "partial"])
        path = chat.app.services.paths.chats
    assert chat.stream.closed == 1
    store = ChatStore(path)
    last = store.messages(store.conversations()[0].id)[-1]
    assert (last.content, last.status) == ("partial", Status.STOPPED)


async def test_an_engine_found_again_comes_with_its_conversation(tmp_path: Path) -> None:
    async with open_chat(tmp_path) as chat:
        await chat.turn("hello", "Hi")
    async with open_chat(tmp_path, replace(READY, kept=True)) as chat:
        await wait_until(chat.pilot, lambda: chat.texts == ["hello", "Hi"])
        await chat.turn("more", "Yes")
        path = chat.app.services.paths.chats
    store = ChatStore(path)
    (info,) = store.conversations()
    assert info.messages == 4


async def test_a_history_that_cannot_be_written_is_said_once_and_the_chat_goes_on(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("in the way")
    async with open_chat(tmp_path) as chat:
        await chat.turn("hello", "Hi")
        await chat.turn("more", "Yes")
        await wait_until(chat.pilot, lambda: chat.app.said)
        assert len(chat.app.said) == 1
        assert "history" in chat.app.said[0]


def test_copy_choices_hold_the_unwrapped_source() -> None:
    answer = Answer("Text [b]\n\n```py\nx = 1\n```\n\n~~~\nplain\n~~~", "why")
    assert [(choice.title, choice.text) for choice in copy_choices(answer)] == [
        ("whole answer", answer.content),
        ("py", "x = 1"),
        ("code", "plain"),
        ("reasoning", "why"),
    ]
    assert [choice.title for choice in copy_choices(Entry(Kind.USER, "hi"))] == ["message"]
    assert copy_choices(Answer()) == []


async def test_model_text_in_the_copy_picker_is_no_markup(tmp_path: Path) -> None:
    async with open_chat(tmp_path) as chat:
        await chat.turn("go", "[@click=app.quit]x[/]\n\n```[/]\n[bold\n```\n")
        chat.screen.transcript.focus()
        await chat.pilot.press("y")
        await wait_until(chat.pilot, lambda: isinstance(chat.app.screen, CopyPicker))
        prompts = [str(option.prompt) for option in chat.app.screen.query_one(OptionList).options]
        assert "[@click=app.quit]x[/]" in prompts[0]
        assert "[bold" in prompts[1]


def test_a_stored_message_is_shown_with_its_numbers() -> None:
    from kt_tui.ui.chat_controller import entry_of

    entry = entry_of(Message("assistant", "x", status=Status.FAILED, note="The engine died."))
    assert isinstance(entry, Answer)
    assert (entry.failed, entry.footer) == (True, "The engine died.")
