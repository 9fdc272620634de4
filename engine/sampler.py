"""From logits to the next token: greedy, temperature, top-k, top-p, min-p, with a generator per request.

The order is that of transformers and vLLM: temperature, then top-k, then top-p of what top-k left, then min-p.
A draw takes one uniform number from the request's own generator and inverts the cumulative distribution, so a
seed gives the same tokens whatever else is in the batch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from engine.request import SamplingParams


class SamplingError(Exception):
    """The logits hold no distribution (NaN, or all minus infinity)."""


class Sampler:
    """Draws the tokens of one request; holds its random state."""

    def __init__(self, params: SamplingParams) -> None:
        self.params = params
        self._generator: torch.Generator | None = None
        if not params.greedy:
            self._generator = torch.Generator()
            if params.seed is None:
                self._generator.seed()
            else:
                self._generator.manual_seed(params.seed)

    def draw(self, logits: torch.Tensor) -> int:
        """Choose a token.

        Args:
            logits: float32 [vocab]; minus infinity forbids a token.

        Raises:
            SamplingError: The logits hold no distribution.
        """
        if self._generator is None:
            token = int(logits.argmax())  # the index of a NaN, if there is one
            _check(logits[token])
            return token
        ids, weights = candidates(logits, self.params)
        cumulative = weights.cumsum(0, dtype=torch.float64)
        uniform = torch.rand(1, generator=self._generator, dtype=torch.float64)
        # `right` skips tokens of weight zero; the bound guards against rounding in the last sum.
        index = int(torch.searchsorted(cumulative, uniform * cumulative[-1], right=True))
        if index >= len(weights):
            index = int(weights.nonzero()[-1])
        return index if ids is None else int(ids[index])


def sample(logits: Sequence[torch.Tensor], samplers: Sequence[Sampler]) -> list[int | SamplingError]:
    """Choose one token per row; a row without a distribution gives its error and harms no other.

    Args:
        logits: One float32 [vocab] per row.
        samplers: The rows' samplers.
    """
    tokens: list[int | SamplingError] = []
    for row, sampler in zip(logits, samplers, strict=True):
        try:
            tokens.append(sampler.draw(row))
        except SamplingError as error:
            tokens.append(error)
    return tokens


def candidates(logits: torch.Tensor, params: SamplingParams) -> tuple[torch.Tensor | None, torch.Tensor]:
    """The distribution that ``params`` draws from.

    Args:
        logits: float32 [vocab].
        params: With a temperature above zero.

    Returns:
        Token ids, or None where the whole vocabulary is meant, and their weights: probabilities times a constant,
        1 for the likeliest token and 0 for tokens that a filter dropped.

    Raises:
        SamplingError: The logits hold no distribution.
    """
    values = logits.detach().to("cpu")
    highest = values.max()  # NaN if any logit is
    _check(highest)
    ids: torch.Tensor | None = None
    if 0 < params.top_k < values.numel():
        values, ids = values.topk(params.top_k)
    weights = ((values - highest) / params.temperature).exp_()
    if params.top_p < 1:
        kept = _nucleus(weights, params.top_p)
        weights, ids = weights[kept], kept if ids is None else ids[kept]
    if params.min_p > 0:
        weights = weights.masked_fill(weights < params.min_p, 0.0)
    return ids, weights


def _nucleus(weights: torch.Tensor, top_p: float) -> torch.Tensor:
    """Indices of the smallest set of largest weights that has ``top_p`` of their sum, largest first."""
    total = weights.sum(dtype=torch.float64)
    # All weights below this together have less than the part that may be missing, so none of them is in the set.
    # That leaves a few of 200,000 tokens to sort.
    least = (1 - top_p) * total / weights.numel()
    indices = (weights >= least).nonzero().squeeze(1)
    ordered, order = weights[indices].sort(descending=True, stable=True)
    ordered = ordered.to(torch.float64)
    # A token stays while the ones before it have not yet reached top_p; so the first always stays.
    before = ordered.cumsum(0) - ordered
    return indices[order[before < top_p * total]]


def _check(highest: torch.Tensor) -> None:
    if not math.isfinite(float(highest)):
        raise SamplingError("the model's output is not a number; the checkpoint may be damaged")
