"""A conversation: its messages, the answer being received, and what may be changed about them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from kt_tui.chat.events import (
    ChatEvent,
    ContentDelta,
    ContentWasReasoning,
    Failed,
    Finished,
    Metrics,
    ReasoningDelta,
    ToolCallDelta,
    Usage,
)


class Status(StrEnum):
    """How far a message came."""

    COMPLETE = "complete"
    STREAMING = "streaming"
    STOPPED = "stopped"  # by the user
    FAILED = "failed"


@dataclass(frozen=True)
class ToolCall:
    """A call that the model asked for; ``arguments`` is the model's text, not necessarily valid JSON."""

    id: str
    name: str
    arguments: str

    def to_json(self) -> dict[str, Any]:
        """In the shape of the OpenAI API."""
        return {
            "id": self.id,
            "type": "function",
            "function": {"name": self.name, "arguments": self.arguments},
        }


@dataclass(frozen=True)
class Message:
    """One turn. ``note`` says in words why an answer ended other than by itself, or what went wrong."""

    role: str
    content: str
    reasoning: str = ""
    finish_reason: str | None = None
    usage: Usage | None = None
    metrics: Metrics | None = None
    status: Status = Status.COMPLETE
    note: str = ""
    tool_calls: tuple[ToolCall, ...] = ()


class _Text:
    """Text that grows by many small pieces: joined only when it is read."""

    def __init__(self, text: str = "") -> None:
        self._pieces = [text] if text else []

    def add(self, piece: str) -> None:
        self._pieces.append(piece)

    def __str__(self) -> str:
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0] if self._pieces else ""


class Draft:
    """The answer that is being received: apply each event, read the text so far, take the message at the end."""

    def __init__(self, content: str = "", reasoning: str = "") -> None:
        self._content = _Text(content)
        self._reasoning = _Text(reasoning)
        self.tool_calls: list[ToolCall] = []
        self.ended: Finished | Failed | None = None

    @property
    def content(self) -> str:
        """The answer so far."""
        return str(self._content)

    @property
    def reasoning(self) -> str:
        """The reasoning so far."""
        return str(self._reasoning)

    def apply(self, event: ChatEvent) -> None:
        """Take in one event of `kt_tui.chat.stream_chat`."""
        match event:
            case ContentDelta(text):
                self._content.add(text)
            case ReasoningDelta(text):
                self._reasoning.add(text)
            case ContentWasReasoning():
                self._reasoning.add(self.content)
                self._content = _Text()
            case ToolCallDelta(position, call_id, name, arguments):
                self._add_call(position, call_id, name, arguments)
            case Finished() | Failed():
                self.ended = event
            case _:
                pass

    def _add_call(self, position: int, call_id: str, name: str, arguments: str) -> None:
        while len(self.tool_calls) <= position:
            self.tool_calls.append(ToolCall("", "", ""))
        call = self.tool_calls[position]
        self.tool_calls[position] = ToolCall(
            call.id or call_id, call.name or name, call.arguments + arguments
        )

    def message(self, *, stopped: bool = False) -> Message:
        """The answer as it stands: complete, failed, ``stopped`` by the user, or still streaming."""
        base = Message("assistant", self.content, self.reasoning, tool_calls=tuple(self.tool_calls))
        end = self.ended
        if isinstance(end, Finished):
            return replace(
                base, finish_reason=end.finish_reason, usage=end.usage, metrics=end.metrics, note=end.note
            )
        if isinstance(end, Failed):
            return replace(
                base,
                status=Status.FAILED,
                note=end.message,
                finish_reason=end.finish_reason,
                usage=end.usage,
                metrics=end.metrics,
            )
        if stopped:
            return replace(base, status=Status.STOPPED, note="stopped")
        return replace(base, status=Status.STREAMING)


class Conversation:
    """The turns of one chat. The system prompt is kept apart, so that clearing never loses it.

    ``on_change(position)`` is called after a change; every message from that position on is new or gone. It is
    the hook for a history store.
    """

    def __init__(
        self,
        system: str | None = None,
        messages: Sequence[Message] = (),
        on_change: Callable[[int], None] | None = None,
    ) -> None:
        self._system = system or None
        self._messages = list(messages)
        self._on_change = on_change

    @property
    def system(self) -> str | None:
        """The system prompt, or None."""
        return self._system

    @property
    def messages(self) -> tuple[Message, ...]:
        """User and assistant turns, oldest first."""
        return tuple(self._messages)

    def set_system(self, text: str | None) -> None:
        """Replace the system prompt; it takes effect from the next answer."""
        self._system = (text or "").strip() or None
        self._changed(len(self._messages))

    def append(self, message: Message) -> None:
        """Add a turn at the end."""
        self._messages.append(message)
        self._changed(len(self._messages) - 1)

    def update_last(self, message: Message) -> None:
        """Replace the last turn, as an answer grows."""
        self._messages[-1] = message
        self._changed(len(self._messages) - 1)

    def last_user_text(self) -> str | None:
        """The user's last words, for editing."""
        return next((m.content for m in reversed(self._messages) if m.role == "user"), None)

    def edit_last(self, text: str) -> bool:
        """Replace the user's last words; what followed them is dropped. False without any."""
        for position in range(len(self._messages) - 1, -1, -1):
            if self._messages[position].role == "user":
                self._messages[position:] = [Message("user", text)]
                self._changed(position)
                return True
        return False

    def retry(self) -> bool:
        """Drop the last answer, so that the next request generates it again. False if there is nothing to answer."""
        end = len(self._messages)
        while end and self._messages[end - 1].role != "user":
            end -= 1
        if not end:
            return False
        if end < len(self._messages):
            del self._messages[end:]
            self._changed(end)
        return True

    def clear(self) -> None:
        """Drop all turns; the system prompt stays."""
        self._messages.clear()
        self._changed(0)

    def request(self) -> list[dict[str, Any]]:
        """The messages to send: without reasoning, and without answers that never got any text."""
        sent: list[dict[str, Any]] = []
        if self._system:
            sent.append({"role": "system", "content": self._system})
        for message in self._messages:
            if message.role == "assistant" and not message.content:
                continue
            sent.append({"role": message.role, "content": message.content})
        return sent

    def _changed(self, position: int) -> None:
        if self._on_change is not None:
            self._on_change(position)
