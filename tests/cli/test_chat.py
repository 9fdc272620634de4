import asyncio
import contextlib
import importlib.util
import io
import json
import os
import pty
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pexpect
import pytest

from kt_tui.chat.store import ChatStore
from kt_tui.cli.main import main

_spec = importlib.util.spec_from_file_location(
    "raw_server", Path(__file__).parent.parent / "chat" / "raw_server.py"
)
raw = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(raw)


@pytest.fixture
def server(kt_home, monkeypatch):
    """The raw server in a thread, because the command runs its own event loop. Its port is the default one."""
    loop = asyncio.new_event_loop()
    made = raw.RawServer()
    loop.run_until_complete(made.__aenter__())
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    monkeypatch.setenv("KT_TUI_PORT", str(made.port))
    yield made

    async def end():
        await made.__aexit__()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    asyncio.run_coroutine_threadsafe(end(), loop).result(10)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def chat(capsys, *arguments):
    code = main(["chat", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_once_prints_the_answer_and_nothing_else(server, capsys):
    server.stream(
        raw.delta(reasoning_content="hm"), raw.delta(content="Ber"), raw.delta(content="lin"), raw.finish()
    )
    assert chat(capsys, "--once", "capital?") == (0, "Berlin\n", "")
    (body,) = server.bodies
    assert body["model"] == "served"
    assert body["messages"] == [{"role": "user", "content": "capital?"}]
    assert body["max_tokens"] == 2048  # the setting's default
    assert "temperature" not in body  # the model's makers know better


def test_once_as_json_has_the_documented_keys(server, capsys):
    server.stream(
        raw.delta(reasoning_content="hm"),
        raw.delta(content="Berlin"),
        raw.delta(tool_calls=[{"index": 0, "id": "c", "function": {"name": "f", "arguments": "{"}}]),
        raw.finish("length"),
        raw.usage(10, 5),
    )
    code, out, err = chat(capsys, "--once", "q", "--json")
    document = json.loads(out)
    assert (code, err) == (0, "")
    assert document["content"] == "Berlin"
    assert document["reasoning"] == "hm"
    assert document["finish_reason"] == "length"
    assert document["tool_calls"][0]["function"] == {"name": "f", "arguments": "{"}
    assert document["usage"]["completion_tokens"] == 5
    assert set(document["metrics"]) >= {"ttft_s", "tpot_s", "tokens_per_s"}
    assert document["errors"] == []
    assert "truncated" in document["note"]


def test_options_reach_the_server(server, capsys):
    server.stream(raw.delta(content="x"), raw.finish())
    address = ["-H", "0.0.0.0", "-p", str(server.port)]  # noqa: S104 - connects, does not bind
    options = ["-s", "be brief", "-t", "0", "--max-tokens", "5", "-m", "served", *address]
    assert chat(capsys, "--once", "q", *options)[0] == 0
    (body,) = server.bodies
    assert body["messages"][0] == {"role": "system", "content": "be brief"}
    assert (body["temperature"], body["max_tokens"]) == (0.0, 5)


def test_a_failed_answer_keeps_its_text_and_exits_with_one(server, capsys):
    server.stream(raw.delta(content="par"), {"error": {"message": "boom"}})
    code, out, err = chat(capsys, "--once", "q")
    assert (code, out) == (1, "par\n")
    assert "boom" in err
    code, out, _ = chat(capsys, "--once", "q", "--json")
    document = json.loads(out)
    assert (code, document["content"]) == (1, "par")
    assert "boom" in document["errors"][0]


def test_no_server_is_one_sentence_with_the_way_out(kt_home, capsys, monkeypatch):
    monkeypatch.setenv("KT_TUI_PORT", "9")
    code, out, err = chat(capsys, "--once", "q")
    assert (code, out) == (1, "")
    assert len(err.splitlines()) == 1
    assert "No server answers at http://127.0.0.1:9" in err
    assert "kt-tui run" in err
    code, out, _ = chat(capsys, "--once", "q", "--json")
    assert code == 1
    assert "No server answers" in json.loads(out)["errors"][0]


def test_a_prompt_file_comes_before_the_text(server, capsys, tmp_path):
    server.stream(raw.delta(content="x"), raw.finish())
    (tmp_path / "doc.txt").write_text("the document\n")
    assert chat(capsys, "--prompt-file", str(tmp_path / "doc.txt"), "--once", "summarise")[0] == 0
    assert server.bodies[0]["messages"][0]["content"] == "the document\n\nsummarise"
    assert chat(capsys, "--prompt-file", str(tmp_path / "absent"))[0] == 1


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(["--json"], 2), (["--once", "  "], 2), (["--once", "x", "-H", "http://127.0.0.1:1", "-p", "5"], 2)],
)
def test_wrong_usage(kt_home, capsys, arguments, code):
    assert chat(capsys, *arguments)[0] == code


