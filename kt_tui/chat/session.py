"""A conversation with its server and its history, without any screen."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

from kt_tui.chat.conversation import Conversation, Draft, Message, Status
from kt_tui.chat.events import ChatError, ChatEvent, ChatOptions, Endpoint
from kt_tui.chat.http import NotReadyError
from kt_tui.chat.models import resolve_model
from kt_tui.chat.store import ChatStore, HistoryError, Recorder
from kt_tui.chat.stream import stream_chat


class Session:
    """Asks and keeps the answers.

    Args:
        endpoint: The server; its model is settled with the first question.
        options: How to answer.
        system: The system prompt, or an empty text.
        history: The file to keep the conversation in; None keeps it nowhere.
        notice: Told what a user should know (another model answers, the history cannot be written).
    """

    def __init__(
        self,
        endpoint: Endpoint,
        options: ChatOptions,
        system: str,
        history: Path | None,
        notice: Callable[[str], None],
    ) -> None:
        self.endpoint = endpoint
        self.options = options
        self.conversation = Conversation(system, on_change=self._changed)
        self._notice = notice
        self._settled = False
        self._store: ChatStore | None = None
        self._recorder: Recorder | None = None
        if history is not None:
            try:
                self._store = ChatStore(history)
                self._recorder = Recorder(self._store, endpoint.model, notice)
            except HistoryError as error:
                notice(str(error))

    def close(self) -> None:
        """Close the history."""
        if self._store is not None:
            self._store.close()

    def _changed(self, position: int) -> None:
        if self._recorder is not None:
            self._recorder.record(self.conversation.system, self.conversation.messages, position)

    async def settle(self) -> None:
        """Find out which model answers.

        Raises:
            ChatError: No server answers, or it serves none.
        """
        choice = await resolve_model(self.endpoint)
        self.endpoint = choice.endpoint
        self._settled = True
        if self._recorder is not None:
            self._recorder.model = choice.endpoint.model
        if choice.notice:
            self._notice(choice.notice)

    async def ask(self, text: str, on_event: Callable[[ChatEvent], None]) -> Message:
        """Send ``text`` and give the answer; cancelling stops it and keeps what came, marked as stopped."""
        self.conversation.append(Message("user", text))
        return await self.answer(on_event)

    async def answer(self, on_event: Callable[[ChatEvent], None]) -> Message:
        """Answer the conversation as it stands."""
        draft = Draft()
        stopped = False
        try:
            if not self._settled:
                await self._settle_in_time()
            async with aclosing(
                stream_chat(self.endpoint, self.conversation.request(), self.options)
            ) as events:
                async for event in events:
                    draft.apply(event)
                    on_event(event)
        except asyncio.CancelledError:
            stopped = True
        except ChatError as error:
            answer = Message("assistant", "", status=Status.FAILED, note=str(error))
            self.conversation.append(answer)
            return answer
        answer = draft.message(stopped=stopped)
        self.conversation.append(answer)
        return answer

    async def _settle_in_time(self) -> None:
        try:
            await self.settle()
        except NotReadyError:
            # While there is time to wait, the stream waits, and settles the model itself.
            if not self.options.wait_s:
                raise

    def document(self, answer: Message) -> dict[str, Any]:
        """The answer as ``chat --once --json`` prints it."""
        errors = [] if answer.status is Status.COMPLETE else [answer.note or str(answer.status)]
        return {
            "content": answer.content,
            "reasoning": answer.reasoning,
            "finish_reason": answer.finish_reason,
            "tool_calls": [call.to_json() for call in answer.tool_calls],
            "usage": answer.usage.to_json() if answer.usage else None,
            "metrics": answer.metrics.to_json() if answer.metrics else None,
            "errors": errors,
            "note": answer.note,
            "status": str(answer.status),
            "model": self.endpoint.model,
        }
