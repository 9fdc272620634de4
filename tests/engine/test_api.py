"""The engine thread: loading, failing, closing, and what callers see of it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.api import Engine
from engine.config import EngineConfig
from engine.errors import CheckpointError, EngineError
from engine.loading import Sources
from engine.progress import PHASES, Progress, ProgressCallback
from engine.request import ErrorEvent, FinishEvent, FinishReason, RequestError, SamplingParams, TextEvent
from engine.scheduler import Scheduler
from tests.engine.fakes import VOCABULARY, FakeRunner, text_model

CONFIG = EngineConfig(model=Path("/models/fake"))
GREEDY = SamplingParams(temperature=0)


def prompt(order: str) -> list[int]:
    text = text_model()
    assert text.template is not None
    return text.encode(text.template.render([{"role": "user", "content": order}]), add_special_tokens=False)


def make(
    runner: FakeRunner | None = None, report: ProgressCallback = lambda _: None, **settings: Any
) -> Engine:
    sources = Sources(lambda _: text_model(), lambda _, __: runner or FakeRunner())
    return Engine(replace(CONFIG, **settings), report, sources)


async def until(holds: Callable[[], bool]) -> None:
    for _ in range(2000):
        if holds():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it never came to be")


async def test_it_loads_generates_and_closes() -> None:
    reports: list[Progress] = []
    engine = make(report=reports.append)
    with pytest.raises(RequestError) as early:
        engine.submit([1], GREEDY)
    assert early.value.status == 503
    engine.start()
    ready = await engine.loaded()
    assert (ready.context_length, ready.kv_tokens, ready.vocab_size) == (1024, 8192, VOCABULARY)
    assert [r.phase for r in reports] == sorted((r.phase for r in reports), key=PHASES.index)
    with engine.submit(prompt("say hello"), GREEDY) as generation:
        text, end = await generation.collect()
    assert text == "hello"
    assert isinstance(end, FinishEvent)
    assert end.reason is FinishReason.STOP
    assert await engine.close()
    await engine.ended()
    with pytest.raises(RequestError):
        engine.submit([1], GREEDY)


async def test_leaving_the_block_aborts() -> None:
    runner = FakeRunner(context_length=100_000, kv_tokens=100_000, step_s=0.005)
    engine = make(runner)
    engine.start()
    await engine.loaded()
    with engine.submit(prompt("forever"), GREEDY) as generation:
        first = await anext(generation)
        assert isinstance(first, TextEvent)
    _, end = await generation.collect()
    assert isinstance(end, FinishEvent)
    assert end.reason is FinishReason.ABORT
    assert end.completion_tokens < 20
    assert engine.open_requests == 0
    assert runner.held == {}
    assert await engine.close()


async def test_texts_that_wait_come_as_one() -> None:
    engine = make(FakeRunner())
    engine.start()
    await engine.loaded()
    with engine.submit(prompt("say " + "abc" * 30), GREEDY) as generation:
        await until(lambda: not engine.open_requests)
        events = [event async for event in generation]
    assert len(events) == 2
    assert events[0] == TextEvent("abc" * 30, 90)
    assert await engine.close()


async def test_closing_lets_short_requests_end_and_aborts_long_ones() -> None:
    engine = make(FakeRunner(context_length=100_000, kv_tokens=100_000, step_s=0.01))
    engine.start()
    await engine.loaded()
    short = engine.submit(prompt("say ten"), GREEDY)
    long = engine.submit(prompt("forever"), GREEDY)
    assert await engine.close(1.5)
    assert (await short.collect())[0] == "ten"
    _, end = await long.collect()
    assert isinstance(end, FinishEvent)
    assert end.reason is FinishReason.ABORT


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (CheckpointError("model.safetensors is cut short"), "model.safetensors is cut short"),
        (RuntimeError("something\nodd"), "/models/fake could not be loaded: RuntimeError: something odd."),
        (MemoryError(), "/models/fake could not be loaded: there is not enough memory"),
    ],
)
async def test_a_load_that_fails_says_why(fault: Exception, said: str) -> None:
    def load(_: EngineConfig, __: ProgressCallback) -> FakeRunner:
        raise fault

    engine = Engine(CONFIG, sources=Sources(lambda _: text_model(), load))
    engine.start()
    with pytest.raises(EngineError) as caught:
        await engine.loaded()
    assert str(caught.value).startswith(said)
    assert engine.ready is None
    assert await engine.close()


async def test_a_model_that_gives_no_numbers_is_found_before_it_is_ready() -> None:
    engine = make(FakeRunner(lambda _: torch.full((VOCABULARY,), torch.nan)))
    engine.start()
    with pytest.raises(EngineError, match="not a number"):
        await engine.loaded()
    assert await engine.close()


async def test_closing_stops_a_load_at_its_next_report() -> None:
    reports = 0

    def load(_: EngineConfig, progress: ProgressCallback) -> FakeRunner:
        nonlocal reports
        for n in range(10_000):
            progress(Progress("weights", n, 10_000))
            reports += 1
            time.sleep(0.001)
        return FakeRunner()

    engine = Engine(CONFIG, sources=Sources(lambda _: text_model(), load))
    engine.start()
    await until(lambda: engine.progress.phase == "weights")
    assert await engine.close()
    assert reports < 9_000
    with pytest.raises(EngineError, match="stopped"):
        await engine.loaded()


async def test_closing_does_not_wait_for_a_load_that_hangs() -> None:
    entered, go = threading.Event(), threading.Event()

    def load(_: EngineConfig, __: ProgressCallback) -> FakeRunner:
        entered.set()
        go.wait(30)
        return FakeRunner()

    engine = Engine(CONFIG, sources=Sources(lambda _: text_model(), load))
    engine.start()
    await until(entered.is_set)
    assert not await engine.close(0.1)
    go.set()
    await engine.ended()


async def test_if_the_thread_dies_everyone_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = make(FakeRunner(step_s=0.005))
    engine.start()
    await engine.loaded()
    generation = engine.submit(prompt("forever"), GREEDY)
    await anext(generation)

    def broken(_: Scheduler) -> None:
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(Scheduler, "step", broken)
    _, end = await generation.collect()
    assert isinstance(end, FinishEvent)
    assert end.reason is FinishReason.ABORT
    with pytest.raises(RuntimeError, match="a fault of ours"):
        await engine.ended()
    assert not engine.accepts


@pytest.mark.parametrize(
    ("ids", "code"),
    [
        ([], "invalid_value"),
        ([-1], "invalid_value"),
        ([VOCABULARY], "invalid_value"),
        ([1] * 1024, "context_length"),
    ],
)
async def test_prompts_that_cannot_be(ids: list[int], code: str) -> None:
    engine = make()
    engine.start()
    await engine.loaded()
    with pytest.raises(RequestError) as caught:
        engine.submit(ids, GREEDY)
    assert (caught.value.code or "").startswith(code)
    longest = engine.submit([1] * 1023, GREEDY)
    _, end = await longest.collect()
    assert not isinstance(end, ErrorEvent)
    assert end.completion_tokens == 1
    assert await engine.close()
