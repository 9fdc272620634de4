from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

import engine.experts
from engine import cpu
from engine.plan import Routing, mix
from engine.runner import Row


def prompt(length: int, seed: int = 0) -> list[int]:
    return torch.randint(0, 300, (length,), generator=torch.Generator().manual_seed(length + seed)).tolist()


def last_logits(runner: Any, ids: list[int]) -> torch.Tensor:
    sequence = runner.open_sequence()
    (logits,) = runner.step([Row(sequence, ids, want_logits=True)])
    runner.close_sequence(sequence)
    return logits


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("store", ["fp8", "bf16", "f32"])
@pytest.mark.parametrize("length", [1, 17, 130])
def test_logits_agree_with_the_oracle(minimax, bound, store, seed, length):
    case = minimax(store=store, seed=seed)
    ids = prompt(length)
    expected = case.logits(ids)[-1]
    error = (last_logits(case.load(), ids) - expected).abs().max()
    assert error <= bound(expected, bf16_weights=store != "f32")


@pytest.mark.parametrize(
    "sizes",
    [
        {"hidden": 160, "intermediate": 96, "heads": 5, "kv_heads": 1, "head_dim": 32, "rotary": 32},
        {"hidden": 224, "intermediate": 160, "heads": 6, "kv_heads": 3, "head_dim": 64, "rotary": 32},
        {
            "hidden": 256,
            "intermediate": 128,
            "heads": 4,
            "kv_heads": 2,
            "head_dim": 64,
            "experts": 3,
            "top_k": 1,
        },
        {
            "hidden": 96,
            "intermediate": 32,
            "heads": 2,
            "kv_heads": 2,
            "head_dim": 16,
            "top_k": 8,
            "layers": 3,
        },
    ],
)
def test_ragged_sizes_agree_with_the_oracle(minimax, bound, sizes):
    case = minimax(store="fp8", seed=5, **sizes)
    ids = prompt(17)
    expected = case.logits(ids)[-1]
    error = (last_logits(case.load(), ids) - expected).abs().max()
    assert error <= bound(expected, layers=sizes.get("layers", 2), bf16_weights=True, width=sizes["hidden"])


@pytest.mark.parametrize("store", ["fp8", "bf16"])
@pytest.mark.parametrize("length", [1, 17, 130])
def test_sixteen_greedy_tokens_agree_with_the_oracle(minimax, bound, store, length):
    case = minimax(store=store, seed=2)
    ids = prompt(length, seed=3)
    expected = case.greedy(ids, 16)
    runner = case.load()
    sequence = runner.open_sequence()
    (logits,) = runner.step([Row(sequence, ids, want_logits=True)])
    decided = beyond = 0
    for number, (token, oracle) in enumerate(expected):
        limit = bound(oracle, bf16_weights=True)
        # Where two experts are as good as each other, rounding may choose either: such a step proves nothing.
        margin = case.router_margin([*ids, *(earlier for earlier, _ in expected[:number])])
        if margin > limit / float(oracle.std()) / 4:
            beyond += bool((logits - oracle).abs().max() > limit)
            if oracle.topk(2).values.diff().abs() > 2 * limit:
                assert int(logits.argmax()) == token
                decided += 1
        (logits,) = runner.step([Row(sequence, [token], want_logits=True)])
    if cpu.active_isa() in ("avx512_bf16", "amx"):
        # The same may have happened to an earlier token that this one looks at.
        assert beyond <= 4
        assert decided >= 4
    else:
        assert beyond == 0
        assert decided >= 12


@pytest.mark.parametrize(
    "config",
    [
        {"rotary_dim": 16, "rope_theta": 10000},
        {
            "rotary_dim": "absent",
            "rope_theta": "absent",
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5},
        },
        {"rotary_dim": "absent", "rope_theta": 10000, "partial_rotary_factor": 0.5},
    ],
)
def test_every_spelling_of_the_rope_settings_means_the_same(minimax, bound, config):
    case = minimax(store="bf16", config=config)
    ids = prompt(40)
    expected = case.logits(ids)[-1]
    assert (last_logits(case.load(), ids) - expected).abs().max() <= bound(expected, bf16_weights=True)


def test_the_norm_epsilon_comes_from_the_configuration(minimax, bound):
    """With the epsilon of another model the error is far beyond rounding."""
    right, wrong = minimax(store="f32"), minimax(store="f32", config={"rms_norm_eps": 1e-6})
    ids = prompt(17)
    expected = right.logits(ids)[-1]
    assert (last_logits(wrong.load(), ids) - expected).abs().max() > 10 * bound(expected, bf16_weights=False)


@pytest.mark.parametrize(("shards", "index"), [(1, True), (1, False), (3, True), (3, False)])
def test_shards_are_found_with_and_without_an_index(minimax, bound, shards, index):
    case = minimax(store="fp8", shards=shards, index=index)
    ids = prompt(17)
    expected = case.logits(ids)[-1]
    assert (last_logits(case.load(), ids) - expected).abs().max() <= bound(expected, bf16_weights=True)


def test_layers_for_multi_token_prediction_are_not_read(minimax):
    """Three layers on disk, two in the configuration: the third is skipped, even if it cannot be run."""
    deep = minimax(store="bf16", layers=3, config={"num_hidden_layers": 2, "num_mtp_modules": 1})
    shallow = minimax(store="bf16", layers=2)
    runner = deep.load()
    assert runner.stats.weight_bytes == shallow.load().stats.weight_bytes
    assert len(runner.stats.expert_hits) == 2


Choice = tuple[Routing, torch.Tensor | None]

# Wrong ways to choose, made of the right one and its bias.
WRONG: dict[str, Callable[[Routing, torch.Tensor], Choice]] = {
    "ignores the bias": lambda way, bias: (way, None),
    "gives the bias to other experts": lambda way, bias: (way, bias.roll(1)),
    "does not normalise": lambda way, bias: (replace(way, renorm=False), bias),
    "takes softmax": lambda way, bias: (replace(way, score="softmax"), bias),
    "drops an expert": lambda way, bias: (replace(way, k=way.k - 1), bias),
    "scales": lambda way, bias: (replace(way, scale=1.1), bias),
}


@pytest.mark.parametrize("wrong", [None, *WRONG])
def test_a_wrong_router_shows_in_the_logits(minimax, bound, monkeypatch, wrong):
    case = minimax(store="fp8", seed=1)
    ids = prompt(17)
    expected = case.logits(ids)[-1]
    runner = case.load()
    if wrong:

        def changed(experts: Any, way: Routing, bias: torch.Tensor, *others: Any) -> None:
            mix(experts, *WRONG[wrong](way, bias), *others)

        monkeypatch.setattr(engine.experts, "mix", changed)
    error = (last_logits(runner, ids) - expected).abs().max()
    limit = bound(expected, bf16_weights=True)
    assert (error > 3 * limit) if wrong else (error <= limit)


def test_expert_hits_count_every_routed_token(minimax):
    case = minimax(store="fp8", seed=0)
    runner = case.load()
    assert sum(map(sum, runner.stats.expert_hits)) == 0
    last_logits(runner, prompt(17))
    chosen = case.routed(prompt(17))
    assert [list(layer) for layer in runner.stats.expert_hits] == chosen
