import json

import pytest

from kt_tui.monitor.figures import CounterReading, read_counters, read_loads, with_rates
from kt_tui.monitor.snapshot import EngineFigures

RANK = {
    "dp_rank": 0,
    "num_running_reqs": 2,
    "num_waiting_reqs": 1,
    "num_used_tokens": 500,
    "max_total_num_tokens": 2000,
    "token_usage": 0.25,
    "gen_throughput": 12.5,
}


def loads(*ranks):
    return json.dumps({"loads": list(ranks), "aggregate": {}}).encode()


def test_one_rank():
    figures = read_loads(loads(RANK))
    assert figures == EngineFigures(2, 1, 500, 2000, 0.25, 12.5)


def test_ranks_are_summed_and_usage_weighted_by_size():
    figures = read_loads(loads(RANK, {**RANK, "num_used_tokens": 1500}))
    assert (figures.running, figures.kv_tokens_used, figures.kv_tokens_total) == (4, 2000, 4000)
    assert figures.kv_usage == 0.5


def test_a_throughput_that_stayed_behind_when_the_engine_fell_idle_is_zero():
    assert read_loads(loads({**RANK, "num_running_reqs": 0})).tokens_per_s == 0.0


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"null", b'{"loads": 5}', b'{"loads": [1]}', b"\xff", b"[" * 100_000]
)
def test_what_is_no_load_document_is_none(body):
    assert read_loads(body) is None


def test_wrong_types_are_unknown_not_wrong():
    odd = {
        "num_running_reqs": "2",
        "num_waiting_reqs": -1,
        "token_usage": float("inf"),
        "gen_throughput": True,
    }
    assert read_loads(loads(odd)) == EngineFigures()


EXPOSITION = b"""# HELP kt:generation_tokens_total Tokens generated
# TYPE kt:generation_tokens_total counter
kt:generation_tokens_total{model="a"} 100.0
kt:generation_tokens_total{model="b"} 20.0
kt:generation_tokens_created 1.7e9
# TYPE kt:prompt_tokens_total counter
kt:prompt_tokens_total 7
# TYPE other_generation_tokens_total counter
other_generation_tokens_total 5
"""


def test_counters_of_either_engine():
    assert read_counters(EXPOSITION) == {"generated": 120.0, "prompt": 7.0}
    assert read_counters(EXPOSITION.replace(b"kt:", b"sglang:")) == {"generated": 120.0, "prompt": 7.0}


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"\xff\x00", b'kt:x{a="', b"kt:generation_tokens_total NaN\n"]
)
def test_what_is_no_exposition_has_no_counters(body):
    assert all(value == 0 for value in read_counters(body).values())


def test_rates_come_from_counter_differences():
    before = CounterReading(10.0, {"generated": 100.0, "prompt": 0.0})
    now = CounterReading(12.0, {"generated": 150.0, "prompt": 64.0})
    figures = with_rates(EngineFigures(tokens_per_s=3.0), before, now)
    assert (figures.tokens_per_s, figures.prompt_tokens_per_s, figures.generated_tokens) == (25.0, 32.0, 150)


def test_a_restarted_engine_gives_no_negative_rate():
    before = CounterReading(10.0, {"generated": 100.0})
    figures = with_rates(EngineFigures(), before, CounterReading(12.0, {"generated": 5.0}))
    assert figures.tokens_per_s is None
    assert with_rates(EngineFigures(tokens_per_s=3.0), None, CounterReading(1.0, {})).tokens_per_s == 3.0
