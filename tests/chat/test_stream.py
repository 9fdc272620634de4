import asyncio
import json
from contextlib import aclosing

import pytest
from raw_server import delta, finish, response, sse, usage

from kt_tui.chat import (
    ChatOptions,
    Draft,
    Endpoint,
    Failed,
    Finished,
    Status,
    Waiting,
    stream_chat,
)

ASK = [{"role": "user", "content": "hello"}]


async def collect(server, options=None, model="served"):
    events = []
    async with asyncio.timeout(20):
        async with aclosing(stream_chat(Endpoint(server.url, None, model), ASK, options)) as stream:
            async for event in stream:
                events.append(event)  # noqa: PERF401
    assert isinstance(events[-1], Finished | Failed)
    assert not any(isinstance(event, Finished | Failed) for event in events[:-1])
    return events


async def answer(server, options=None, model="served"):
    draft = Draft()
    for event in await collect(server, options, model):
        draft.apply(event)
    return draft.message()


async def test_an_ordinary_answer(server):
    server.stream(
        delta(role="assistant", content=""), delta(content="Hel"), delta(content="lo"), finish(), usage(10, 2)
    )
    message = await answer(server, ChatOptions(temperature=0.5, max_tokens=7, seed=3, stop=("x",)))
    assert message.content == "Hello"
    assert message.status is Status.COMPLETE
    assert message.finish_reason == "stop"
    assert (message.usage.prompt_tokens, message.usage.completion_tokens) == (10, 2)
    assert message.note == ""
    (body,) = server.bodies
    assert body["stream_options"] == {"include_usage": True}
    assert (body["temperature"], body["max_tokens"], body["seed"], body["stop"]) == (0.5, 7, 3, ["x"])
    assert body["messages"] == ASK


async def test_the_same_answer_wherever_the_bytes_are_cut(server):
    body = sse(
        ": ping",
        delta(reasoning_content="Grüße "),
        delta(content="你好 😀"),
        finish(),
        usage(1, 5),
        end="\r\n\r\n",
    )
    whole = response(body)
    server.chat(whole)
    server.pause = 0.0005
    for cut in range(1, len(whole), 3):
        server.cuts = (cut, min(cut + 1, len(whole)))
        message = await answer(server)
        assert (message.reasoning, message.content) == ("Grüße ", "你好 😀")
        assert message.usage.completion_tokens == 5


