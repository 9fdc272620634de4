"""The scheduler on a fake runner: nothing here knows of text, threads or HTTP."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
import torch

from engine.request import ErrorEvent, FinishEvent, FinishReason, Request, SamplingParams
from engine.scheduler import Limits, Scheduler
from engine.stats import EngineStats
from tests.engine.fakes import END, VOCABULARY, FakeRunner, only


@dataclass
class Collected:
    """An output that keeps what it gets."""

    tokens: list[int] = field(default_factory=list)
    ends: list[FinishEvent | ErrorEvent] = field(default_factory=list)
    stop_at: int | None = None

    def token(self, token_id: int) -> str | None:
        assert not self.ends, "a token after the end"
        self.tokens.append(token_id)
        return "word" if token_id == self.stop_at else None

    def end(self, event: FinishEvent | ErrorEvent) -> None:
        self.ends.append(event)

    @property
    def reason(self) -> FinishReason:
        (event,) = self.ends
        assert isinstance(event, FinishEvent)
        return event.reason


def hashed(tokens: list[int]) -> torch.Tensor:
    """A next token that depends on every token so far, in order."""
    value = 17
    for token in tokens:
        value = (value * 31 + token + 1) % 1_000_003
    return only(value % 250)


def expected(prompt: list[int], count: int) -> list[int]:
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(int(hashed(tokens).argmax()))
    return tokens[len(prompt) :]


def make(runner: FakeRunner, *, running: int = 4, chunk: int = 32) -> tuple[Scheduler, EngineStats]:
    stats = EngineStats(max_running_requests=running)
    return Scheduler(runner, Limits(running, chunk), frozenset({END}), stats), stats


def submit(
    scheduler: Scheduler,
    name: str,
    prompt: list[int],
    count: int,
    output: Collected | None = None,
    **params: object,
) -> Collected:
    output = output or Collected()
    settings = SamplingParams(temperature=0, **params)  # type: ignore[arg-type]
    scheduler.submit(Request(name, tuple(prompt), settings, 0.0), output, count)
    return output


def run(scheduler: Scheduler, most: int = 10_000) -> None:
    for _ in range(most):
        if not scheduler.has_work:
            return
        scheduler.step()
    raise AssertionError("the scheduler does not come to an end")


def test_a_request_runs_to_its_length() -> None:
    runner = FakeRunner(hashed)
    scheduler, _ = make(runner)
    output = submit(scheduler, "a", [1, 2, 3], 5)
    run(scheduler)
    assert output.tokens == expected([1, 2, 3], 5)
    assert output.reason is FinishReason.LENGTH
    assert runner.held == {}


@pytest.mark.parametrize("chunk", [1, 2, 7, 31, 32, 33, 100])
def test_a_prompt_in_chunks_gives_the_same_tokens(chunk: int) -> None:
    prompt = list(range(100))
    runner = FakeRunner(hashed)
    scheduler, _ = make(runner, chunk=chunk)
    output = submit(scheduler, "a", prompt, 4)
    run(scheduler)
    assert output.tokens == expected(prompt, 4)
    assert all(sum(step) <= max(chunk, 1) for step in runner.steps)


def test_others_decode_in_every_step_while_a_long_prompt_is_computed() -> None:
    runner = FakeRunner(hashed)
    scheduler, _ = make(runner, chunk=10)
    first = submit(scheduler, "a", [1], 50)
    scheduler.step()
    long = submit(scheduler, "b", list(range(200)), 3)
    before = len(first.tokens)
    for _ in range(20):
        scheduler.step()
    assert len(first.tokens) == before + 20
    assert runner.steps[-1] == [1, 10]
    run(scheduler)
    assert long.tokens == expected(list(range(200)), 3)


def test_short_prompts_share_one_step() -> None:
    runner = FakeRunner(hashed)
    scheduler, _ = make(runner, chunk=32)
    for name in "abc":
        submit(scheduler, name, [ord(name)] * 12, 2)
    scheduler.step()
    assert runner.steps == [[12, 12, 8]]
    run(scheduler)


def test_no_more_run_than_allowed_and_the_first_come_first() -> None:
    runner = FakeRunner(hashed)
    scheduler, stats = make(runner, running=2)
    outputs = [submit(scheduler, str(i), [i], 4) for i in range(5)]
    assert (stats.load.running, stats.load.waiting) == (0, 5)
    scheduler.step()
    assert (stats.load.running, stats.load.waiting) == (2, 3)
    ended: list[int] = []
    while scheduler.has_work:
        scheduler.step()
        assert stats.load.running <= 2
        ended += [i for i, output in enumerate(outputs) if output.ends and i not in ended]
    assert ended == [0, 1, 2, 3, 4]
    assert [o.tokens for o in outputs] == [expected([i], 4) for i in range(5)]


def test_an_end_token_stops_and_is_no_output() -> None:
    scheduler, _ = make(FakeRunner(lambda tokens: only(END if len(tokens) > 4 else 7)))
    output = submit(scheduler, "a", [1, 2, 3], 50)
    run(scheduler)
    assert output.tokens == [7, 7]
    (event,) = output.ends
    assert isinstance(event, FinishEvent)
    assert (event.reason, event.matched_stop, event.completion_tokens) == (FinishReason.STOP, None, 3)


def test_ignore_eos_goes_on_and_own_stop_ids_still_count() -> None:
    scheduler, _ = make(FakeRunner(lambda tokens: only(END if len(tokens) < 6 else 9)))
    output = submit(scheduler, "a", [1, 2, 3], 50, ignore_eos=True, stop_token_ids=(9,))
    run(scheduler)
    assert output.tokens == [END, END, END]
    (event,) = output.ends
    assert isinstance(event, FinishEvent)
    assert (event.reason, event.matched_stop) == (FinishReason.STOP, 9)


def test_a_stop_string_that_the_output_finds_ends_the_request() -> None:
    scheduler, _ = make(FakeRunner(hashed))
    stop_at = expected([5], 6)[3]
    output = submit(scheduler, "a", [5], 50, Collected(stop_at=stop_at))
    run(scheduler)
    assert output.tokens == expected([5], 6)[: expected([5], 6).index(stop_at) + 1]
    (event,) = output.ends
    assert isinstance(event, FinishEvent)
    assert event.matched_stop == "word"


def test_an_aborted_request_takes_no_further_step() -> None:
    runner = FakeRunner(hashed)
    scheduler, stats = make(runner, running=1)
    running = submit(scheduler, "a", [1], 100)
    waiting = submit(scheduler, "b", [2], 100)
    scheduler.step()
    steps = len(runner.steps)
    scheduler.abort("b")
    scheduler.abort("a")
    scheduler.abort("never seen")
    assert running.reason is waiting.reason is FinishReason.ABORT
    assert not scheduler.has_work
    assert len(runner.steps) == steps
    assert runner.held == {}
    assert (stats.load.running, stats.load.waiting, stats.load.kv_tokens_used) == (0, 0, 0)


def test_a_full_cache_retracts_the_youngest_and_every_answer_stays_right() -> None:
    runner = FakeRunner(hashed, kv_tokens=160)
    scheduler, stats = make(runner, running=8)
    outputs = [submit(scheduler, str(i), [i] * 20, 60) for i in range(6)]
    run(scheduler)
    assert [o.tokens for o in outputs] == [expected([i] * 20, 60) for i in range(6)]
    assert stats.registry.get_sample_value("kt:num_retracted_requests_total") > 0  # type: ignore[operator]
    # Prompt tokens are counted once, even if they were computed again.
    assert stats.registry.get_sample_value("kt:prompt_tokens_total") == 120
    assert runner.held == {}


def test_a_request_that_cannot_fit_at_all_fails_and_the_next_one_runs() -> None:
    runner = FakeRunner(hashed, kv_tokens=32)
    scheduler, _ = make(runner)
    huge = submit(scheduler, "a", [1] * 40, 4)
    grows = submit(scheduler, "b", [1] * 30, 40)
    fits = submit(scheduler, "c", [2], 4)
    run(scheduler)
    assert isinstance(huge.ends[0], ErrorEvent)
    assert isinstance(grows.ends[0], ErrorEvent)
    assert fits.tokens == expected([2], 4)


def test_a_failing_step_fails_its_requests_and_no_later_one() -> None:
    runner = FakeRunner(hashed)
    scheduler, stats = make(runner)
    first = submit(scheduler, "a", [1], 10)
    scheduler.step()
    runner.fail_next = RuntimeError("boom")
    scheduler.step()
    (event,) = first.ends
    assert isinstance(event, ErrorEvent)
    assert "boom" in event.message
    assert runner.held == {}
    later = submit(scheduler, "b", [2], 3)
    run(scheduler)
    assert later.tokens == expected([2], 3)
    assert stats.registry.get_sample_value("kt:num_requests_total", {"reason": "error"}) == 1


def test_logits_without_a_number_fail_only_their_own_request() -> None:
    def mixed(tokens: list[int]) -> torch.Tensor:
        return torch.full((VOCABULARY,), torch.nan) if tokens[0] == 1 else hashed(tokens)

    scheduler, _ = make(FakeRunner(mixed))
    broken, sound = submit(scheduler, "a", [1], 3), submit(scheduler, "b", [2], 3)
    run(scheduler)
    assert isinstance(broken.ends[0], ErrorEvent)
    assert sound.tokens == expected([2], 3)


def test_a_seed_gives_the_same_draw_alone_and_in_company() -> None:
    def flat(tokens: list[int]) -> torch.Tensor:
        return torch.sin(torch.arange(VOCABULARY) * (1.0 + sum(tokens) % 13))

    def draw(company: int, kv_tokens: int = 8192) -> list[int]:
        scheduler, _ = make(FakeRunner(flat, kv_tokens=kv_tokens), running=8)
        outputs = []
        for i in range(company + 1):
            output = Collected()
            params = SamplingParams(temperature=1.0, top_k=50, top_p=0.95, seed=11 + i, ignore_eos=True)
            scheduler.submit(Request(str(i), (i, 2, 3), params, 0.0), output, 40)
            outputs.append(output)
        run(scheduler)
        return outputs[0].tokens

    alone = draw(0)
    assert len(set(alone)) > 5
    assert draw(5) == alone
    assert draw(5, kv_tokens=96) == alone


@pytest.mark.parametrize("seed", range(8))
def test_any_mix_of_arrivals_and_aborts_leaves_nothing_behind(seed: int) -> None:
    rng = random.Random(seed)
    runner = FakeRunner(hashed, kv_tokens=rng.choice([128, 256, 4096]))
    scheduler, stats = make(runner, running=rng.randint(1, 6), chunk=rng.randint(1, 40))
    asked: dict[str, tuple[list[int], int, Collected]] = {}
    aborted: set[str] = set()
    for n in range(60):
        if rng.random() < 0.5:
            prompt, count = [rng.randrange(250) for _ in range(rng.randint(1, 40))], rng.randint(1, 40)
            asked[str(n)] = (prompt, count, submit(scheduler, str(n), prompt, count))
        if asked and rng.random() < 0.2:
            name = rng.choice(list(asked))
            if not asked[name][2].ends:
                scheduler.abort(name)
                aborted.add(name)
        scheduler.step()
    run(scheduler)
    for name, (prompt, count, output) in asked.items():
        assert len(output.ends) == 1
        if name in aborted:
            assert output.reason is FinishReason.ABORT
            assert output.tokens == expected(prompt, count)[: len(output.tokens)]
        else:
            assert output.tokens == expected(prompt, count)
    assert runner.held == {}
    assert (stats.load.running, stats.load.waiting, stats.load.kv_tokens_used) == (0, 0, 0)


def test_timing_is_counted_from_arrival() -> None:
    now = [100.0]

    def clock() -> float:
        now[0] += 0.5
        return now[0]

    runner = FakeRunner(hashed)
    stats = EngineStats()
    scheduler = Scheduler(runner, Limits(4, 32), frozenset({END}), stats, clock)
    output = Collected()
    scheduler.submit(Request("a", (1, 2), SamplingParams(temperature=0), 90.0), output, 3)
    run(scheduler)
    (event,) = output.ends
    assert isinstance(event, FinishEvent)
    timing = event.timing
    assert timing.ttft_s is not None
    assert timing.tpot_s is not None
    assert 10 < timing.queue_s < timing.ttft_s < timing.total_s
    assert 0 < 2 * timing.tpot_s < timing.total_s - timing.ttft_s + 0.5
