"""Figures of the engine."""

from __future__ import annotations

import pytest

from engine.stats import EngineStats, Load, Rate


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_the_rate_is_that_of_the_last_seconds() -> None:
    clock = Clock()
    rate = Rate(3.0, clock)
    assert rate.per_second() == 0
    for _ in range(100):
        rate.add(2)
        clock.now += 0.1
    assert rate.per_second() == pytest.approx(20, rel=0.05)
    for _ in range(100):
        rate.add(1)
        clock.now += 0.1
    assert rate.per_second() == pytest.approx(10, rel=0.05)


def test_steps_longer_than_the_window_still_have_a_rate() -> None:
    clock = Clock()
    rate = Rate(3.0, clock)
    for _ in range(5):
        rate.add(1)
        clock.now += 10
    clock.now -= 10
    assert rate.per_second() == pytest.approx(0.1)
    clock.now += 10
    assert rate.per_second() == pytest.approx(0.05)


def test_nothing_runs_at_no_rate() -> None:
    stats = EngineStats()
    for _ in range(10):
        stats.generated.add(1)
    assert stats.tokens_per_s == 0
    stats.load = Load(running=1)
    assert stats.tokens_per_s > 0


def test_usage_of_no_cache_is_zero() -> None:
    assert Load().token_usage == 0
    assert Load(kv_tokens_used=1, kv_tokens_total=4).token_usage == 0.25


def test_two_engines_do_not_share_counters() -> None:
    first, second = EngineStats(), EngineStats()
    first.prompt_tokens.inc(5)
    assert first.registry.get_sample_value("kt:prompt_tokens_total") == 5
    assert second.registry.get_sample_value("kt:prompt_tokens_total") == 0
