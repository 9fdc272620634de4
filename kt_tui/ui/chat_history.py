"""Saves the conversation as it goes, in a thread of its own: a disk that is slow to sync never holds a key up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from kt_tui.chat import Message
from kt_tui.chat.store import ChatStore, HistoryError, Recorder


@dataclass(frozen=True)
class Saved:
    """A conversation found on disk."""

    id: int
    system: str | None
    messages: tuple[Message, ...]


class ChatHistory:
    """One user's history file, opened when first needed.

    Args:
        path: The file.
        on_error: Told once, on the app's loop, when saving does not work; the chat goes on unsaved.
    """

    def __init__(self, path: Path, on_error: Callable[[str], None]) -> None:
        self._path = path
        self._on_error = on_error
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="chat-history")
        self._loop = asyncio.get_running_loop()
        self._store: ChatStore | None = None
        self._recorder: Recorder | None = None
        self._broken = False

    def record(self, model: str, system: str | None, messages: tuple[Message, ...], position: int) -> None:
        """Saves everything from ``position`` on, soon."""
        self._thread.submit(self._record, model, system, messages, position)

    def continue_with(self, saved: Saved) -> None:
        """Further records belong to this stored conversation."""
        self._thread.submit(self._adopt, saved.id)

    async def newest(self) -> Saved | None:
        """The conversation that was changed last; None if there is none or it cannot be read."""
        return await asyncio.wrap_future(self._thread.submit(self._newest))

    async def close(self) -> None:
        """Waits until everything is on disk."""
        await asyncio.wrap_future(self._thread.submit(self._close))
        self._thread.shutdown(wait=False)

    def _opened(self) -> ChatStore:
        if self._store is None:
            self._store = ChatStore(self._path)
        return self._store

    def _record(self, model: str, system: str | None, messages: tuple[Message, ...], position: int) -> None:
        if self._broken:
            return
        try:
            if self._recorder is None:
                self._recorder = Recorder(self._opened(), model, self._failed)
        except HistoryError as error:
            self._failed(str(error))
            return
        self._recorder.record(system, messages, position)

    def _adopt(self, stored: int) -> None:
        if self._store is not None:
            self._recorder = Recorder(self._store, "", self._failed, stored)

    def _newest(self) -> Saved | None:
        if not self._path.exists():
            return None
        try:
            store = self._opened()
            found = store.conversations(limit=1)
            return Saved(found[0].id, found[0].system, tuple(store.messages(found[0].id))) if found else None
        except HistoryError as error:
            self._failed(str(error))
            return None

    def _failed(self, text: str) -> None:
        self._broken = True
        self._loop.call_soon_threadsafe(self._on_error, text)

    def _close(self) -> None:
        if self._store is not None:
            self._store.close()
