"""Conversations on disk: one SQLite file, written as the conversation goes."""

from __future__ import annotations

import json
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kt_tui.chat.conversation import Message, Status, ToolCall
from kt_tui.chat.events import Metrics, Usage
from kt_tui.errors import KtError
from kt_tui.text import one_line

SCHEMA_VERSION = 1

_SCHEMA = """
CREATE TABLE conversations (
    id INTEGER PRIMARY KEY,
    title TEXT NOT NULL,
    model TEXT NOT NULL,
    system TEXT,
    created_at REAL NOT NULL,
    updated_at REAL NOT NULL
) STRICT;
CREATE TABLE messages (
    conversation INTEGER NOT NULL REFERENCES conversations(id) ON DELETE CASCADE,
    position INTEGER NOT NULL,
    role TEXT NOT NULL,
    content TEXT NOT NULL,
    reasoning TEXT NOT NULL,
    status TEXT NOT NULL,
    finish_reason TEXT,
    note TEXT NOT NULL,
    extra TEXT NOT NULL,
    created_at REAL NOT NULL,
    PRIMARY KEY (conversation, position)
) STRICT, WITHOUT ROWID;
CREATE INDEX conversations_by_time ON conversations(updated_at);
"""


class HistoryError(KtError):
    """The history cannot be read or written."""


@dataclass(frozen=True)
class ConversationInfo:
    """A conversation in a list. Times are seconds since the epoch."""

    id: int
    title: str
    model: str
    system: str | None
    created_at: float
    updated_at: float
    messages: int


