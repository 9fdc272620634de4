"""What is told of a measurement, and what calls are made of."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from bench.kernel_cases import EXPERT_FORMATS, INTEGERS, random_matrix, routing
from bench.kernel_report import BEGIN, END, Row, goal, markdown, read_lines, replace_table, to_json
from engine.cpu import Linear, Team


def row(**changes: object) -> Row:
    values = {
        "operation": "experts",
        "format": "bf16",
        "shape": "2048/768",
        "mode": "exact",
        "tokens": 1,
        "threads": 2,
        "isa": "avx512_bf16",
        "milliseconds": 1.5,
        "unit": "GB/s",
        "figure": 37.25,
        "limit": 40.0,
        "share": 0.93125,
    }
    return Row(**(values | changes))  # type: ignore[arg-type]


def test_one_token_takes_the_next_experts_each_turn_and_many_take_distinct_ones():
    seen = [int(i) for turn in range(4) for i in routing(16, 4, 1, turn)[0].flatten()]
    assert seen == list(range(16))
    ids, weights = routing(32, 8, 20, 3)
    assert all(len(set(token)) == 8 for token in ids.tolist())
    assert weights.shape == (20, 8)


@pytest.mark.parametrize("fmt", EXPERT_FORMATS)
def test_every_format_can_be_measured(fmt):
    raw, scale = random_matrix(fmt, 48, 512)
    linear = Linear(Team(1), fmt, raw, scale, rows=48, cols=512)
    y = linear(torch.ones(2, 512))
    assert np.isfinite(y.numpy()).all()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, 0.92),
        ({"tokens": 16}, 0.85),
        ({"isa": "avx2"}, 0.92),
        ({"isa": "avx2", "format": "fp8_block128"}, 0.85),
        ({"tokens": 1024, "mode": "fast", "format": "mxfp4"}, 0.60),
        ({"operation": "error"}, None),
        ({"tokens": 256}, 0.75),
        ({"tokens": 1024}, 0.85),
        ({"tokens": 1024, "mode": "fast", "format": INTEGERS[0]}, 0.60),
        ({"tokens": 4096, "isa": "amx"}, 0.60),
        ({"tokens": 256, "isa": "amx"}, None),
        ({"operation": "attention"}, None),
    ],
)
def test_goals(changes, expected):
    assert goal(row(**changes)) == expected


def test_lines_go_into_the_page_between_its_markers(tmp_path):
    file = tmp_path / "a.jsonl"
    file.write_text(
        "\n".join([json.dumps({"cpu": "A CPU", "variant": "avx2"}), to_json(row()), to_json(row(share=0.5))])
    )
    table = markdown(read_lines([file]))
    assert "A CPU, variant avx2:" in table
    assert "| 37.2 GB/s | 40.0 | 0.93 | 0.92 met |" in table
    assert "| 0.50 | 0.92 missed |" in table
    page = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    assert replace_table(page, "new") == f"before\n{BEGIN}\n\nnew\n{END}\nafter\n"
    with pytest.raises(ValueError, match="has no"):
        replace_table("nothing", "new")


def test_an_error_has_neither_limit_nor_goal():
    one = row(operation="error", format="q4_k", unit="relative", figure=0.0061, limit=0.0, share=0.0)
    assert "0.0061 relative | | | |" in markdown([({"cpu": "A CPU"}, [one])])
    assert str(one).endswith("0.0061")
