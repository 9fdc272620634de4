"""Experts with other activations than SiLU, with biases, and with a format of its own for down."""

from __future__ import annotations

import os

import kernel_cases as cases
import kernel_oracle as oracle
import numpy as np
import pytest
import torch

from engine import _csrc
from engine.cpu import GPT_OSS, SILU, ExpertLayer, Gating, Team, available_isas

ACTIVATIONS = {"silu": SILU, "gpt_oss": GPT_OSS, "clamped": Gating(limit=0.75)}
SAMPLE = ("f32", "bf16", "fp8_block128", "mxfp4", "q4_k")
PAIRS = (
    ("q4_k", "q6_k"),
    ("mxfp4", "bf16"),
    ("fp8_block128", "q8_0"),
    ("bf16", "mxfp4"),
    ("f32", "fp8_channel"),
)


@pytest.fixture(params=available_isas())
def team(request: pytest.FixtureRequest) -> Team:
    return Team(2, isa=request.param)


@pytest.fixture
def rng() -> np.random.Generator:
    seed = int.from_bytes(os.urandom(4), "little")
    print(f"seed {seed}")
    return np.random.default_rng(seed)


def sizes(*formats: str) -> tuple[int, int]:
    """Hidden and intermediate: ragged where the formats allow it, and never a multiple of a pair of tiles."""
    align = max(oracle.WHOLE_BLOCKS.get(fmt, 1) for fmt in formats)
    return (130, 75) if align == 1 else (3 * align, align if align > 32 else 5 * align)


def compare(team, rng, formats, activation, biased, tokens, mode, count=3, k=2):
    hidden, intermediate = sizes(*formats)
    matrices = [
        [oracle.random_weight(rng, fmt, *shape) for _ in range(count)]
        for fmt, shape in zip(
            (formats[0], *formats),
            ((intermediate, hidden), (intermediate, hidden), (hidden, intermediate)),
            strict=True,
        )
    ]
    biases = [
        [rng.standard_normal(n).astype(np.float32) for n in (intermediate, intermediate, hidden)]
        for _ in range(count)
    ]
    layer = ExpertLayer(
        team,
        formats[0],
        count,
        hidden,
        intermediate,
        mode=mode,
        down_format=formats[1],
        activation=activation,
    )
    for e in range(count):
        g, u, d = (m[e] for m in matrices)
        more = dict(zip(("gate_bias", "up_bias", "down_bias"), biases[e], strict=True)) if biased else {}
        layer.load(e, g.data, u.data, d.data, g.scale, u.scale, d.scale, **more)
    x = cases.activations(rng, tokens, hidden) * 3
    ids, weights = cases.routing(rng, tokens, count, k)
    call = [torch.from_numpy(part) for part in (x, ids, weights)]
    y = layer.forward(*call)
    assert torch.equal(y, layer.forward(*call))
    wide = [[part.astype(np.float64) for part in of] for of in biases] if biased else None
    gating = (activation.limit, activation.alpha, activation.shift)
    expected, size, step = oracle.experts_forward(*matrices, x, ids, weights, gating, wide)
    bound = sum(
        oracle.experts_bound(size, step, fmt, team.isa, max(hidden, intermediate), mode, tokens * k)
        for fmt in set(formats)
    )
    assert (np.abs(y.numpy() - expected) <= bound).all()


@pytest.mark.parametrize("tokens", [1, 5, 150])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("fmt", SAMPLE)
def test_activations_and_biases_stay_within_the_bound(team, rng, fmt, activation, biased, tokens):
    mode = "fast" if fmt == "q4_k" else "exact"
    compare(team, rng, (fmt, fmt), ACTIVATIONS[activation], biased, tokens, mode)


@pytest.mark.parametrize("tokens", [1, 3, 9, 150])
@pytest.mark.parametrize("mode", ["exact", "fast"])
@pytest.mark.parametrize("formats", PAIRS)
def test_down_in_a_format_of_its_own_stays_within_the_bound(team, rng, formats, mode, tokens):
    compare(team, rng, formats, GPT_OSS, True, tokens, mode)


def test_limits_cut_both_sides_of_up_and_the_upper_side_of_gate():
    layer = ExpertLayer(Team(1), "f32", 1, 4, 4, activation=Gating(limit=2.0, alpha=1.5, shift=1.0))
    layer.load(0, torch.eye(4), torch.eye(4) * -3, torch.eye(4))
    x = torch.tensor([[0.5, -0.5, 100.0, -100.0]])
    gate, up = x.double().clamp(max=2), (x.double() * -3).clamp(-2, 2)
    expected = gate * torch.sigmoid(1.5 * gate) * (up + 1)
    y = layer.forward(x, torch.zeros(1, 1, dtype=torch.int32), torch.ones(1, 1))
    torch.testing.assert_close(y, expected.float(), rtol=1e-5, atol=1e-30)


