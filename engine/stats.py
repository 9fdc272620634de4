"""Figures of a running engine: written by the engine thread, read by ``/metrics`` and ``/v1/loads``.

Names and meanings follow SGLang's, with the prefix ``kt:``, so that the same dashboard reads either engine.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from engine.request import FinishEvent

_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
_SECONDS_PER_TOKEN = (0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5)


@dataclass(frozen=True, slots=True)
class Load:
    """The state after the last step.

    Attributes:
        running: Requests that take part in steps.
        waiting: Requests that wait for a place or for cache pages.
        kv_tokens_used: Tokens for which cache pages are held.
        kv_tokens_total: Tokens that the cache can hold.
        kv_bytes: Size of the cache.
        weight_bytes: Size of the weights.
        expert_tokens: Tokens routed to experts, all layers and experts together.
    """

    running: int = 0
    waiting: int = 0
    kv_tokens_used: int = 0
    kv_tokens_total: int = 0
    kv_bytes: int = 0
    weight_bytes: int = 0
    expert_tokens: int = 0

    @property
    def token_usage(self) -> float:
        """The part of the key-value cache in use, from 0 to 1."""
        return self.kv_tokens_used / self.kv_tokens_total if self.kv_tokens_total else 0.0


class Rate:
    """Tokens per second over the last few seconds, or over the last step where steps take longer than that."""

    def __init__(self, window_s: float = 3.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._window_s = window_s
        self._clock = clock
        self._steps: deque[tuple[float, int]] = deque(maxlen=4096)

    def add(self, tokens: int) -> None:
        """Count the tokens of one step."""
        self._steps.append((self._clock(), tokens))

    def per_second(self) -> float:
        """The rate at this moment; it falls while nothing comes."""
        now, steps = self._clock(), tuple(self._steps)
        recent = [step for step in steps if now - step[0] <= self._window_s]
        if len(recent) < 2:
            recent = list(steps[-2:])
        if len(recent) < 2:
            return 0.0
        # The first step only marks the beginning of the time in which the others were made.
        return sum(tokens for _, tokens in recent[1:]) / max(now - recent[0][0], 1e-6)


@dataclass(slots=True)
class EngineStats:
    """Counters since the start of the process, and the load at this moment.

    Attributes:
        load: Replaced as a whole by the engine thread, so a reader always sees one moment.
        load_seconds: From the start of loading to ready; None before that.
    """

    load: Load = field(default_factory=Load)
    load_seconds: float | None = None
    max_running_requests: int = 0
    generated: Rate = field(default_factory=Rate)
    registry: CollectorRegistry = field(default_factory=lambda: CollectorRegistry(auto_describe=False))
    prompt_tokens: Counter = field(init=False)
    generation_tokens: Counter = field(init=False)
    requests: Counter = field(init=False)
    retractions: Counter = field(init=False)
    queue_seconds: Histogram = field(init=False)
    ttft_seconds: Histogram = field(init=False)
    tpot_seconds: Histogram = field(init=False)
    e2e_seconds: Histogram = field(init=False)

    def __post_init__(self) -> None:
        registry = self.registry
        self.prompt_tokens = Counter("kt:prompt_tokens", "Prompt tokens computed", registry=registry)
        self.generation_tokens = Counter("kt:generation_tokens", "Tokens generated", registry=registry)
        self.requests = Counter("kt:num_requests", "Requests ended, by reason", ["reason"], registry=registry)
        self.retractions = Counter(
            "kt:num_retracted_requests",
            "Requests sent back to the queue for want of cache",
            registry=registry,
        )
        self.queue_seconds = Histogram(
            "kt:queue_time_seconds", "From arrival to the first step", buckets=_SECONDS, registry=registry
        )
        self.ttft_seconds = Histogram(
            "kt:time_to_first_token_seconds", "From arrival to token 1", buckets=_SECONDS, registry=registry
        )
        self.tpot_seconds = Histogram(
            "kt:time_per_output_token_seconds",
            "Mean time per token after the first, one value per request",
            buckets=_SECONDS_PER_TOKEN,
            registry=registry,
        )
        self.e2e_seconds = Histogram(
            "kt:e2e_request_latency_seconds", "From arrival to the end", buckets=_SECONDS, registry=registry
        )
        registry.register(_LoadCollector(self))

    @property
    def tokens_per_s(self) -> float:
        """Tokens generated per second at this moment; 0 while nothing runs."""
        return self.generated.per_second() if self.load.running else 0.0

    def ended(self, event: FinishEvent | None) -> None:
        """Count the end of a request; None means that it failed inside the engine."""
        self.requests.labels("error" if event is None else event.reason.value).inc()
        if event is None:
            return
        self.queue_seconds.observe(event.timing.queue_s)
        self.e2e_seconds.observe(event.timing.total_s)
        if event.timing.ttft_s is not None:
            self.ttft_seconds.observe(event.timing.ttft_s)
        if event.timing.tpot_s is not None:
            self.tpot_seconds.observe(event.timing.tpot_s)


class _LoadCollector:
    """Gives the gauges their values at the moment of a scrape."""

    def __init__(self, stats: EngineStats) -> None:
        self._stats = stats

    def collect(self) -> Iterator[Metric]:
        load = self._stats.load
        gauges = (
            ("num_running_reqs", "Requests that take part in steps", load.running),
            ("num_queue_reqs", "Requests that wait", load.waiting),
            ("num_used_tokens", "Tokens for which cache pages are held", load.kv_tokens_used),
            ("max_total_num_tokens", "Tokens that the key-value cache can hold", load.kv_tokens_total),
            ("token_usage", "Part of the key-value cache in use, 0 to 1", load.token_usage),
            ("max_running_requests", "Requests computed at once at most", self._stats.max_running_requests),
            ("gen_throughput", "Tokens generated per second, last 3 s", self._stats.tokens_per_s),
            ("kv_cache_bytes", "Size of the key-value cache", load.kv_bytes),
            ("weight_bytes", "Size of the weights", load.weight_bytes),
            ("engine_startup_time_seconds", "From start to ready", self._stats.load_seconds or 0.0),
        )
        for name, what, value in gauges:
            yield GaugeMetricFamily(f"kt:{name}", what, value=value)
        yield CounterMetricFamily("kt:expert_tokens", "Tokens routed to experts", value=load.expert_tokens)