CHUNK_CASES = {
    "usage in the last chunk with empty choices": (
        [delta(content="Hi"), finish(), usage(10, 50)],
        {"content": "Hi", "usage": (10, 50), "status": Status.COMPLETE},
    ),
    "usage repeated in every chunk is never summed": (
        [
            {**delta(content="a"), "usage": {"prompt_tokens": 13, "completion_tokens": 1}},
            {**delta(content=""), "usage": {"prompt_tokens": 13, "completion_tokens": 20}},
            {**finish(), "usage": {"prompt_tokens": 13, "completion_tokens": 20}},
        ],
        {"content": "a", "usage": (13, 20)},
    ),
    "reasoning under either name or both": (
        [
            delta(reasoning="Let"),
            delta(reasoning_content=" me"),
            delta(reasoning=" see", reasoning_content=" see"),
            delta(content="4"),
            finish(),
        ],
        {"reasoning": "Let me see", "content": "4"},
    ),
    "a closing think tag whose opening the template had prefilled": (
        [
            delta(content="The user asks 2+2. "),
            delta(content="So 4.</think>"),
            delta(content="\n\n4"),
            finish(),
        ],
        {"reasoning": "The user asks 2+2. So 4.", "content": "4"},
    ),
    "a think tag cut into pieces": (
        [*(delta(content=c) for c in "\n<think>why</think>\nbecause"), finish()],
        {"reasoning": "why", "content": "because"},
    ),
    "a think block that is never closed": (
        [delta(content="<think>long text"), finish()],
        {
            "reasoning": "long text",
            "content": "",
            "note": "did not close its reasoning",
            "status": Status.COMPLETE,
        },
    ),
    "think tags in the answer are text once reasoning came by its own field": (
        [delta(reasoning_content="r"), delta(content="the tag </think> ends it"), finish()],
        {"reasoning": "r", "content": "the tag </think> ends it"},
    ),
    "the beginning of a tag that turns out to be none": (
        [delta(content="a <"), delta(content="/thi"), delta(content="s> b </"), finish()],
        {"content": "a </this> b </"},
    ),
    "unknown channel markers are shown literally": (
        [delta(content="<|channel>thought\nfoo<channel|>bar"), finish()],
        {"content": "<|channel>thought\nfoo<channel|>bar"},
    ),
    "role only, null content, null delta, missing delta": (
        [
            {"choices": [{"delta": {"role": "assistant", "content": None}}]},
            {"choices": [{"delta": None}]},
            {"choices": [{"index": 0}]},
            {"choices": None},
            {},
            {"choices": [{"delta": {"content": "x"}}]},
        ],
        {"content": "x", "status": Status.COMPLETE, "note": "no finish reason"},
    ),
    "an error object inside the stream": (
        [
            delta(content="par"),
            {"error": {"message": "quota or internal error", "type": "server_error", "code": 500}},
        ],
        {"content": "par", "status": Status.FAILED, "note": "quota or internal error"},
    ),
    "an error as a plain text": ([{"error": "boom"}], {"status": Status.FAILED, "note": "boom"}),
    "an error event": (
        [delta(content="p"), 'event: error\ndata: {"type": "error", "error": {"message": "died"}}'],
        {"content": "p", "status": Status.FAILED, "note": "died"},
    ),
    "a truncated object with another one glued to it": (
        [
            delta(content="x"),
            'data: {"choices":[{"delta":{"content":"y"}}\n{"type":"error","error":{"message":"stream_read_error"}}',
        ],
        {"content": "x", "status": Status.FAILED, "note": "malformed event"},
    ),
    "an event that is no object": (
        [delta(content="x"), "data: [1, 2]"],
        {"content": "x", "note": "malformed event"},
    ),
    "keep-alive lines and blank events": (
        [": ping", "id: 1", "", delta(content="x"), ": ping", finish()],
        {"content": "x", "status": Status.COMPLETE},
    ),
    "truncation is told": (
        [delta(content="x"), finish("length")],
        {"note": "truncated", "status": Status.COMPLETE},
    ),
    "abort": (
        [delta(content="x"), finish("abort")],
        {"content": "x", "status": Status.FAILED, "note": "abort"},
    ),
    "a finish reason that is an object": (
        [delta(content="x"), finish({"type": "abort", "message": "out of pages"})],
        {"content": "x", "status": Status.FAILED, "note": "abort: out of pages"},
    ),
    "error as a finish reason": ([finish("error")], {"status": Status.FAILED}),
    "content filter": ([finish("content_filter")], {"note": "content filter", "status": Status.COMPLETE}),
    "an unknown finish reason is told as it is": (
        [finish("moon")],
        {"note": "moon", "status": Status.COMPLETE},
    ),
    "content as a list of parts": (
        [delta(content=[{"type": "text", "text": "a"}, {"type": "x"}, None]), finish()],
        {"content": "a"},
    ),
    "wrong types everywhere": (
        [
            {"choices": "x", "usage": 7},
            {"choices": [7]},
            {
                "choices": [
                    {"delta": {"content": 7, "reasoning": [], "tool_calls": {}}, "finish_reason": None}
                ]
            },
            {"choices": [], "usage": {"prompt_tokens": "9", "completion_tokens": -3}},
            finish(),
        ],
        {"content": "", "status": Status.COMPLETE},
    ),
    "an emoji cut into two escapes of different chunks": (
        [
            'data: {"choices":[{"delta":{"content":"a\\ud83d"}}]}',
            'data: {"choices":[{"delta":{"content":"\\ude00b"}}]}',
            finish(),
        ],
        {"content": "a😀b"},
    ),
    "half an emoji alone": (
        ['data: {"choices":[{"delta":{"content":"a\\ud83d"}}]}', finish()],
        {"content": "a\ufffd"},
    ),
    "square brackets are only text": (
        [delta(content="[/] [bold [@click=app.quit]x[/]"), finish()],
        {"content": "[/] [bold [@click=app.quit]x[/]"},
    ),
}


@pytest.mark.parametrize(("chunks", "expected"), CHUNK_CASES.values(), ids=CHUNK_CASES.keys())
async def test_chunks_as_servers_send_them(server, chunks, expected):
    server.stream(*chunks)
    message = await answer(server)
    for name, value in expected.items():
        if name == "usage":
            assert (message.usage.prompt_tokens, message.usage.completion_tokens) == value
        elif name == "note":
            assert value in message.note
        else:
            assert getattr(message, name) == value


async def test_a_stream_without_done_is_complete_if_it_told_its_finish(server):
    server.stream(delta(content="x"), finish(), done=False)
    assert (await answer(server)).status is Status.COMPLETE


async def test_a_stream_that_ends_without_finish_has_failed_and_keeps_the_text(server):
    server.stream(delta(content="half an ans"), done=False)
    message = await answer(server)
    assert message.content == "half an ans"
    assert message.status is Status.FAILED
    assert "ended without finish" in message.note


async def test_nothing_after_done_counts(server):
    server.chat(response(sse(delta(content="x"), finish()) + sse(delta(content="y"))))
    assert (await answer(server)).content == "x"


