"""Chat completions through the openai package: answers, streams, seeds, stops, many at once."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import openai
import pytest

from tests.engine.fakes import CHATML, FakeRunner, text_model


def user(text: str) -> list[Any]:
    return [{"role": "user", "content": text}]


def streamed(client: openai.OpenAI, text: str, **options: Any) -> list[Any]:
    stream = client.chat.completions.create(model="fake", messages=user(text), stream=True, **options)
    return list(stream)


def text_of(chunks: list[Any]) -> str:
    return "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)


def test_an_answer(service: Any) -> None:
    answer = service.client.chat.completions.create(
        model="fake", messages=user("say Hello, wörld 😀"), temperature=0
    )
    assert answer.choices[0].message.content == "Hello, wörld 😀"
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].finish_reason == "stop"
    prompt = len(CHATML and "<s>user\nsay Hello, wörld 😀<e>\n<s>assistant\n".encode()) - 3 * 2
    assert answer.usage.prompt_tokens == prompt
    assert answer.usage.completion_tokens == len("Hello, wörld 😀".encode()) + 1
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert answer.model == "fake"


def test_a_stream(service: Any) -> None:
    chunks = streamed(service.client, "say Hello, wörld 😀", temperature=0)
    assert chunks[0].choices[0].delta.role == "assistant"
    assert text_of(chunks) == "Hello, wörld 😀"
    assert [c.choices[0].finish_reason for c in chunks if c.choices[0].finish_reason] == ["stop"]
    assert len({c.id for c in chunks}) == 1
    assert all(c.usage is None for c in chunks)
    # No chunk holds a part of a character.
    assert not any("\ufffd" in (c.choices[0].delta.content or "") for c in chunks)


def test_usage_comes_once_after_the_last_choice_if_asked_for(service: Any) -> None:
    chunks = streamed(service.client, "say abc", temperature=0, stream_options={"include_usage": True})
    with_usage = [c for c in chunks if c.usage is not None]
    assert with_usage == [chunks[-1]]
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens == 4
    assert chunks[-1].kt_timing["ttft_s"] >= 0


def test_the_raw_stream_ends_with_done(service: Any) -> None:
    body = {"model": "fake", "messages": user("say a"), "temperature": 0, "stream": True}
    response = httpx.post(f"{service.url}/v1/chat/completions", json=body)
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    events = response.text.strip().split("\n\n")
    assert events[-1] == "data: [DONE]"
    for event in events[:-1]:
        json.loads(event.removeprefix("data: "))


def test_a_long_prompt_keeps_the_stream_alive_and_clients_see_no_event(start: Any) -> None:
    runner = FakeRunner(context_length=8000, step_s=0.02)
    service = start(runner, keep_alive_s=0.05, chunked_prefill_size=100)
    order = "say " + "x" * 2000
    body = {"model": "fake", "messages": user(order), "temperature": 0, "stream": True, "max_tokens": 3}
    raw = httpx.post(f"{service.url}/v1/chat/completions", json=body, timeout=20).text
    assert raw.count(": keep-alive\n\n") >= 2
    assert raw.index("role") < raw.index(": keep-alive") < raw.index('"content":"x"')
    assert text_of(streamed(service.client, order, temperature=0, max_tokens=3)) == "xxx"


def test_pieces_of_a_character_are_held_until_it_is_whole(service: Any) -> None:
    chunks = streamed(service.client, "hex F0 9F 98 80 21", temperature=0)
    pieces = [c.choices[0].delta.content for c in chunks if c.choices[0].delta.content]
    assert pieces[0].startswith("😀")
    assert "".join(pieces) == "😀!"


def test_a_character_that_never_ends_is_one_replacement(service: Any) -> None:
    assert text_of(streamed(service.client, "hex 61 E4 BD", temperature=0)) == "a\ufffd"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("stop", "text", "matched"),
    [
        ("END", "one two ", "END"),
        (["zzz", "two"], "one ", "two"),
        (["END more", "ND"], "one two E", "ND"),
        ("absent", "one two END more", None),
    ],
)
def test_stop_strings_across_tokens(
    service: Any, stream: bool, stop: str | list[str], text: str, matched: str | None
) -> None:
    options = {"temperature": 0, "stop": stop}
    if stream:
        chunks = streamed(service.client, "say one two END more", **options)
        assert text_of(chunks) == text
        last = chunks[-1].choices[0]
    else:
        last = service.client.chat.completions.create(
            model="fake", messages=user("say one two END more"), **options
        ).choices[0]
        assert last.message.content == text
    assert last.finish_reason == "stop"
    assert getattr(last, "matched_stop", None) == matched


@pytest.mark.parametrize(
    ("limits", "tokens"),
    [
        ({"max_tokens": 3}, 3),
        ({"max_completion_tokens": 4}, 4),
        ({"max_tokens": 2, "max_completion_tokens": 5}, 5),
        ({"max_tokens": None, "max_completion_tokens": 1}, 1),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_token_limits(service: Any, limits: dict[str, int | None], tokens: int, stream: bool) -> None:
    body = {"model": "fake", "messages": user("forever"), "temperature": 0, **limits}
    if stream:
        chunks = streamed(
            service.client, "forever", temperature=0, stream_options={"include_usage": True}, **limits
        )
        assert chunks[-1].usage.completion_tokens == tokens
        assert chunks[-2].choices[0].finish_reason == "length"
    else:
        answer = httpx.post(f"{service.url}/v1/chat/completions", json=body).json()
        assert answer["usage"]["completion_tokens"] == tokens
        assert answer["choices"][0]["finish_reason"] == "length"
        assert answer["choices"][0]["message"]["content"] == "a" * tokens


@pytest.mark.parametrize("limit", [-1, None, 1_000_000])
def test_no_limit_and_too_large_a_limit_mean_as_many_as_fit(start: Any, limit: int | None) -> None:
    service = start(FakeRunner(context_length=80))
    answer = service.client.chat.completions.create(
        model="fake", messages=user("forever"), temperature=0, max_tokens=limit
    )
    assert answer.usage.total_tokens == 80
    assert answer.choices[0].finish_reason == "length"


def test_a_seed_repeats_and_does_not_depend_on_company(service: Any) -> None:
    async def ask(client: openai.AsyncOpenAI, seed: int) -> str:
        answer = await client.chat.completions.create(
            model="fake", messages=user("random"), seed=seed, max_tokens=30, temperature=1
        )
        return answer.choices[0].message.content or ""

    async def all_at_once() -> list[str]:
        async with service.async_client as client:
            return await asyncio.gather(*(ask(client, seed) for seed in range(8)))

    async def one_by_one() -> list[str]:
        async with service.async_client as client:
            return [await ask(client, seed) for seed in range(8)]

    together, alone = asyncio.run(all_at_once()), asyncio.run(one_by_one())
    assert together == alone
    assert len(set(together)) == 8


def test_eight_streams_at_once_share_steps_and_stay_apart(start: Any) -> None:
    service = start(FakeRunner(step_s=0.005), max_running_requests=8)

    async def ask(client: openai.AsyncOpenAI, text: str) -> str:
        stream = await client.chat.completions.create(
            model="fake", messages=user(f"say {text}"), temperature=0, stream=True
        )
        return "".join([c.choices[0].delta.content or "" async for c in stream])

    async def main(texts: list[str]) -> list[str]:
        async with service.async_client as client:
            return await asyncio.gather(*(ask(client, text) for text in texts))

    texts = [f"this is answer {i}, " + "ab"[i % 2] * 20 * (i + 1) for i in range(8)]
    assert asyncio.run(main(texts)) == texts
    assert max(len(step) for step in service.runner.steps) == 8
    service.wait_until_idle()
    assert service.runner.held == {}


def test_more_requests_than_places_are_all_answered(start: Any) -> None:
    service = start(FakeRunner(kv_tokens=512), max_running_requests=2)

    async def main() -> list[str]:
        async with service.async_client as client:
            calls = [
                client.chat.completions.create(model="fake", messages=user(f"say number {i}"), temperature=0)
                for i in range(20)
            ]
            return [a.choices[0].message.content or "" for a in await asyncio.gather(*calls)]

    assert asyncio.run(main()) == [f"number {i}" for i in range(20)]


def test_a_full_queue_is_told(start: Any) -> None:
    service = start(FakeRunner(step_s=0.02), max_running_requests=1, max_queued_requests=1)

    async def main() -> list[int]:
        async with httpx.AsyncClient(base_url=service.url, timeout=20) as client:
            body = {"model": "fake", "messages": user("forever"), "max_tokens": 20, "temperature": 0}
            answers = await asyncio.gather(
                *(client.post("/v1/chat/completions", json=body) for _ in range(5))
            )
        assert all(
            a.json()["error"]["code"] == "rate_limit_exceeded" for a in answers if a.status_code == 429
        )
        return sorted(a.status_code for a in answers)

    assert asyncio.run(main()) == [200, 200, 429, 429, 429]


def test_content_lists_roles_and_unknown_fields(service: Any) -> None:
    messages = [
        {"role": "developer", "content": "be brief"},
        {"role": "user", "content": [{"type": "text", "text": "say "}, {"type": "text", "text": "first"}]},
        {"role": "assistant", "content": None, "tool_calls": [], "reasoning_content": "hm", "made_up": 1},
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": '{"ok":1}'}]},
        {
            "role": "user",
            "name": "ada",
            "content": [{"type": "text", "text": "say "}, {"type": "text", "text": "x"}],
        },
    ]
    answer = httpx.post(
        f"{service.url}/v1/chat/completions",
        json={
            "model": "fake",
            "messages": messages,
            "temperature": 0,
            "user": "me",
            "store": True,
            "whatever": [1],
        },
    )
    assert answer.status_code == 200, answer.text
    assert answer.json()["choices"][0]["message"]["content"] == "x"


def test_the_models_defaults_apply_where_the_request_says_nothing(start: Any) -> None:
    service = start(None, text_model(temperature=0.0))
    answers = {
        service.client.chat.completions.create(model="fake", messages=user("random"), max_tokens=8)
        .choices[0]
        .message.content
        for _ in range(3)
    }
    assert answers == {"aaaaaaaa"}


def test_completions_take_text_or_tokens(service: Any) -> None:
    prompt = "<|im_start|>user\nsay abc<|im_end|>\n<|im_start|>assistant\n"
    ids = service.engine.ready.text.encode(prompt, add_special_tokens=False)
    for given in (prompt, ids):
        answer = service.client.completions.create(model="fake", prompt=given, temperature=0, max_tokens=10)
        assert answer.choices[0].text == "abc"
        assert answer.usage.prompt_tokens == len(ids)
    stream = service.client.completions.create(
        model="fake", prompt=prompt, temperature=0, max_tokens=2, stream=True
    )
    chunks = list(stream)
    assert "".join(c.choices[0].text for c in chunks) == "ab"
    assert chunks[-1].choices[0].finish_reason == "length"
    more = service.client.completions.create(
        model="fake", prompt=ids, temperature=0, max_tokens=6, extra_body={"ignore_eos": True}
    )
    assert more.usage.completion_tokens == 6
