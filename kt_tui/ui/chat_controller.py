"""Binds a conversation and its stream to the transcript: one answer at a time, then the next of those that wait."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from kt_tui.chat import ChatEvent, ChatOptions, Conversation, Endpoint, Message, Status
from kt_tui.chat.commands import Action, CommandContext, execute, is_command, message_text
from kt_tui.ui.chat_turn import Turn
from kt_tui.ui.turn_text import footer_text, thinking_text
from kt_tui.ui.widgets.transcript.entries import Answer, Entry, Kind


class View(Protocol):
    """What the controller needs of the transcript."""

    @property
    def entries(self) -> list[Entry]:
        """The messages, oldest first."""

    def show(self, entries: list[Entry]) -> None:
        """Replaces everything."""

    def add(self, entry: Entry) -> None:
        """Adds a message at the end."""

    def drop_from(self, index: int) -> None:
        """Takes the messages from ``index`` on away."""

    def update_rows(self, *, arrived: bool = False) -> None:
        """Draws what changed."""


class StreamFunction(Protocol):
    """The shape of `kt_tui.chat.stream_chat`."""

    def __call__(
        self, endpoint: Endpoint, messages: Sequence[Mapping[str, Any]], options: ChatOptions | None = None
    ) -> AsyncIterator[ChatEvent]:
        """Asks for an answer."""


@dataclass(frozen=True)
class TurnState:
    """Where the chat stands, for the composer and the live strip."""

    busy: bool = False
    queued: tuple[str, ...] = ()
    waiting: str = ""
    pieces: int = 0  # pieces of text that came so far: about one token each
    pieces_per_s: float | None = None  # since the first one
    first_s: float | None = None  # seconds until the first one


class ChatController:
    """The chat as the screen drives it. All methods belong to the app's loop.

    Args:
        conversation: The turns; its own hook saves them.
        view: Where messages are drawn.
        connect: The server to talk to, or None while there is none.
        options: How to answer, asked anew for each turn.
        stream: The streaming client.
        changed: Called when the state changed.
        leave: Called for ``/quit``.
        answered: Called with each answer that has ended, however.
    """

    def __init__(
        self,
        conversation: Conversation,
        view: View,
        *,
        connect: Callable[[], Endpoint | None],
        options: Callable[[], ChatOptions],
        stream: StreamFunction,
        changed: Callable[[TurnState], None] = lambda _state: None,
        leave: Callable[[], None] = lambda: None,
        answered: Callable[[Message], None] = lambda _message: None,
    ) -> None:
        self.conversation = conversation
        self.view = view
        self.connect = connect
        self.options = options
        self.stream = stream
        self.changed = changed
        self.leave = leave
        self.answered = answered
        self._queue: list[str] = []
        self._turn: Turn | None = None

    @property
    def busy(self) -> bool:
        """Whether an answer is being received."""
        return self._turn is not None

    @property
    def state(self) -> TurnState:
        """Where the chat stands now."""
        turn = self._turn
        if turn is None:
            return TurnState(queued=tuple(self._queue))
        return TurnState(
            busy=True,
            queued=tuple(self._queue),
            waiting=turn.waiting,
            pieces=turn.pieces,
            pieces_per_s=turn.pieces_per_s,
            first_s=turn.first_s,
        )

    def replace(self, conversation: Conversation) -> None:
        """Goes on with another conversation."""
        self.conversation = conversation
        self.view.show([entry_of(message) for message in conversation.messages])
        self.changed(self.state)

    def submit(self, text: str) -> None:
        """Takes what the user typed: a command runs now, a message goes out as soon as it can."""
        if is_command(text):
            self._command(text)
            return
        self._queue.append(message_text(text))
        self.pump()

    def pump(self) -> None:
        """Sends the next queued message if an engine is there and no answer is running."""
        endpoint = self.connect()
        if self._queue and not self.busy and endpoint is not None:
            text = self._queue.pop(0)
            self.conversation.append(Message("user", text))
            self.view.add(Entry(Kind.USER, text))
            self._answer(endpoint)
        self.changed(self.state)

    def stop(self) -> bool:
        """Ends the running answer at once and keeps what came. False if none runs."""
        if self._turn is None:
            return False
        self._turn.stop()
        return True

    def take_queue(self) -> str:
        """Empties the queue and gives its text back, for editing."""
        text = "\n\n".join(self._queue)
        self._queue.clear()
        self.changed(self.state)
        return text

    def retry(self) -> bool:
        """Asks for the last answer again. False if that is not possible now."""
        endpoint = self.connect()
        if self.busy or endpoint is None or not self.conversation.retry():
            return False
        self._drop_after_last_user()
        self._answer(endpoint)
        return True

    def edit_last(self, text: str) -> bool:
        """Replaces the user's last message and asks anew. False if that is not possible now."""
        endpoint = self.connect()
        if self.busy or endpoint is None or not self.conversation.edit_last(text):
            return False
        self._drop_after_last_user(inclusive=True)
        self.view.add(Entry(Kind.USER, text))
        self._answer(endpoint)
        return True

    async def close(self) -> None:
        """Ends the running answer and waits until its connection is closed; nothing is sent or told any more."""
        self._queue.clear()
        self.changed = lambda _state: None
        if self._turn is not None:
            task = self._turn.task
            self._turn.stop()
            await asyncio.gather(task, return_exceptions=True)

    def _command(self, text: str) -> None:
        endpoint = self.connect()
        context = CommandContext(self.conversation, endpoint or Endpoint(""), self.busy)
        if endpoint is None and text.split(maxsplit=1)[0].lower() in ("/retry", "/r"):
            self.view.add(Entry(Kind.ERROR, "No engine is ready to answer again; start one first."))
            return
        result = execute(text, context)
        if result.action is Action.CLEARED:
            self._queue.clear()
            self.view.show([])
        elif result.action is Action.RETRY and endpoint is not None:
            self._drop_after_last_user()
            self._answer(endpoint)
        elif result.action is Action.QUIT:
            self.leave()
        if result.text:
            self.view.add(Entry(Kind.ERROR if result.action is Action.ERROR else Kind.NOTE, result.text))
        self.changed(self.state)

    def _drop_after_last_user(self, *, inclusive: bool = False) -> None:
        entries = self.view.entries
        last = max((at for at, entry in enumerate(entries) if entry.kind is Kind.USER), default=-1)
        self.view.drop_from(last if inclusive and last >= 0 else last + 1)

    def _answer(self, endpoint: Endpoint) -> None:
        entry = Answer()
        entry.streaming = True
        self._turn = Turn(entry, redraw=self._redraw, save=self.conversation.update_last, ended=self._ended)
        self.view.add(entry)
        events = self.stream(endpoint, self.conversation.request(), self.options())
        self.conversation.append(Message("assistant", "", status=Status.STREAMING))
        self._turn.start(events)
        self.changed(self.state)

    def _redraw(self, arrived: bool) -> None:
        self.view.update_rows(arrived=arrived)
        self.changed(self.state)

    def _ended(self, message: Message) -> None:
        self._turn = None
        self.conversation.update_last(message)
        self.view.update_rows(arrived=True)
        self.answered(message)
        self.pump()


def entry_of(message: Message) -> Entry:
    """A turn of a restored conversation as the transcript shows it."""
    if message.role != "assistant":
        return Entry(Kind.USER, message.content)
    tokens = message.usage.reasoning_tokens if message.usage else None
    return Answer(
        message.content,
        message.reasoning,
        handle=thinking_text(None, tokens, exact=True) if message.reasoning else "",
        footer=footer_text(message),
        failed=message.status is Status.FAILED,
    )