def test_one_bias_alone_counts():
    for which in ("gate_bias", "up_bias", "down_bias"):
        layer = ExpertLayer(Team(1), "f32", 1, 4, 4)
        bias = torch.tensor([1.0, -2.0, 0.5, 3.0])
        layer.load(0, torch.eye(4), torch.eye(4), torch.eye(4), **{which: bias})
        x = torch.tensor([[0.5, -0.25, 2.0, 1.0]])
        parts = {
            name: bias if name == which else torch.zeros(4) for name in ("gate_bias", "up_bias", "down_bias")
        }
        h = torch.nn.functional.silu(x + parts["gate_bias"]) * (x + parts["up_bias"])
        y = layer.forward(x, torch.zeros(1, 2, dtype=torch.int32), torch.tensor([[0.5, 0.25]]))
        torch.testing.assert_close(y, 0.75 * (h + parts["down_bias"]))


def test_the_layer_of_gpt_oss_agrees_with_transformers():
    gpt_oss = pytest.importorskip("transformers.models.gpt_oss.modeling_gpt_oss")
    config = pytest.importorskip("transformers.models.gpt_oss.configuration_gpt_oss").GptOssConfig(
        hidden_size=96, intermediate_size=64, num_local_experts=4, num_experts_per_tok=2
    )
    torch.manual_seed(int.from_bytes(os.urandom(4), "little"))
    reference = gpt_oss.GptOssExperts(config).float()
    for parameter in reference.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    layer = ExpertLayer(Team(2), "f32", 4, 96, 64, activation=GPT_OSS)
    with torch.no_grad():
        for e in range(4):
            both, bias = reference.gate_up_proj[e].T, reference.gate_up_proj_bias[e]
            layer.load(
                e,
                both[0::2],
                both[1::2],
                reference.down_proj[e].T,
                gate_bias=bias[0::2],
                up_bias=bias[1::2],
                down_bias=reference.down_proj_bias[e],
            )
        for tokens in (1, 40):
            x = torch.randn(tokens, 96) * 3
            ids = torch.stack([torch.randperm(4)[:2] for _ in range(tokens)])
            weights = torch.rand(tokens, 2)
            # Its forward takes the weight of each choice, of each expert in older releases.
            expected = reference(x, ids, weights)
            y = layer.forward(x, ids.int(), weights)
            torch.testing.assert_close(y, expected, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("isa", available_isas())
@pytest.mark.parametrize("formats", [("q8_0", "q4_1"), ("mxfp4", "bf16")])
def test_results_do_not_depend_on_threads_with_biases_and_two_formats(rng, formats, isa):
    cpu = _csrc.usable_cores()[0][0]
    state = rng.bit_generator.state
    hidden, intermediate = sizes(*formats)
    results = []
    for cores in ([(cpu, 0)], [(cpu, 0)] * 3, [(cpu, 0), (cpu, 0), (cpu, 1)]):
        rng.bit_generator.state = state
        layer = _csrc.Experts(
            _csrc.Team(cores, isa),
            formats[0],
            4,
            hidden,
            intermediate,
            "exact",
            None,
            formats[1],
            7,
            1.702,
            1,
        )
        for e in range(4):
            g, u = (oracle.random_weight(rng, formats[0], intermediate, hidden) for _ in range(2))
            d = oracle.random_weight(rng, formats[1], hidden, intermediate)
            bias = [rng.standard_normal(n).astype(np.float32) for n in (intermediate, intermediate, hidden)]
            layer.load(e, g.data, u.data, d.data, g.scale, u.scale, d.scale, *bias)
        for tokens in (1, 4, 90, 1500):
            ids, weights = cases.routing(rng, tokens, 4, 3)
            results.append(layer.forward(cases.activations(rng, tokens, hidden), ids, weights))
    runs = len(results) // 3
    for i in range(runs):
        assert np.array_equal(results[i], results[runs + i])
        assert np.array_equal(results[i], results[2 * runs + i])


@pytest.mark.parametrize(
    "activation", [Gating(limit=0.0), Gating(limit=float("nan")), Gating(alpha=float("inf"))]
)
def test_wrong_activations_are_refused_with_their_reason(activation):
    with pytest.raises(ValueError, match="limit must be above zero, its alpha and shift finite"):
        ExpertLayer(Team(1), "f32", 1, 4, 4, activation=activation)


def test_wrong_biases_are_refused_with_their_reason():
    layer = ExpertLayer(Team(1), "f32", 1, 4, 4)
    square = torch.eye(4)
    with pytest.raises(ValueError, match=r"up bias must have shape \[4\], not \[5\]"):
        layer.load(0, square, square, square, up_bias=torch.zeros(5))
    with pytest.raises(ValueError, match="expert 0, down: bias 2 is not a finite number"):
        layer.load(0, square, square, square, down_bias=torch.tensor([0, 0, torch.inf, 0]))
    assert not layer.loaded(0)