async def test_tool_calls_are_kept_apart_by_id(server):
    calls = [
        {"index": 0, "id": "c1", "function": {"name": "w", "arguments": ""}},
        {"index": 0, "id": None, "function": {"name": None, "arguments": '{"a":'}},
        {"index": 0, "id": "c2", "function": {"name": "w", "arguments": ""}},
        {"index": 1, "id": None, "function": {"name": "", "arguments": "1}"}},
        {"id": None, "function": {"arguments": "x"}},
    ]
    server.stream(*(delta(tool_calls=[call]) for call in calls), delta(content="text"), finish("tool_calls"))
    message = await answer(server)
    assert [(c.id, c.name, c.arguments) for c in message.tool_calls] == [
        ("c1", "w", '{"a":'),
        ("c2", "w", "1}x"),
    ]
    assert message.content == "text"
    assert message.status is Status.COMPLETE


async def test_interleaved_pieces_of_parallel_tool_calls_go_by_index(server):
    calls = [
        [{"index": 0, "id": "a", "function": {"name": "f", "arguments": ""}}],
        [{"index": 1, "id": "b", "function": {"name": "g", "arguments": ""}}],
        [{"index": 0, "function": {"arguments": "1"}}, {"index": 1, "function": {"arguments": "2"}}],
        [{"index": 0, "function": {"arguments": "3"}}],
        [None, 7, {"function": None}],
    ]
    server.stream(*(delta(tool_calls=call) for call in calls), finish("tool_calls"))
    assert [(c.id, c.arguments) for c in (await answer(server)).tool_calls] == [("a", "13"), ("b", "2")]


async def test_an_answer_in_one_piece(server):
    document = {
        "choices": [{"message": {"content": "Hi", "reasoning_content": "hm"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 4},
    }
    server.chat(response(json.dumps(document).encode(), content_type="application/json", length=True))
    message = await answer(server, ChatOptions(stream=False))
    assert (message.content, message.reasoning, message.finish_reason) == ("Hi", "hm", "stop")
    assert message.metrics.ttft_s is None  # there is no first piece to time
    assert message.metrics.tpot_s is None
    assert message.metrics.total_s > 0
    assert "stream" not in server.bodies[0]


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"choices": []}', b"<html>", b"null", b"[" * 100_000])
async def test_an_answer_in_one_piece_that_is_none(server, body):
    server.chat(response(body, content_type="application/json", length=True))
    message = await answer(server, ChatOptions(stream=False))
    assert message.status is Status.FAILED
    assert message.note


async def test_a_server_that_ignores_stream_is_understood(server):
    document = {"choices": [{"message": {"content": "Hi"}, "finish_reason": "stop"}]}
    server.chat(response(json.dumps(document).encode(), content_type="application/json", length=True))
    assert (await answer(server)).content == "Hi"


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (
            response(
                b"<html><head><title>502 Bad Gateway</title></head></html>", "502 Bad Gateway", "text/html"
            ),
            ["502", "Bad Gateway", "down"],
        ),
        (
            response(b'{"error": {"message": "bad key"}}', "401 Unauthorized", "application/json"),
            ["API key", "bad key"],
        ),
        (
            response(b'{"detail": "too long"}', "400 Bad Request", "application/json"),
            ["did not accept", "too long"],
        ),
        (response(b'{"object": "error", "message": "m"}', "422 x", "application/json"), ["422", "m"]),
        (response(b"", "429 Too Many", "text/plain"), ["too many requests"]),
        (response(b"", "307 Moved", "text/plain"), ["redirects"]),
        (response(b"\xff\x00" * 100_000, "500 Oops", "application/octet-stream"), ["500"]),
        (response(b"<html><title>Login</title>", "200 OK", "text/html"), ["web page", "Login"]),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\ndata: ", ["broke the connection off"]),
        (b"SSH-2.0-OpenSSH_9.2\r\n", ["broke the connection off"]),
        (b"", ["broke the connection off"]),
    ],
)
async def test_failures_of_http_are_one_sentence(server, reply, words):
    server.chat(reply)
    message = await answer(server)
    assert message.status is Status.FAILED
    assert "\n" not in message.note
    assert len(message.note) < 700
    for word in words:
        assert word in message.note


async def test_no_server_names_the_way_out(server):
    url = server.url
    await server.__aexit__()
    (failed,) = [event async for event in stream_chat(Endpoint(url, None, "m"), ASK)]
    assert isinstance(failed, Failed)
    assert f"No server answers at {url}" in failed.message
    assert "kt-tui run" in failed.message


@pytest.mark.parametrize(
    "url", ["", "127.0.0.1:30000", "ftp://x", "http://", "http://[::1", "http://x:99999999"]
)
async def test_an_address_that_is_none(url):
    (failed,) = [event async for event in stream_chat(Endpoint(url, None, "m"), ASK)]
    assert isinstance(failed, Failed)


