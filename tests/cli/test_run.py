import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import aclosing

import httpx
import psutil
import pytest

from kt_tui.chat import ChatOptions, ContentDelta, Endpoint, Finished, stream_chat
from kt_tui.cli.main import main


@pytest.fixture
def port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_a_dry_run_prints_the_plan_and_starts_nothing(kt_home, kt_paths, capsys, port):
    before = {p.pid for p in psutil.Process().children(recursive=True)}
    code = main(["run", "smollm2", "-p", str(port), "--dry-run", "--json", "--some-engine-flag", "7"])
    document = json.loads(capsys.readouterr().out)
    assert code == 0
    assert document["argv"][1:4] == ["-m", "engine", "serve"]
    assert document["argv"][-2:] == ["--some-engine-flag", "7"]
    assert document["parameters"]["port"] == {"value": port, "origin": "cli"}
    assert {p.pid for p in psutil.Process().children(recursive=True)} == before
    assert not kt_paths.engines.exists()


def test_an_unknown_model_is_one_sentence(kt_home, capsys):
    code = main(["run", "no-such-model"])
    captured = capsys.readouterr()
    assert code in {1, 2}
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 1
    assert "no-such-model" in captured.err


def test_a_busy_port_is_told_before_anything_starts(kt_home, capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code = main(["run", "smollm2", "-p", str(taken.getsockname()[1])])
    captured = capsys.readouterr()
    assert code == 1
    assert f"in use by process {os.getpid()}" in captured.err


class Engine:
    """``kt-tui run`` in a process of its own."""

    def __init__(self, *arguments):
        command = [sys.executable, "-m", "kt_tui", "run", *arguments]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        self.err = []

    def wait_ready(self):
        for line in self.process.stderr:
            self.err.append(line)
            if line.startswith("kt-tui: ready"):
                return
        pytest.fail("not ready: " + "".join(self.err))

    def tree(self):
        return [p for p in psutil.process_iter() if self._ours(p)]

    def _ours(self, process):
        with contextlib.suppress(psutil.Error):
            return (
                process.environ().get("KT_TUI_HOME") == os.environ["KT_TUI_HOME"]
                and process.pid != os.getpid()
            )
        return False

    def finish(self):
        out, err = self.process.communicate(timeout=60)
        return self.process.returncode, out, "".join(self.err) + err


@pytest.fixture
def engine(kt_home):
    made = []

    def start(*arguments):
        made.append(Engine(*arguments))
        return made[-1]

    yield start
    for each in made:
        each.process.kill()
        each.process.wait()
        each.process.stdout.close()
        each.process.stderr.close()


@pytest.mark.slow
def test_the_real_engine_runs_answers_and_ends_with_ctrl_c(engine, port, capsys):
    running = engine("smollm2", "-p", str(port), "--cpu-threads", "1", "--max-total-tokens", "512")
    running.wait_ready()
    assert len(running.tree()) >= 3  # the command, the keeper, the engine
    # Found through its state file: no host, no port given.
    assert main(["chat", "--once", "Say hello.", "-t", "0", "--max-tokens", "4", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["content"]
    assert document["usage"]["completion_tokens"] <= 4
    assert document["metrics"]["ttft_s"] > 0
    running.process.send_signal(signal.SIGINT)
    code, out, err = running.finish()
    assert code == 0
    assert "no process is left and the port is free" in err
    assert "kt-engine phase=weights" in out
    assert running.tree() == []


@pytest.mark.slow
def test_a_killed_engine_is_told_with_its_reason_and_exit_code_one(engine, port, kt_paths):
    running = engine("smollm2", "-p", str(port), "--cpu-threads", "1", "--max-total-tokens", "512", "--json")
    running.wait_ready()
    record = json.loads((kt_paths.engines / f"port-{port}.json").read_text())
    with httpx.stream(
        "POST",
        f"http://127.0.0.1:{port}/v1/chat/completions",
        json={"model": record["model"], "messages": [{"role": "user", "content": "Count."}], "stream": True},
        timeout=60,
        trust_env=False,
    ) as answer:
        next(answer.iter_bytes())
        os.kill(record["pid"], signal.SIGKILL)
    code, out, err = running.finish()
    document = json.loads(out)
    assert code == 1
    assert document["state"] == "failed"
    assert document["exit_code"] == -signal.SIGKILL
    assert "killed by SIGKILL from outside" in document["reason"]
    assert document["reason"] in err
    assert running.tree() == []


@pytest.mark.slow
def test_killing_the_command_while_the_engine_loads_leaves_no_process(engine, port):
    running = engine("smollm2", "-p", str(port), "--cpu-threads", "1")
    for line in running.process.stderr:
        if line.startswith("kt-tui: starting"):
            break
    running.process.kill()
    due = time.monotonic() + 30
    while running.tree() and time.monotonic() < due:
        time.sleep(0.1)
    assert running.tree() == []


@pytest.mark.slow
async def test_a_stopped_answer_stops_in_the_engine_and_the_next_one_is_answered(engine, port):
    running = engine("smollm2", "-p", str(port), "--cpu-threads", "1", "--max-total-tokens", "1024")
    await asyncio.to_thread(running.wait_ready)
    endpoint = Endpoint(f"http://127.0.0.1:{port}")
    question = [{"role": "user", "content": "Write a very long story."}]
    pieces = 0
    async with aclosing(stream_chat(endpoint, question, ChatOptions(max_tokens=800))) as events:
        async for event in events:
            pieces += isinstance(event, ContentDelta)
            if pieces == 3:
                break
    async with httpx.AsyncClient(trust_env=False) as client, asyncio.timeout(20):
        while (await client.get(endpoint.url("/v1/loads"))).json()["loads"][0]["num_running_reqs"]:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    short = [{"role": "user", "content": "Hi"}]
    *_, last = [event async for event in stream_chat(endpoint, short, ChatOptions(max_tokens=3))]
    assert isinstance(last, Finished)
    assert last.usage.completion_tokens <= 3
    running.process.send_signal(signal.SIGTERM)
    code, _, _ = await asyncio.to_thread(running.finish)
    assert code == 0
