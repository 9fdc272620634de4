from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from kt_tui.chat import (
    ChatEvent,
    ChatOptions,
    ContentDelta,
    ContentWasReasoning,
    Conversation,
    Endpoint,
    Failed,
    Message,
    ReasoningDelta,
    Status,
    Waiting,
)
from kt_tui.ui.chat_controller import ChatController, TurnState
from kt_tui.ui.chat_turn import FLUSH_S
from kt_tui.ui.widgets.transcript.entries import Answer, Entry, Kind
from tests.ui.chat_helpers import END, PlayedStream


class RecordingView:
    """A transcript without a screen: entries, and how often each change was drawn."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.drawn = 0

    def show(self, entries: list[Entry]) -> None:
        self.entries = list(entries)

    def add(self, entry: Entry) -> None:
        self.entries.append(entry)

    def drop_from(self, index: int) -> None:
        del self.entries[index:]

    def update_rows(self, *, arrived: bool = False) -> None:
        self.drawn += 1

    @property
    def said(self) -> list[tuple[Kind, str]]:
        return [(entry.kind, entry.content) for entry in self.entries]


class Chat:
    """A controller with everything around it."""

    def __init__(self) -> None:
        self.view = RecordingView()
        self.stream: Any = PlayedStream()
        self.endpoint: Endpoint | None = Endpoint("http://127.0.0.1:1")
        self.saved: list[int] = []
        self.left = 0
        self.states: list[TurnState] = []
        self.controller = ChatController(
            Conversation(on_change=self.saved.append),
            self.view,
            connect=lambda: self.endpoint,
            options=lambda: ChatOptions(max_tokens=9),
            stream=self._answers,
            changed=self.states.append,
            leave=self._leave,
        )

    def _answers(self, *arguments: Any) -> AsyncIterator[ChatEvent]:
        found: AsyncIterator[ChatEvent] = self.stream(*arguments)
        return found

    def _leave(self) -> None:
        self.left += 1

    @property
    def messages(self) -> tuple[Message, ...]:
        return self.controller.conversation.messages

    async def until(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + 10
        while not condition():
            assert time.monotonic() < deadline, "the awaited state never came"
            await asyncio.sleep(0.002)

    async def idle(self) -> None:
        await self.until(lambda: not self.controller.busy)


@pytest.fixture
async def chat() -> AsyncIterator[Chat]:
    chat = Chat()
    yield chat
    await chat.controller.close()


async def test_a_message_is_sent_and_its_answer_drawn_and_kept(chat: Chat) -> None:
    chat.controller.submit("hello")
    chat.stream.answer("Hi there.")
    await chat.idle()
    assert chat.view.said == [(Kind.USER, "hello"), (Kind.ANSWER, "Hi there.")]
    assert chat.stream.requests == [[{"role": "user", "content": "hello"}]]
    assert chat.stream.options == [ChatOptions(max_tokens=9)]
    answer = chat.messages[1]
    assert (answer.content, answer.status, answer.usage) == ("Hi there.", Status.COMPLETE, END.usage)
    entry = chat.view.entries[1]
    assert isinstance(entry, Answer)
    assert entry.footer == "TTFT 1.21 s · TPOT 54 ms · 18.4 tok/s · 212 in + 96 out"
    assert not entry.streaming


async def test_a_fast_stream_is_drawn_far_less_often_than_it_delivers(chat: Chat) -> None:
    chat.controller.submit("go")
    started = time.monotonic()
    for _ in range(1_000):
        chat.stream.play(ContentDelta("word "))
    chat.stream.play(END)
    await chat.idle()
    frames = (time.monotonic() - started) / FLUSH_S + 4
    assert chat.view.entries[1].content == "word " * 1_000
    assert chat.view.drawn <= frames


async def test_stopping_closes_the_stream_and_keeps_what_came(chat: Chat) -> None:
    chat.controller.submit("go")
    chat.stream.play(ContentDelta("partial"))
    await chat.until(lambda: chat.controller.state.pieces)
    assert chat.controller.stop()
    await chat.idle()
    assert chat.stream.closed == 1
    assert (chat.messages[1].content, chat.messages[1].status) == ("partial", Status.STOPPED)
    assert chat.view.entries[1].footer.endswith("stopped by you")  # type: ignore[attr-defined]
    assert not chat.controller.stop()


async def test_stopping_before_the_first_step_still_ends_the_turn(chat: Chat) -> None:
    chat.controller.submit("go")
    assert chat.controller.stop()
    await chat.idle()
    assert chat.messages[1].status is Status.STOPPED


async def test_the_next_message_after_a_stop_carries_the_partial_answer(chat: Chat) -> None:
    chat.controller.submit("one")
    chat.stream.play(ContentDelta("part"))
    await chat.until(lambda: chat.controller.state.pieces)
    chat.controller.stop()
    await chat.idle()
    chat.controller.submit("two")
    chat.stream.answer("fine")
    await chat.idle()
    assert [message["content"] for message in chat.stream.requests[1]] == ["one", "part", "two"]
    assert chat.messages[-1].status is Status.COMPLETE


async def test_messages_written_while_streaming_wait_and_go_out_in_order(chat: Chat) -> None:
    chat.controller.submit("one")
    chat.controller.submit("two")
    chat.controller.submit("three")
    assert chat.controller.state.queued == ("two", "three")
    for _ in range(3):
        chat.stream.answer("ok")
    await chat.until(lambda: len(chat.messages) == 6 and not chat.controller.busy)
    assert [message.content for message in chat.messages[::2]] == ["one", "two", "three"]


async def test_the_queue_can_be_taken_back(chat: Chat) -> None:
    chat.controller.submit("one")
    chat.controller.submit("two")
    chat.controller.submit("three")
    assert chat.controller.take_queue() == "two\n\nthree"
    assert chat.controller.state.queued == ()


async def test_without_an_engine_messages_wait_for_one(chat: Chat) -> None:
    chat.endpoint = None
    chat.controller.submit("hello")
    assert (chat.view.said, chat.controller.state.queued) == ([], ("hello",))
    chat.endpoint = Endpoint("http://127.0.0.1:1")
    chat.stream.answer("Hi")
    chat.controller.pump()
    await chat.idle()
    assert chat.view.said == [(Kind.USER, "hello"), (Kind.ANSWER, "Hi")]


async def test_a_failure_keeps_the_partial_text_and_says_why(chat: Chat) -> None:
    chat.controller.submit("go")
    chat.stream.play(ContentDelta("part"), Failed("The engine closed the connection.", "part"))
    await chat.idle()
    entry = chat.view.entries[1]
    assert isinstance(entry, Answer)
    assert entry.failed
    assert "The engine closed the connection." in entry.footer


async def test_a_bug_in_the_stream_ends_the_turn_not_the_panel(chat: Chat) -> None:
    async def broken(*_arguments: object) -> AsyncIterator[Any]:
        yield ContentDelta("x")
        raise ZeroDivisionError("oops")

    chat.stream = broken
    chat.controller.submit("go")
    await chat.idle()
    assert chat.messages[1].status is Status.FAILED
    assert "ZeroDivisionError" in chat.messages[1].note


async def test_retry_replaces_the_last_answer(chat: Chat) -> None:
    chat.controller.submit("go")
    chat.stream.answer("first")
    await chat.idle()
    assert chat.controller.retry()
    chat.stream.answer("second")
    await chat.idle()
    assert chat.view.said == [(Kind.USER, "go"), (Kind.ANSWER, "second")]
    assert chat.stream.requests[0] == chat.stream.requests[1]


async def test_retry_without_a_question_does_nothing(chat: Chat) -> None:
    assert not chat.controller.retry()


async def test_editing_the_last_message_asks_anew(chat: Chat) -> None:
    chat.controller.submit("go")
    chat.stream.answer("first")
    await chat.idle()
    assert chat.controller.edit_last("stop")
    chat.stream.answer("second")
    await chat.idle()
    assert chat.view.said == [(Kind.USER, "stop"), (Kind.ANSWER, "second")]


async def test_commands_run_and_are_not_sent(chat: Chat) -> None:
    chat.controller.submit("/system Be brief.")
    chat.controller.submit("/info")
    chat.controller.submit("/nonsense")
    assert chat.stream.requests == []
    assert [entry.kind for entry in chat.view.entries] == [Kind.NOTE, Kind.NOTE, Kind.ERROR]
    assert chat.controller.conversation.system == "Be brief."
    assert "Be brief." in chat.view.entries[1].content


async def test_clear_empties_the_screen(chat: Chat) -> None:
    chat.controller.submit("go")
    chat.stream.answer("first")
    await chat.idle()
    chat.controller.submit("/clear")
    assert chat.messages == ()
    assert [entry.kind for entry in chat.view.entries] == [Kind.NOTE]


async def test_retry_and_quit_as_commands(chat: Chat) -> None:
    chat.controller.submit("go")
    chat.stream.answer("first")
    await chat.idle()
    chat.controller.submit("/retry")
    chat.stream.answer("second")
    await chat.idle()
    assert chat.view.said[-1] == (Kind.ANSWER, "second")
    chat.controller.submit("/quit")
    assert chat.left == 1


async def test_two_slashes_send_text_that_begins_with_one(chat: Chat) -> None:
    chat.controller.submit("//etc/hosts")
    assert chat.view.said[0] == (Kind.USER, "/etc/hosts")


async def test_reasoning_has_a_handle_with_time_and_tokens(chat: Chat) -> None:
    chat.controller.submit("go")
    chat.stream.play(ReasoningDelta("why "), ReasoningDelta("not"))
    await chat.until(lambda: chat.controller.state.pieces == 2)
    await chat.until(lambda: "~2 tok" in chat.view.entries[1].handle)  # type: ignore[attr-defined]
    chat.stream.answer("So.")
    await chat.idle()
    entry = chat.view.entries[1]
    assert isinstance(entry, Answer)
    assert (entry.reasoning, entry.content, entry.folded) == ("why not", "So.", True)
    assert entry.handle.startswith("thinking  ")


async def test_text_that_turns_out_to_be_reasoning_moves(chat: Chat) -> None:
    chat.controller.submit("go")
    chat.stream.play(ContentDelta("hmm"), ContentWasReasoning())
    chat.stream.answer("So.")
    await chat.idle()
    entry = chat.view.entries[1]
    assert isinstance(entry, Answer)
    assert (entry.reasoning, entry.content) == ("hmm", "So.")


async def test_waiting_for_a_loading_server_is_shown(chat: Chat) -> None:
    chat.controller.submit("go")
    chat.stream.play(Waiting("the server is loading", 0.42))
    await chat.until(lambda: "the server is loading 42%" in chat.view.entries[1].handle)  # type: ignore[attr-defined]


async def test_every_turn_is_saved(chat: Chat) -> None:
    chat.controller.submit("go")
    chat.stream.answer("first")
    await chat.idle()
    assert chat.saved[0] == 0
    assert chat.saved[-1] == 1
