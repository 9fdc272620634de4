"""A client that goes away stops its generation, and nobody else's."""

from __future__ import annotations

import json
import socket
import time
from typing import Any

import httpx
import pytest

from tests.engine.fakes import FakeRunner

BODY = {"model": "fake", "messages": [{"role": "user", "content": "forever"}], "temperature": 0}


def post(service: Any, body: dict[str, Any]) -> socket.socket:
    """A request whose connection the test can cut at any moment."""
    host, port = service.url.removeprefix("http://").split(":")
    connection = socket.create_connection((host, int(port)))
    data = json.dumps(body).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data)}\r\n\r\n"
    connection.sendall(head.encode() + data)
    return connection


def wait_for_steps(service: Any, count: int) -> None:
    end = time.monotonic() + 20
    while len(service.runner.steps) < count:
        assert time.monotonic() < end
        time.sleep(0.005)


@pytest.mark.parametrize("stream", [False, True])
def test_generation_ends_soon_after_the_client(start: Any, stream: bool) -> None:
    service = start(FakeRunner(context_length=100_000, kv_tokens=100_000, step_s=0.01))
    connection = post(service, {**BODY, "stream": stream})
    wait_for_steps(service, 10)
    assert service.load()["num_running_reqs"] == 1
    connection.close()
    service.wait_until_idle()
    steps = len(service.runner.steps)
    assert steps < 1000
    time.sleep(0.1)
    assert len(service.runner.steps) == steps
    assert service.runner.held == {}
    answer = httpx.post(f"{service.url}/v1/chat/completions", json={**BODY, "max_tokens": 3})
    assert answer.json()["choices"][0]["message"]["content"] == "aaa"


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_during_its_prompt_stops_it(start: Any, stream: bool) -> None:
    service = start(
        FakeRunner(context_length=100_000, kv_tokens=100_000, step_s=0.01), chunked_prefill_size=8
    )
    messages = [{"role": "user", "content": "forever " + "x" * 50_000}]
    connection = post(service, {**BODY, "messages": messages, "stream": stream})
    wait_for_steps(service, 5)
    connection.close()
    service.wait_until_idle()
    assert len(service.runner.steps) < 6000
    assert service.runner.held == {}


def test_others_go_on(start: Any) -> None:
    service = start(FakeRunner(context_length=100_000, kv_tokens=100_000, step_s=0.005))
    leaving = post(service, {**BODY, "stream": True})
    staying = post(service, {**BODY, "max_tokens": 60})
    wait_for_steps(service, 20)
    leaving.close()
    received = b""
    while b"finish_reason" not in received:
        piece = staying.recv(65536)
        assert piece
        received += piece
    assert b'"content":"' + b"a" * 60 + b'"' in received
    service.wait_until_idle()


def test_two_hundred_aborted_requests_leave_nothing(start: Any) -> None:
    service = start(FakeRunner(context_length=10_000, kv_tokens=2048, step_s=0.001))
    for i in range(200):
        connection = post(service, {**BODY, "stream": i % 2 == 0})
        if i % 3:
            connection.recv(10) if i % 2 == 0 else time.sleep(0.002)
        connection.close()
    service.wait_until_idle(30)
    assert service.runner.held == {}
    assert service.load()["num_used_tokens"] == 0


def test_a_slow_reader_gets_everything(start: Any) -> None:
    service = start(FakeRunner(context_length=10_000))
    connection = post(service, {**BODY, "stream": True, "max_tokens": 5000})
    time.sleep(0.3)
    received = b""
    while b"[DONE]" not in received:
        piece = connection.recv(1024)
        assert piece
        received += piece
    events = [e for e in received.decode().split("data: ") if '"content":"' in e]
    text = "".join(e.split('"content":"')[1].split('"')[0] for e in events)
    assert text == "a" * 5000
