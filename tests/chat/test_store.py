import multiprocessing
import os
import signal
import sqlite3
import stat

import pytest

from kt_tui.chat import Conversation, Message, Metrics, Status, ToolCall, Usage
from kt_tui.chat.store import SCHEMA_VERSION, ChatStore, HistoryError, Recorder


@pytest.fixture
def path(tmp_path):
    return tmp_path / "data" / "chats.sqlite3"


@pytest.fixture
def store(path):
    made = ChatStore(path)
    yield made
    made.close()


FULL = Message(
    "assistant",
    "answer \u202e [b]",
    "why",
    "length",
    Usage(1, 2, 3, None),
    Metrics(0.1, 0.2, 5.0, 1.0),
    Status.COMPLETE,
    "truncated",
    (ToolCall("c1", "f", '{"a'),),
)


def test_messages_come_back_as_they_were(store):
    conversation = store.create("demo", "be brief")
    store.save(conversation, 0, Message("user", "hello\nworld"))
    store.save(conversation, 1, FULL)
    assert store.messages(conversation) == [Message("user", "hello\nworld"), FULL]
    (info,) = store.conversations()
    assert (info.title, info.model, info.system, info.messages) == ("hello world", "demo", "be brief", 2)


def test_the_file_is_private_and_in_write_ahead_mode(store, path):
    store.create("m")
    for file in path.parent.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    with sqlite3.connect(path) as other:
        assert other.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
        assert other.execute("PRAGMA user_version").fetchone()[0] == SCHEMA_VERSION


def test_a_growing_answer_is_replaced_and_truncation_drops_the_rest(store):
    conversation = store.create("m")
    for length in range(1, 4):
        store.save(conversation, 0, Message("assistant", "x" * length, status=Status.STREAMING))
    store.save(conversation, 1, Message("user", "later"))
    store.truncate(conversation, 1)
    (message,) = store.messages(conversation)
    assert message.content == "xxx"
    assert message.status is Status.STOPPED  # nobody will finish it any more


def test_a_lone_surrogate_does_not_lose_the_turn(store):
    conversation = store.create("m")
    store.save(conversation, 0, Message("user", "a\ud83d"))
    assert store.messages(conversation)[0].content == "a?"


def _write_and_die(path):
    store = ChatStore(path)
    conversation = store.create("m")
    for position in range(100):
        store.save(conversation, position, Message("user", f"turn {position}"))
    os.kill(os.getpid(), signal.SIGKILL)


def test_saved_turns_survive_a_killed_process(path):
    process = multiprocessing.get_context("spawn").Process(target=_write_and_die, args=(path,))
    process.start()
    process.join(30)
    assert process.exitcode == -signal.SIGKILL
    store = ChatStore(path)
    (info,) = store.conversations()
    assert [m.content for m in store.messages(info.id)] == [f"turn {n}" for n in range(100)]
    store.close()


def test_a_newer_file_is_refused_and_left_alone(store, path):
    store.close()
    with sqlite3.connect(path) as other:
        other.execute("PRAGMA user_version = 99")
    before = path.read_bytes()
    with pytest.raises(HistoryError, match="newer kt-tui"):
        ChatStore(path)
    assert path.read_bytes() == before


def test_a_damaged_file_is_refused_and_left_alone(path):
    path.parent.mkdir()
    path.write_bytes(b"this is no database at all" * 100)
    before = path.read_bytes()
    with pytest.raises(HistoryError, match="cannot be used"):
        ChatStore(path)
    assert path.read_bytes() == before


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(HistoryError, match="cannot be opened"):
        ChatStore(tmp_path / "file" / "chats.sqlite3")


def test_two_panels_write_into_one_file(path):
    first, second = ChatStore(path), ChatStore(path)
    ids = {store.create("m") for store in (first, second, first, second)}
    assert len(ids) == 4
    first.close()
    second.close()


def test_delete_forgets_messages_too(store, path):
    conversation = store.create("m")
    store.save(conversation, 0, Message("user", "x"))
    store.delete(conversation)
    assert store.conversations() == []
    with sqlite3.connect(path) as other:
        assert other.execute("SELECT COUNT(*) FROM messages").fetchone() == (0,)


def recorded(store):
    errors = []
    recorder = Recorder(store, "m", errors.append)
    conversation = Conversation(
        "sys", on_change=lambda p: recorder.record(conversation.system, conversation.messages, p)
    )
    return conversation, recorder, errors


def test_a_recorder_keeps_the_stored_conversation_equal_to_the_live_one(store):
    conversation, recorder, errors = recorded(store)
    conversation.clear()
    assert store.conversations() == []  # an empty chat leaves no trace
    conversation.append(Message("user", "a"))
    conversation.append(Message("assistant", "b"))
    conversation.append(Message("user", "c"))
    conversation.edit_last("d")
    assert store.messages(recorder.stored) == list(conversation.messages)
    conversation.set_system("new")
    assert store.conversations()[0].system == "new"
    conversation.clear()
    assert store.messages(recorder.stored) == []
    assert errors == []


def test_a_history_that_breaks_is_told_once_and_the_chat_goes_on(store):
    conversation, _, errors = recorded(store)
    conversation.append(Message("user", "a"))
    store.close()
    conversation.append(Message("assistant", "b"))
    conversation.append(Message("user", "c"))
    assert len(conversation.messages) == 3
    assert len(errors) == 1
    assert "goes on" in errors[0]