class ChatStore:
    """The conversations of one user. May be used from any thread; each call is one transaction.

    The file is readable by its user only, its journal is a write-ahead log, and a commit has reached the disk when a
    call returns, so that neither a crash nor a power cut loses a saved turn.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        """Open or create the file.

        Raises:
            HistoryError: It cannot be used: unreadable, damaged, or written by a newer version.
        """
        self.path = path
        self._clock = clock
        self._lock = threading.RLock()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # Created with its final permissions, so that there is no moment at which others could open it.
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            self._db = sqlite3.connect(path, timeout=5.0, isolation_level=None, check_same_thread=False)
        except (OSError, sqlite3.Error) as error:
            raise HistoryError(f"The chat history {path} cannot be opened: {error}.") from error
        try:
            self._prepare()
        except HistoryError:
            self._db.close()
            raise

    def _prepare(self) -> None:
        with self._transaction(begin=False) as db:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = FULL")
            db.execute("PRAGMA foreign_keys = ON")
        with self._transaction() as db:
            version = db.execute("PRAGMA user_version").fetchone()[0]
            if version > SCHEMA_VERSION:
                raise HistoryError(
                    f"The chat history {self.path} is of a newer kt-tui; update kt-tui, or move the file away."
                )
            if version == 0:
                for statement in _SCHEMA.split(";"):
                    db.execute(statement)
                db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")

    @contextmanager
    def _transaction(self, *, begin: bool = True) -> Iterator[sqlite3.Connection]:
        with self._lock:
            try:
                if begin:
                    self._db.execute("BEGIN IMMEDIATE")
                yield self._db
                if begin:
                    self._db.execute("COMMIT")
            except BaseException as error:
                if self._usable_for_rollback():
                    self._db.execute("ROLLBACK")
                if isinstance(error, sqlite3.Error):
                    raise HistoryError(
                        f"The chat history {self.path} cannot be used: {error}. The conversation itself goes on."
                    ) from error
                raise

    def _usable_for_rollback(self) -> bool:
        try:
            return self._db.in_transaction
        except sqlite3.ProgrammingError:
            return False

    def close(self) -> None:
        """Close the file; further calls raise `HistoryError`."""
        with self._lock:
            self._db.close()

    def create(self, model: str, system: str | None = None) -> int:
        """Begin a conversation; gives its id."""
        now = self._clock()
        with self._transaction() as db:
            cursor = db.execute(
                "INSERT INTO conversations (title, model, system, created_at, updated_at) VALUES ('', ?, ?, ?, ?)",
                (_storable(model), _storable(system), now, now),
            )
            return int(cursor.lastrowid or 0)

    def save(self, conversation: int, position: int, message: Message) -> None:
        """Write the message at ``position``, new or grown; the first question becomes the title."""
        now = self._clock()
        with self._transaction() as db:
            db.execute(
                "INSERT OR REPLACE INTO messages VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    conversation,
                    position,
                    message.role,
                    _storable(message.content),
                    _storable(message.reasoning),
                    str(message.status),
                    _storable(message.finish_reason),
                    _storable(message.note),
                    _extra(message),
                    now,
                ),
            )
            if message.role == "user":
                db.execute(
                    "UPDATE conversations SET title = ? WHERE id = ? AND title = ''",
                    (one_line(message.content, 80), conversation),
                )
            db.execute("UPDATE conversations SET updated_at = ? WHERE id = ?", (now, conversation))

    def truncate(self, conversation: int, length: int) -> None:
        """Drop the messages from position ``length`` on."""
        with self._transaction() as db:
            db.execute(
                "DELETE FROM messages WHERE conversation = ? AND position >= ?", (conversation, length)
            )

    def describe(self, conversation: int, model: str, system: str | None) -> None:
        """Replace the model that answers (unless ``model`` is empty: not known yet) and the system prompt."""
        with self._transaction() as db:
            db.execute(
                "UPDATE conversations SET model = COALESCE(NULLIF(?, ''), model), system = ? WHERE id = ?",
                (_storable(model), _storable(system), conversation),
            )

    def conversations(self, limit: int = 100) -> list[ConversationInfo]:
        """Conversations that hold a message, the newest first."""
        with self._transaction() as db:
            rows = db.execute(
                "SELECT c.id, c.title, c.model, c.system, c.created_at, c.updated_at, COUNT(m.position)"
                " FROM conversations c JOIN messages m ON m.conversation = c.id"
                " GROUP BY c.id ORDER BY c.updated_at DESC, c.id DESC LIMIT ?",
                (limit,),
            ).fetchall()
        return [ConversationInfo(*row) for row in rows]

    def messages(self, conversation: int) -> list[Message]:
        """The turns of a conversation, oldest first. An answer that a crash cut off counts as stopped."""
        with self._transaction() as db:
            rows = db.execute(
                "SELECT role, content, reasoning, status, finish_reason, note, extra FROM messages"
                " WHERE conversation = ? ORDER BY position",
                (conversation,),
            ).fetchall()
        return [_message(row) for row in rows]

    def delete(self, conversation: int) -> None:
        """Forget a conversation."""
        with self._transaction() as db:
            db.execute("DELETE FROM conversations WHERE id = ?", (conversation,))


def _storable(text: str | None) -> str | None:
    # A lone surrogate is no UTF-8; SQLite would refuse the whole row.
    return None if text is None else text.encode("utf-8", "replace").decode("utf-8")


def _extra(message: Message) -> str:
    document: dict[str, Any] = {}
    if message.usage is not None:
        document["usage"] = message.usage.to_json()
    if message.metrics is not None:
        document["metrics"] = message.metrics.to_json()
    if message.tool_calls:
        document["tool_calls"] = [[call.id, call.name, call.arguments] for call in message.tool_calls]
    return json.dumps(document)


def _message(row: tuple[str, str, str, str, str | None, str, str]) -> Message:
    role, content, reasoning, status, finish_reason, note, extra = row
    known = Status(status) if status in set(Status) else Status.STOPPED
    if known is Status.STREAMING:
        known, note = Status.STOPPED, note or "cut off"
    document = json.loads(extra)
    usage, metrics = document.get("usage"), document.get("metrics")
    return Message(
        role=role,
        content=content,
        reasoning=reasoning,
        finish_reason=finish_reason,
        usage=Usage(**usage) if usage else None,
        metrics=Metrics(**metrics) if metrics else None,
        status=known,
        note=note,
        tool_calls=tuple(ToolCall(*call) for call in document.get("tool_calls", ())),
    )


class Recorder:
    """Keeps a stored conversation equal to a live one: the ``on_change`` hook of `Conversation`.

    The conversation is created on disk with its first message, so that an empty chat leaves no trace. A failure to
    write is told once through ``on_error`` and ends the recording; the chat goes on.
    """

    def __init__(
        self, store: ChatStore, model: str, on_error: Callable[[str], None], stored: int | None = None
    ) -> None:
        self._store = store
        self.model = model
        self._on_error = on_error
        self.stored = stored
        self._broken = False

    def record(self, system: str | None, messages: tuple[Message, ...], position: int) -> None:
        """Write all messages from ``position`` on and drop stored ones beyond the end."""
        if self._broken or (self.stored is None and not messages):
            return
        try:
            if self.stored is None:
                self.stored = self._store.create(self.model, system)
                position = 0
            self._store.truncate(self.stored, len(messages))
            self._store.describe(self.stored, self.model, system)
            for place in range(position, len(messages)):
                self._store.save(self.stored, place, messages[place])
        except HistoryError as error:
            self._broken = True
            self._on_error(str(error))
