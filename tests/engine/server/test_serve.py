"""``python -m engine serve`` as a process of its own, on the real models."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

GERMANY: list[Any] = [{"role": "user", "content": "What is the capital of Germany?"}]
BERLIN = "The capital of Germany is Berlin."
ENVIRONMENT = {**os.environ, "PYTHONUNBUFFERED": "1"}


@dataclass
class Process:
    """An engine process and what it has written."""

    popen: subprocess.Popen[str]
    path: Path

    @property
    def output(self) -> str:
        return self.path.read_text()

    def wait_for(self, pattern: str, seconds: float = 120) -> re.Match[str]:
        end = time.monotonic() + seconds
        while True:
            found = re.search(pattern, self.output)
            if found:
                return found
            assert self.popen.poll() is None, f"ended with {self.popen.returncode}: {self.output}"
            assert time.monotonic() < end, self.output
            time.sleep(0.05)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.wait_for(r'port=([0-9]+)')[1]}"

    def stop(self) -> int:
        if self.popen.poll() is None:
            self.popen.send_signal(signal.SIGTERM)
        return self.popen.wait(30)


Start = Callable[..., Process]


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Start]:
    with ExitStack() as stack:
        count = iter(range(100))

        def start(*argv: str, **environ: str) -> Process:
            path = tmp_path / f"engine-{next(count)}.log"
            with path.open("w") as output:
                popen = subprocess.Popen(
                    [sys.executable, "-m", "engine", "serve", *argv],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    text=True,
                    env={**ENVIRONMENT, **environ},
                )
            process = Process(popen, path)
            stack.callback(popen.wait, 30)
            stack.callback(popen.kill)
            return process

        yield start


def run(*argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "engine", *argv],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
        env=ENVIRONMENT,
    )


def test_wrong_usage_ends_with_2_and_a_line_for_each_field() -> None:
    done = run("serve", "--model", "x", "--port", "x", "--device", "y")
    assert done.returncode == 2
    assert [line.split()[:3] for line in done.stderr.splitlines()] == [
        ["kt-engine", "error:", "--port"],
        ["kt-engine", "error:", "--device"],
    ]
    assert run().returncode == 2
    assert run("serve", "--help").returncode == 0


def one_sentence(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 1, done.stdout + done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("kt-engine error: ")
    assert "Traceback" not in done.stdout
    return line


def test_a_model_that_is_not_there(tmp_path: Path) -> None:
    assert str(tmp_path / "none") in one_sentence(run("serve", "--model", str(tmp_path / "none")))


def test_a_port_in_use_names_its_owner_before_anything_is_loaded(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run("serve", "--model", str(tmp_path), "--port", str(port))
    line = one_sentence(done)
    assert f"Port {port}" in line
    assert f"pid {os.getpid()}" in line
    assert "--port" in line
    assert "phase" not in done.stdout


def test_an_address_of_another_machine(tmp_path: Path) -> None:
    assert "--host 192.0.2.1" in one_sentence(run("serve", "--model", str(tmp_path), "--host", "192.0.2.1"))
    assert "--host no.such.host.invalid" in one_sentence(
        run("serve", "--model", str(tmp_path), "--host", "no.such.host.invalid")
    )


def test_an_empty_folder_is_told_in_one_sentence(tmp_path: Path) -> None:
    assert str(tmp_path) in one_sentence(run("serve", "--model", str(tmp_path), "--port", "0"))


def client_of(url: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)


def check_a_model(start: Start, model: Path, name: str) -> None:
    process = start("--model", str(model), "--port", "0", "--served-model-name", name, KT_ENGINE_API_KEY="")
    url = process.url
    phases = []
    while (health := httpx.get(f"{url}/health")).status_code == 503:
        phases.append(health.json()["phase"])
        time.sleep(0.02)
    assert health.json() == {"status": "ok", "model": name}
    order = ["start", "checkpoint", "weights", "warmup"]
    assert phases == sorted(phases, key=order.index)
    process.wait_for(rf"kt-engine ready host=127\.0\.0\.1 port=[0-9]+ model={name} load_s=[0-9.]+\n")

    question: dict[str, Any] = {"model": name, "messages": GERMANY, "temperature": 0, "max_tokens": 32}
    with client_of(url) as client:
        stream: list[Any] = list(
            client.chat.completions.create(**question, stream=True, stream_options={"include_usage": True})
        )
        whole = client.chat.completions.create(**question)
    assert "".join(c.choices[0].delta.content or "" for c in stream if c.choices) == BERLIN
    assert stream[-1].usage.prompt_tokens == 37
    assert stream[-1].usage.completion_tokens == 8
    assert whole.choices[0].message.content == BERLIN
    assert whole.choices[0].finish_reason == "stop"

    async def several() -> list[str | None]:
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
            calls = [client.chat.completions.create(**question) for _ in range(4)]
            return [answer.choices[0].message.content for answer in await asyncio.gather(*calls)]

    assert asyncio.run(several()) == [BERLIN] * 4
    loads = httpx.get(f"{url}/v1/loads").json()["loads"][0]
    assert (loads["num_total_reqs"], loads["num_used_tokens"]) == (0, 0)
    assert process.stop() == 0
    assert process.output.rstrip().endswith("kt-engine stopped")
    assert "Traceback" not in process.output


@pytest.mark.slow
def test_the_demo_model_answers(engine: Start, demo_model: Path) -> None:
    check_a_model(engine, demo_model, "demo")


@pytest.mark.slow
def test_the_dense_model_answers(engine: Start, smollm2_gguf: Path) -> None:
    check_a_model(engine, smollm2_gguf, "smollm2")


@pytest.mark.slow
def test_a_signal_while_a_request_runs_ends_both(engine: Start, smollm2_gguf: Path) -> None:
    process = engine("--model", str(smollm2_gguf), "--port", "0", "--served-model-name", "m")
    process.wait_for("kt-engine ready")
    with client_of(process.url) as client:
        stream = client.chat.completions.create(
            model="m",
            messages=[{"role": "user", "content": "Count."}],
            stream=True,
            temperature=0,
            extra_body={"ignore_eos": True},
        )
        chunks = iter(stream)
        for _ in range(5):
            next(chunks)
        process.popen.send_signal(signal.SIGTERM)
        rest = list(chunks)
    assert rest[-1].choices[0].finish_reason == "abort"
    assert process.popen.wait(20) == 0


@pytest.mark.slow
def test_a_signal_while_loading_ends_it(engine: Start, demo_model: Path) -> None:
    process = engine("--model", str(demo_model), "--port", "0")
    process.wait_for("phase=weights")
    assert process.stop() == 0
    assert "ready" not in process.output
    assert "error" not in process.output


@pytest.mark.slow
@pytest.mark.parametrize("keep", [0.5, 0.0001])
def test_a_truncated_checkpoint_is_told_in_one_sentence(
    demo_model: Path, tmp_path: Path, keep: float
) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    shards = sorted(demo_model.glob("*.safetensors"))
    for path in demo_model.iterdir():
        if path != shards[-1]:
            (broken / path.name).symlink_to(path)
    shutil.copy(shards[-1], broken / shards[-1].name)
    os.truncate(broken / shards[-1].name, int(shards[-1].stat().st_size * keep))
    assert shards[-1].name in one_sentence(run("serve", "--model", str(broken), "--port", "0"))


@pytest.mark.slow
def test_a_truncated_gguf_is_told_in_one_sentence(smollm2_gguf: Path, tmp_path: Path) -> None:
    path = tmp_path / "cut.gguf"
    with smollm2_gguf.open("rb") as source:
        path.write_bytes(source.read(20_000_000))
    assert "cut.gguf" in one_sentence(run("serve", "--model", str(path), "--port", "0"))


@pytest.mark.slow
def test_a_secret_is_in_no_output(engine: Start, smollm2_gguf: Path) -> None:
    argv = ("--model", str(smollm2_gguf), "--port", "0", "--log-level", "debug")
    process = engine(*argv, KT_ENGINE_API_KEY="s3cret-key")
    process.wait_for("kt-engine ready")
    assert httpx.get(f"{process.url}/v1/models").status_code == 401
    headers = {"Authorization": "Bearer s3cret-key"}
    assert httpx.get(f"{process.url}/v1/models", headers=headers).status_code == 200
    assert process.stop() == 0
    assert "s3cret-key" not in process.output