@pytest.mark.parametrize(
    "option", [["-p", "0"], ["-t", "3"], ["-t", "nan"], ["--max-tokens", "0"], ["--wait", "-1"]]
)
def test_values_out_of_range_are_refused(kt_home, capsys, option):
    with pytest.raises(SystemExit) as caught:
        main(["chat", "--once", "x", *option])
    assert caught.value.code == 2
    assert option[1] in capsys.readouterr().err


def test_the_conversation_is_saved_unless_it_is_not_wanted(server, capsys, kt_paths):
    server.stream(raw.delta(content="x"), raw.finish())
    chat(capsys, "--once", "secret", "--no-save-history")
    assert not kt_paths.chats.exists()
    chat(capsys, "--once", "hello")
    store = ChatStore(kt_paths.chats)
    (info,) = store.conversations()
    assert (info.title, info.model) == ("hello", "served")
    assert [m.content for m in store.messages(info.id)] == ["hello", "x"]
    store.close()


def test_line_mode_talks_obeys_commands_and_ends_with_the_input(server, capsys, monkeypatch):
    server.chat(
        *(raw.response(raw.sse(raw.delta(content=text), raw.finish())) for text in ("one", "two", "three"))
    )
    monkeypatch.setattr(
        "sys.stdin", io.StringIO("first\n\n/retry\n/system be kind\nmore \\\nlines\n/nonsense\n")
    )
    code, out, _ = chat(capsys)
    assert code == 0
    assert [text for text in out.splitlines() if text in {"one", "two", "three"}] == ["one", "two", "three"]
    assert "no command /nonsense" in out
    asked = [[m["content"] for m in body["messages"]] for body in server.bodies]
    assert asked == [["first"], ["first"], ["be kind", "first", "two", "more \nlines"]]


def test_line_mode_shows_no_control_sequences(server, capsys, monkeypatch):
    server.stream(raw.delta(content="\x1b]0;title\x07[/bold]\u202e"), raw.finish())
    monkeypatch.setattr("sys.stdin", io.StringIO("q\n/quit\nnever\n"))
    _, out, _ = chat(capsys)
    assert "\x1b" not in out
    assert "\\x1b]0;title\\x07[/bold]\\u202e" in out
    assert len(server.bodies) == 1


def test_line_mode_goes_on_after_a_failure(server, capsys, monkeypatch):
    server.chat(raw.response(b"", "500 Oops"), raw.response(raw.sse(raw.delta(content="fine"), raw.finish())))
    monkeypatch.setattr("sys.stdin", io.StringIO("a\nb\n"))
    code, out, _ = chat(capsys)
    assert code == 0
    assert "[failed: " in out
    assert "fine" in out


def test_ctrl_c_stops_the_answer_and_keeps_what_came(server, kt_home):
    server.stream(raw.delta(content="partial text"), done=False)
    server.hold = True
    command = [sys.executable, "-m", "kt_tui", "chat", "--once", "q", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        for _ in range(1500):
            if server.connected.is_set():
                break
            threading.Event().wait(0.01)
        threading.Event().wait(0.3)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=20)
    finally:
        process.kill()
    document = json.loads(out)
    assert process.returncode == 1
    assert document["content"] == "partial text"
    assert document["status"] == "stopped"


def test_a_terminal_gets_cleaned_text(server, kt_home):
    server.stream(raw.delta(content="\x1b[2Jclear"), raw.finish())
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "kt_tui", "chat", "--once", "q"]
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=subprocess.DEVNULL)
    os.close(theirs)
    output = b""
    with contextlib.suppress(OSError):
        while piece := os.read(ours, 4096):
            output += piece
    process.wait(20)
    os.close(ours)
    assert output == b"\\x1b[2Jclear\r\n"


def test_on_a_plain_terminal_ctrl_c_stops_an_answer_and_the_chat_goes_on(server, kt_home):
    server.stream(raw.delta(content="partial text"), done=False)
    server.hold = True
    environment = {**os.environ, "TERM": "dumb"}
    child = pexpect.spawn(
        sys.executable, ["-m", "kt_tui", "chat"], env=environment, encoding="utf-8", timeout=30
    )
    try:
        child.expect("served at http://127.0.0.1:.*Ctrl")
        child.expect("> ")
        child.sendline("hello")
        child.expect("partial text")
        child.sendintr()
        child.expect(r"\[stopped\]")
        child.expect("> ")
        # Between drawing its prompt and waiting for keys the line editor can miss a Ctrl+C; a user presses it again.
        for _ in range(10):
            child.sendintr()
            if child.expect(["leaves", pexpect.TIMEOUT], timeout=3) == 0:
                break
        else:
            pytest.fail("Ctrl+C at the prompt was never answered")
        child.sendline("/info")
        child.expect("messages  2")
        child.expect("> ")
        child.sendline("/system be kind")
        child.expect("takes effect")
        child.expect("> ")
        child.sendeof()
        child.expect(pexpect.EOF)
    finally:
        child.close()
    assert child.exitstatus == 0
