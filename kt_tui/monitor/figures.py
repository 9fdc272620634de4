"""What an engine says about itself: ``/v1/loads`` (SGLang's JSON) and the counters of ``/metrics`` (Prometheus)."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from kt_tui.monitor.snapshot import EngineFigures

_COUNTERS = {
    f"{engine}:{name}_total": key
    for engine in ("kt", "sglang")
    for name, key in (("generation_tokens", "generated"), ("prompt_tokens", "prompt"))
}


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        return None
    return float(value)


def _sum(ranks: list[dict[str, Any]], key: str) -> int | None:
    known = [number for rank in ranks if (number := _number(rank.get(key))) is not None]
    return int(sum(known)) if known else None


def read_loads(body: bytes) -> EngineFigures | None:
    """The figures in a ``/v1/loads`` document, all data-parallel ranks together; None if it is no such document."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return None
    loads = document.get("loads") if isinstance(document, dict) else None
    ranks = [rank for rank in loads if isinstance(rank, dict)] if isinstance(loads, list) else []
    if not ranks:
        return None
    used, total = _sum(ranks, "num_used_tokens"), _sum(ranks, "max_total_num_tokens")
    usages = [number for rank in ranks if (number := _number(rank.get("token_usage"))) is not None]
    usage = used / total if used is not None and total else (sum(usages) / len(usages) if usages else None)
    running = _sum(ranks, "num_running_reqs")
    speeds = [number for rank in ranks if (number := _number(rank.get("gen_throughput"))) is not None]
    # SGLang's throughput stays at its last value when the engine falls idle.
    speed = 0.0 if running == 0 else (sum(speeds) if speeds else None)
    return EngineFigures(
        running=running,
        waiting=_sum(ranks, "num_waiting_reqs"),
        kv_tokens_used=used,
        kv_tokens_total=total,
        kv_usage=min(usage, 1.0) if usage is not None else None,
        tokens_per_s=speed,
    )


def read_counters(body: bytes) -> Mapping[str, float]:
    """Tokens ``generated`` and ``prompt`` tokens computed since the start, as far as ``/metrics`` has them."""
    from prometheus_client.parser import text_string_to_metric_families

    found: dict[str, float] = {}
    try:
        for metric in text_string_to_metric_families(body.decode("utf-8", "replace")):
            for sample in metric.samples:
                key, value = _COUNTERS.get(sample.name), _number(sample.value)
                if key is not None and value is not None:
                    found[key] = found.get(key, 0.0) + value
    except (ValueError, IndexError, KeyError):
        # The parser's ways of saying that this is no exposition text.
        pass
    return found


@dataclass(frozen=True)
class CounterReading:
    """Counters at one time (monotonic seconds)."""

    time: float
    values: Mapping[str, float]


def with_rates(figures: EngineFigures, before: CounterReading | None, now: CounterReading) -> EngineFigures:
    """Add counters and their rates; a counter that fell means that the engine was restarted, and gives no rate."""

    def rate(key: str) -> float | None:
        if before is None or key not in before.values or key not in now.values or now.time <= before.time:
            return None
        difference = now.values[key] - before.values[key]
        return difference / (now.time - before.time) if difference >= 0 else None

    generated = rate("generated")
    total = now.values.get("generated")
    return replace(
        figures,
        tokens_per_s=generated if generated is not None else figures.tokens_per_s,
        prompt_tokens_per_s=rate("prompt"),
        generated_tokens=int(total) if total is not None else None,
    )
