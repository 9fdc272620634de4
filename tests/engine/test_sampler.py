"""The sampler against an oracle in numpy float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from engine.request import RequestError, SamplingParams
from engine.sampler import Sampler, SamplingError, candidates, sample


def oracle(logits: np.ndarray, params: SamplingParams) -> np.ndarray:
    """The distribution by the definition, one filter after the other, each on the renormalised rest."""
    scaled = logits.astype(np.float64) / params.temperature
    probabilities = np.exp(scaled - scaled.max())
    probabilities /= probabilities.sum()
    order = np.argsort(-probabilities, kind="stable")
    if params.top_k:
        probabilities[order[params.top_k :]] = 0
        probabilities /= probabilities.sum()
    if params.top_p < 1:
        ranked = probabilities[order]
        reached = np.cumsum(ranked) - ranked
        probabilities[order[reached >= params.top_p]] = 0
        probabilities /= probabilities.sum()
    probabilities[probabilities < params.min_p * probabilities.max()] = 0
    return probabilities / probabilities.sum()


def dense(logits: torch.Tensor, params: SamplingParams) -> np.ndarray:
    ids, weights = candidates(logits, params)
    full = np.zeros(len(logits))
    full[slice(None) if ids is None else ids.numpy()] = weights.double().numpy()
    assert full.max() == 1
    return full / full.sum()


FILTERS = [
    {},
    {"temperature": 0.3},
    {"temperature": 2.5},
    {"top_k": 1},
    {"top_k": 40},
    {"top_k": 100_000},
    {"top_p": 0.1},
    {"top_p": 0.9},
    {"top_p": 0.999},
    {"min_p": 0.05},
    {"min_p": 1.0},
    {"temperature": 0.7, "top_k": 50, "top_p": 0.9, "min_p": 0.1},
    {"temperature": 1.8, "top_k": 2000, "top_p": 0.95},
]


@pytest.mark.parametrize("settings", FILTERS, ids=str)
@pytest.mark.parametrize(("size", "spread"), [(7, 2.0), (300, 1.0), (49152, 3.0), (49152, 0.2)])
def test_the_distribution_is_the_oracles(settings: dict[str, float], size: int, spread: float) -> None:
    logits = torch.randn(size, generator=torch.Generator().manual_seed(size)) * spread
    params = SamplingParams(**settings)  # type: ignore[arg-type]
    found, wanted = dense(logits, params), oracle(logits.numpy(), params)
    # A cumulative sum within rounding of top_p may keep one token more or less: allow for it by mass.
    assert np.abs(found - wanted).sum() < 1e-4
    assert abs(int((found > 0).sum()) - int((wanted > 0).sum())) <= 1


def test_top_p_keeps_the_token_that_reaches_it_and_no_more() -> None:
    logits = torch.tensor([0.5, 0.3, 0.15, 0.05]).log()
    assert (dense(logits, SamplingParams(top_p=0.79)) > 0).tolist() == [True, True, False, False]
    assert (dense(logits, SamplingParams(top_p=0.81)) > 0).tolist() == [True, True, True, False]
    assert (dense(logits, SamplingParams(top_p=0.01)) > 0).tolist() == [True, False, False, False]


def test_top_p_is_taken_of_what_top_k_left() -> None:
    logits = torch.tensor([0.4, 0.3, 0.2, 0.1]).log()
    # Of the two likeliest alone, the first has 0.57; of all four it has 0.4.
    assert (dense(logits, SamplingParams(top_k=2, top_p=0.5)) > 0).tolist() == [True, False, False, False]


@pytest.mark.parametrize(
    "settings", [{}, {"top_k": 5}, {"top_p": 0.8}, {"temperature": 0.6, "min_p": 0.1}], ids=str
)
def test_draws_follow_the_distribution(settings: dict[str, float]) -> None:
    logits = torch.tensor([2.0, 1.5, 1.0, 0.5, 0.0, -0.5, -1.0, -torch.inf])
    params = SamplingParams(seed=3, **settings)  # type: ignore[arg-type]
    sampler, draws = Sampler(params), 20_000
    counts = np.bincount([sampler.draw(logits) for _ in range(draws)], minlength=8)
    wanted = oracle(logits.numpy(), params) * draws
    assert (counts[wanted == 0] == 0).all()
    kept = wanted > 0
    chi_square = ((counts[kept] - wanted[kept]) ** 2 / wanted[kept]).sum()
    assert (
        chi_square < 30
    )  # 7 degrees of freedom at most: one in ten thousand is above 29.9; the seed is fixed


def test_temperature_zero_takes_the_likeliest() -> None:
    logits = torch.randn(49152)
    logits[777] = 100
    assert Sampler(SamplingParams(temperature=0)).draw(logits) == 777
    assert Sampler(SamplingParams(temperature=1e-6)).draw(logits) == 777


def test_a_tiny_temperature_does_not_overflow() -> None:
    logits = torch.tensor([1e4, 1e4 - 1, -1e4])
    assert Sampler(SamplingParams(temperature=2e-5, seed=1)).draw(logits) == 0


def test_a_seed_repeats_and_another_differs() -> None:
    logits = torch.zeros(1000)

    def twenty(seed: int | None) -> list[int]:
        sampler = Sampler(SamplingParams(seed=seed))
        return [sampler.draw(logits) for _ in range(20)]

    assert twenty(5) == twenty(5)
    assert twenty(-(2**63)) == twenty(-(2**63))
    assert twenty(5) != twenty(6)
    assert twenty(None) != twenty(None)


def test_rows_of_a_batch_draw_as_if_alone() -> None:
    rows = [torch.randn(5000) for _ in range(6)]
    params = [SamplingParams(seed=i, top_p=0.9, top_k=i * 10) for i in range(6)]
    alone = [Sampler(p).draw(row) for p, row in zip(params, rows, strict=True)]
    assert sample(rows, [Sampler(p) for p in params]) == alone


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_logits_that_are_no_numbers_are_an_error(temperature: float, bad: float) -> None:
    logits = torch.zeros(10)
    logits[4] = bad
    with pytest.raises(SamplingError):
        Sampler(SamplingParams(temperature=temperature)).draw(logits)
    with pytest.raises(SamplingError):
        Sampler(SamplingParams(temperature=temperature)).draw(torch.full((10,), -torch.inf))


def test_one_bad_row_leaves_the_others() -> None:
    good = torch.zeros(4)
    good[2] = 5
    tokens = sample([torch.full((4,), torch.nan), good], [Sampler(SamplingParams(temperature=0))] * 2)
    assert isinstance(tokens[0], SamplingError)
    assert tokens[1] == 2


@pytest.mark.parametrize(
    "settings",
    [
        {"temperature": -1},
        {"temperature": float("nan")},
        {"top_k": -2},
        {"top_p": 0},
        {"top_p": 1.1},
        {"min_p": -0.1},
        {"seed": 2**63},
        {"max_tokens": 0},
        {"stop": ("",)},
    ],
    ids=str,
)
def test_parameters_out_of_range_are_named(settings: dict[str, object]) -> None:
    with pytest.raises(RequestError) as caught:
        SamplingParams(**settings)  # type: ignore[arg-type]
    assert caught.value.param == next(iter(settings))
