"""What goes wrong is told in OpenAI's shape, with the field and the numbers."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest

from tests.engine.fakes import FakeRunner, text_model

GOOD: dict[str, Any] = {
    "model": "fake",
    "messages": [{"role": "user", "content": "say hi"}],
    "temperature": 0,
}


def post(service: Any, body: object, path: str = "/v1/chat/completions", **options: Any) -> httpx.Response:
    return httpx.post(service.url + path, json=body, timeout=20, **options)


def error_of(response: httpx.Response, status: int) -> dict[str, Any]:
    assert response.status_code == status, response.text
    document = response.json()
    assert set(document) == {"error"}
    error: dict[str, Any] = document["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"]
    return error


def message(content: object, role: object = "user") -> dict[str, Any]:
    return {**GOOD, "messages": [GOOD["messages"][0], {"role": role, "content": content}]}


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"model": "fake"}, "messages"),
        ({**GOOD, "messages": []}, "messages"),
        ({**GOOD, "messages": "hi"}, "messages"),
        ({**GOOD, "messages": ["hi"]}, "messages[0]"),
        ({**GOOD, "messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
        (message(["plain"]), "messages[1].content"),
        (message(None), "messages[1].content"),
        (message(3), "messages[1].content"),
        (message([{"type": "image_url", "image_url": {"url": "x"}}]), "messages[1].content"),
        (message([{"type": "text"}]), "messages[1].content"),
        ({**GOOD, "temperature": -1}, "temperature"),
        ({**GOOD, "temperature": "hot"}, "temperature"),
        ({**GOOD, "top_p": 0}, "top_p"),
        ({**GOOD, "top_k": 1.5}, "top_k"),
        ({**GOOD, "seed": 2**70}, "seed"),
        ({**GOOD, "max_tokens": 0}, "max_tokens"),
        ({**GOOD, "max_tokens": -2}, "max_tokens"),
        ({**GOOD, "max_completion_tokens": 0}, "max_completion_tokens"),
        ({**GOOD, "stop": ["a"] * 100}, "stop"),
        ({**GOOD, "stop": [""]}, "stop"),
        ({**GOOD, "stop": [3]}, "stop[0]"),
        ({**GOOD, "stream": "perhaps"}, "stream"),
        ({**GOOD, "chat_template_kwargs": 3}, "chat_template_kwargs"),
        ({**GOOD, "n": 2}, "n"),
        ({**GOOD, "logprobs": True}, "logprobs"),
        ({**GOOD, "top_logprobs": 3}, "top_logprobs"),
        ({**GOOD, "logit_bias": {"1": 5}}, "logit_bias"),
        ({**GOOD, "frequency_penalty": 0.5}, "frequency_penalty"),
        ({**GOOD, "tools": [{"type": "function", "function": {"name": "f"}}]}, "tools"),
        ({**GOOD, "response_format": {"type": "json_object"}}, "response_format"),
        ({"messages": GOOD["messages"]}, "model"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_wrong_field_is_named(service: Any, body: dict[str, Any], param: str, stream: bool) -> None:
    error = error_of(post(service, {"stream": stream, **body}), 400)
    assert error["param"] == param
    assert error["type"] == "invalid_request_error"
    assert param in error["message"]


@pytest.mark.parametrize(
    "fields",
    [
        {"n": 1},
        {"logprobs": False},
        {"logit_bias": {}},
        {"frequency_penalty": 0, "presence_penalty": 0.0},
        {"tools": []},
        {"tools": [{"type": "function"}], "tool_choice": "none"},
        {"response_format": {"type": "text"}},
        {"stop": None, "seed": None, "top_p": None, "stream": None, "stream_options": None},
        {"top_k": -1},
        {"metadata": {"a": "b"}, "service_tier": "auto", "parallel_tool_calls": True},
    ],
    ids=str,
)
def test_fields_that_ask_for_nothing_special_are_fine(service: Any, fields: dict[str, Any]) -> None:
    response = post(service, {**GOOD, **fields})
    assert response.status_code == 200, response.text


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"3", b'{"a": NaN}', b"\xff\xfe", b'{"model": "\\ud83d"}', b"[" * 100_000]
)
def test_a_body_that_is_no_json_object(service: Any, body: bytes) -> None:
    response = httpx.post(f"{service.url}/v1/chat/completions", content=body)
    assert error_of(response, 400)["code"] == "invalid_json"


def test_an_unknown_model_gets_404_with_the_served_name(service: Any) -> None:
    error = error_of(post(service, {**GOOD, "model": "no-such-model"}), 404)
    assert error["code"] == "model_not_found"
    assert "'fake'" in error["message"]
    with pytest.raises(openai.NotFoundError):
        service.client.chat.completions.create(model="no-such-model", messages=GOOD["messages"])
    assert error_of(httpx.get(f"{service.url}/v1/models/other"), 404)["code"] == "model_not_found"


def test_a_prompt_beyond_the_context_names_both_numbers(start: Any) -> None:
    service = start(FakeRunner(context_length=64))
    body = {**GOOD, "messages": [{"role": "user", "content": "x" * 100}]}
    plain = error_of(post(service, body), 400)
    assert plain["code"] == "context_length_exceeded"
    assert "64" in plain["message"]
    prompt = (
        len(service.engine.ready.text.encode("x" * 100 + "user\nassistant\n\n", add_special_tokens=False)) + 3
    )
    assert str(prompt) in plain["message"]
    assert error_of(post(service, {**body, "stream": True}), 400) == plain


def test_a_prompt_beyond_the_cache_points_to_its_option(start: Any) -> None:
    service = start(FakeRunner(context_length=4096, kv_tokens=128))
    error = error_of(post(service, {**GOOD, "messages": [{"role": "user", "content": "x" * 200}]}), 400)
    assert error["code"] == "context_length_exceeded"
    assert "128" in error["message"]
    assert "4096" in error["message"]
    assert "--max-total-tokens" in error["message"]


def test_unknown_paths_and_wrong_methods(service: Any) -> None:
    assert error_of(httpx.get(f"{service.url}/v1/nothing"), 404)["code"] == "not_found"
    assert error_of(httpx.post(f"{service.url}/v1/responses", json={}), 404)["code"] == "not_found"
    response = httpx.get(f"{service.url}/v1/chat/completions")
    assert error_of(response, 405)["code"] == "method_not_allowed"
    assert "POST" in response.headers["allow"]


def test_a_body_that_is_announced_too_large_is_refused_before_it_comes(service: Any) -> None:
    host, port = service.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999\r\n\r\n"
        )
        answer = b""
        while piece := connection.recv(65536):  # until the server closes: it will not read the rest
            answer += piece
    assert answer.startswith(b"HTTP/1.1 413")
    assert b"request_too_large" in answer
    assert post(service, GOOD).status_code == 200


def test_a_body_that_grows_too_large_is_refused(service: Any) -> None:
    def pieces() -> Iterator[bytes]:
        for _ in range(40):
            yield b"x" * (1 << 20)

    # The server answers and closes while the client may still be writing: either way it is not accepted.
    with contextlib.suppress(httpx.WriteError, httpx.ReadError, httpx.RemoteProtocolError):
        response = httpx.post(f"{service.url}/v1/chat/completions", content=pieces(), timeout=20)
        assert error_of(response, 413)["code"] == "request_too_large"
    assert post(service, GOOD).status_code == 200


def test_while_loading_requests_get_503_and_health_tells_the_phase(start_loading: Any) -> None:
    go = threading.Event()
    service = start_loading(before_load=lambda: go.wait(20))
    try:
        end = 0
        while (health := httpx.get(f"{service.url}/health")).json()["phase"] != "checkpoint":
            end += 1
            assert end < 2000
        assert health.status_code == 503
        assert health.json()["progress"] == 0.5
        assert isinstance(health.json()["detail"], str)
        response = post(service, GOOD)
        assert error_of(response, 503)["code"] == "model_loading"
        assert "checkpoint" in response.json()["error"]["message"]
        assert response.headers["retry-after"] == "1"
        assert error_of(httpx.get(f"{service.url}/v1/models"), 503)["code"] == "model_loading"
        assert httpx.get(f"{service.url}/metrics").status_code == 200
        assert httpx.get(f"{service.url}/v1/loads").status_code == 200
    finally:
        go.set()


def test_an_api_key(start: Any) -> None:
    service = start(api_key="s3cret")
    models = f"{service.url}/v1/models"
    for headers in (
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": "s3cret"},
        {"x-api-key": "S3CRET"},
    ):
        response = httpx.get(models, headers=headers)
        assert error_of(response, 401)["code"] == "invalid_api_key"
        assert response.headers["www-authenticate"] == "Bearer"
        assert "s3cret" not in response.text
    for headers in (
        {"Authorization": "Bearer s3cret"},
        {"authorization": "bearer s3cret"},
        {"x-api-key": "s3cret"},
    ):
        assert httpx.get(models, headers=headers).status_code == 200
    assert error_of(post(service, GOOD), 401)
    with pytest.raises(openai.AuthenticationError):
        service.client.models.list()
    assert httpx.get(f"{service.url}/health").status_code == 200
    assert "s3cret" not in service.log
    assert "s3cret" not in repr(service.engine.config)


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("localhost:1234", 200),
        ("127.0.0.1:30000", 200),
        ("[::1]:80", 200),
        ("127.5.5.5", 200),
        ("evil.example", 403),
        ("localhost.evil.example", 403),
        ("127.0.0.1.evil.example", 403),
        ("10.0.0.1", 403),
        ("", 403),
        ("[", 403),
    ],
)
def test_only_this_machines_names_are_served(service: Any, host: str, status: int) -> None:
    response = httpx.get(f"{service.url}/health", headers={"Host": host})
    assert response.status_code == status
    if status == 403:
        assert error_of(response, 403)["code"] == "host_not_allowed"


def test_no_other_site_may_read_answers(service: Any) -> None:
    response = httpx.get(f"{service.url}/v1/models", headers={"Origin": "https://evil.example"})
    assert not [name for name in response.headers if name.startswith("access-control")]


def test_a_template_that_refuses_and_one_that_is_missing(start: Any) -> None:
    refusal = "{{ raise_exception('a system message must come first') }}"
    strict = "{% if messages[0].role != 'system' %}" + refusal + "{% endif %}"
    error = error_of(post(start(None, text_model(strict)), GOOD), 400)
    assert "a system message must come first" in error["message"]
    assert error["param"] == "messages"
    assert error_of(post(start(None, text_model(None)), GOOD), 400)["code"] == "no_chat_template"


def test_a_fault_in_the_engine_is_told_and_the_next_request_works(start: Any) -> None:
    service = start()
    nan = {**GOOD, "messages": [{"role": "user", "content": "nan"}]}
    assert error_of(post(service, nan), 500)["code"] == "generation_failed"
    with pytest.raises(openai.APIError, match="not a number"):
        list(service.client.chat.completions.create(**nan, stream=True))
    service.runner.fail_next = RuntimeError("boom")
    assert "boom" in error_of(post(service, GOOD), 500)["message"]
    assert post(service, GOOD).status_code == 200


def test_the_log_says_what_ended_how_and_not_what_was_said(start: Any) -> None:
    service = start()
    body = {**GOOD, "messages": [{"role": "user", "content": "say confidential"}]}
    identity = post(service, body).json()["id"]
    (line,) = [line for line in service.log.splitlines() if identity in line]
    assert "finish=stop" in line
    assert "completion_tokens=13" in line
    assert "confidential" not in service.log


def test_models_metrics_and_loads(start: Any) -> None:
    service = start()
    (model,) = service.client.models.list().data
    assert model.id == "fake"
    assert model.max_model_len == 1024
    assert service.client.models.retrieve("fake").id == "fake"
    for _ in range(3):
        post(service, GOOD)
    service.wait_until_idle()
    metrics = httpx.get(f"{service.url}/metrics")
    assert metrics.headers["content-type"].startswith("text/plain")
    values = dict(line.rsplit(" ", 1) for line in metrics.text.splitlines() if not line.startswith("#"))
    assert values['kt:num_requests_total{reason="stop"}'] == "3.0"
    assert values["kt:generation_tokens_total"] == "9.0"
    assert values["kt:time_to_first_token_seconds_count"] == "3.0"
    assert values["kt:time_per_output_token_seconds_count"] == "3.0"
    assert values["kt:num_running_reqs"] == "0.0"
    assert values["kt:max_total_num_tokens"] == "8192.0"
    assert float(values["kt:engine_startup_time_seconds"]) > 0
    document = httpx.get(f"{service.url}/v1/loads").json()
    assert document["dp_rank_count"] == 1
    assert document["loads"][0]["max_total_num_tokens"] == 8192
    assert document["aggregate"]["total_reqs"] == 0
    assert json.loads(httpx.get(service.url + "/").text)["name"] == "kt-engine"
    assert httpx.head(service.url + "/").status_code == 200


def test_a_prompt_of_megabytes_is_refused_before_it_is_encoded(start: Any) -> None:
    service = start(FakeRunner(context_length=64))
    for path, body in (
        ("/v1/chat/completions", {**GOOD, "messages": [{"role": "user", "content": "x" * 5_000_000}]}),
        ("/v1/completions", {"model": GOOD["model"], "prompt": "x" * 5_000_000}),
    ):
        error = error_of(httpx.post(service.url + path, json=body, timeout=30), 400)
        assert error["code"] == "context_length_exceeded"
        assert "characters" in error["message"]  # tokens would have been counted by encoding


@pytest.mark.parametrize("prompt", [[1.0, 2], [True], ["1"]])
def test_token_ids_of_a_prompt_are_whole_numbers(start: Any, prompt: list[object]) -> None:
    service = start(FakeRunner())
    body = {"model": GOOD["model"], "prompt": prompt, "max_tokens": 1}
    error_of(httpx.post(service.url + "/v1/completions", json=body, timeout=30), 400)
