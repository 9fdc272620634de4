"""Whatever a body holds, the answer is a document and never a fault of the server's."""

from __future__ import annotations

import string
from typing import Any

import httpx
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
SENSIBLE: dict[str, st.SearchStrategy[Any]] = {
    "temperature": st.floats(0, 3),
    "top_p": st.floats(0.01, 1),
    "top_k": st.integers(-1, 300),
    "min_p": st.floats(0, 1),
    "seed": st.integers(-(2**63), 2**63 - 1),
    "max_tokens": st.integers(1, 5),
    "max_completion_tokens": st.integers(1, 5),
    "stop": st.text(min_size=1, max_size=3) | st.lists(st.text(min_size=1, max_size=3), max_size=3),
    "stop_token_ids": st.lists(st.integers(0, 300), max_size=3),
    "ignore_eos": st.booleans(),
    "stream": st.booleans(),
    "stream_options": st.fixed_dictionaries({"include_usage": st.booleans()}),
    "add_generation_prompt": st.booleans(),
    "chat_template_kwargs": st.dictionaries(st.sampled_from(["messages", "tools", "x"]), JSON, max_size=2),
    "tools": st.just([]),
    "logprobs": st.just(False),
}
CONTENT = st.text(string.printable + "é😀", max_size=12) | st.lists(
    st.fixed_dictionaries({"type": st.just("text"), "text": st.text(max_size=6)}), max_size=2
)
MESSAGE = st.fixed_dictionaries(
    {"role": st.sampled_from(["system", "developer", "user", "assistant", "tool"]), "content": CONTENT},
    optional={"name": JSON, "reasoning_content": JSON, "tool_calls": JSON},
)
FAST = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def post(service: Any, body: object) -> httpx.Response:
    response = httpx.post(f"{service.url}/v1/chat/completions", json=body, timeout=20)
    assert response.status_code < 500, response.text
    if response.status_code != 200:
        assert set(response.json()["error"]) == {"message", "type", "param", "code"}
    return response


@FAST
@given(st.dictionaries(st.sampled_from([*SENSIBLE, "messages", "model", "n"]), JSON))
def test_any_values(service: Any, fields: dict[str, Any]) -> None:
    # A body that happens to be valid must not run for long.
    limits = {"max_tokens": 3, "max_completion_tokens": 3}
    messages = [{"role": "user", "content": "say hi"}]
    post(service, {"model": "fake", "messages": messages, **fields, **limits})


@FAST
@given(st.lists(MESSAGE, min_size=1, max_size=4), st.fixed_dictionaries({}, optional=SENSIBLE))
def test_sensible_values_are_answered(service: Any, messages: list[Any], fields: dict[str, Any]) -> None:
    fields.setdefault("max_tokens", 3)
    response = post(service, {"model": "fake", "messages": messages, **fields})
    if response.status_code == 400:
        # What may still be wrong: tool_calls that are no list of objects.
        assert "tool_calls" in response.text, response.text
    elif fields.get("stream"):
        assert response.text.endswith("data: [DONE]\n\n")
    else:
        assert response.json()["choices"][0]["finish_reason"] in ("stop", "length")


@FAST
@given(st.binary(max_size=60))
def test_any_bytes(service: Any, body: bytes) -> None:
    response = httpx.post(f"{service.url}/v1/chat/completions", content=body, timeout=20)
    assert response.status_code == 400
    assert response.json()["error"]["code"] in ("invalid_json", "invalid_value", "missing_model")