LOADING = response(
    b'{"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}}',
    "503 Service Unavailable",
    "application/json",
    length=True,
)


async def test_a_loading_server_is_told_at_once(server):
    server.chat(LOADING)
    message = await answer(server)
    assert "loading" in message.note
    assert len(server.bodies) == 1


async def test_a_loading_server_is_waited_for_on_request_without_a_storm(server):
    embedded = response(b'{"phase": "weights", "progress": 0.5}', "503 x", "application/json", length=True)
    server.chat(embedded, response(sse(delta(content="now"), finish())))
    events = await collect(server, ChatOptions(wait_s=10))
    assert events[0] == Waiting("the model is loading (weights, 50%)", 0.5)
    assert isinstance(events[-1], Finished)
    assert len(server.bodies) == 2


async def test_a_list_of_models_that_is_loading_is_waited_for_too(server):
    listing = server.rules["/v1/models"][0]
    server.rules["/v1/models"] = [LOADING, listing]
    server.stream(delta(content="now"), finish())
    events = await collect(server, ChatOptions(wait_s=10), model="")
    assert isinstance(events[0], Waiting)
    assert isinstance(events[-1], Finished)


async def test_a_server_that_is_not_there_yet_is_waited_for_on_request(server):
    server.stream(delta(content="now"), finish())
    await server.__aexit__()
    stream = stream_chat(Endpoint(server.url, None, "served"), ASK, ChatOptions(wait_s=30))
    first = await anext(stream)
    assert isinstance(first, Waiting)
    assert "no server answers" in first.reason
    again = await asyncio.start_server(server._serve, "127.0.0.1", server.port)
    async with again:
        rest = [event async for event in stream]
    assert isinstance(rest[-1], Finished)


async def test_a_server_that_refuses_stream_options_is_asked_without(server):
    refusal = response(
        b'{"error": {"message": "unknown field stream_options"}}', "400 Bad Request", "application/json"
    )
    server.chat(refusal, response(sse(delta(content="x"), finish())))
    message = await answer(server)
    assert message.content == "x"
    assert message.usage is None
    assert message.metrics.tpot_s is None  # never from counting chunks
    assert "stream_options" not in server.bodies[1]


async def test_an_unknown_model_tells_which_are_served(server):
    server.models("alpha", "beta")
    server.chat(response(b'{"error": {"message": "no such model"}}', "404 Not Found", "application/json"))
    message = await answer(server, model="gone")
    assert "alpha, beta" in message.note


async def test_without_a_model_the_first_served_one_is_asked(server):
    server.models("alpha", "beta")
    server.stream(delta(content="x"), finish())
    assert (await answer(server, model="")).content == "x"
    assert server.bodies[0]["model"] == "alpha"


async def test_the_key_is_sent_and_never_shown(server):
    server.stream(delta(content="x"), finish())
    endpoint = Endpoint(server.url + "/v1/", "sesame", "served")
    assert "sesame" not in repr(endpoint)
    [_ async for _ in stream_chat(endpoint, ASK)]
    _, headers, _ = server.requests[-1]
    assert headers["authorization"] == "Bearer sesame"


@pytest.mark.parametrize("how", ["cancel", "close"])
async def test_stopping_closes_the_connection_at_once(server, how):
    server.stream(delta(content="part"), done=False)
    server.hold = True
    got = asyncio.Event()

    async def read():
        async with aclosing(stream_chat(Endpoint(server.url, None, "served"), ASK)) as stream:
            async for _ in stream:
                got.set()
                if how == "close":
                    break

    task = asyncio.create_task(read())
    await asyncio.wait_for(got.wait(), 10)
    if how == "cancel":
        task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await asyncio.wait_for(server.disconnected.wait(), 5)


async def test_a_silent_server_is_given_up_after_the_patience(server):
    server.stream(delta(content="part"), done=False)
    server.hold = True
    message = await answer(server, ChatOptions(silence_s=0.3))
    assert message.content == "part"
    assert "said nothing for too long" in message.note


async def test_a_server_that_keeps_the_connection_after_its_finish_is_complete(server):
    server.stream(delta(content="part"), finish(), done=False)
    server.hold = True
    assert (await answer(server, ChatOptions(silence_s=0.3))).status is Status.COMPLETE


async def test_a_proxy_in_the_environment_is_not_used_for_this_machine(server, monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    server.stream(delta(content="x"), finish())
    assert (await answer(server)).content == "x"


async def test_a_megabyte_answer(server):
    server.stream(delta(content="a" * 1_000_000), finish())
    assert len((await answer(server)).content) == 1_000_000
