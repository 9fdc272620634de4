"""From logits to the next token: greedy, temperature, top-k, top-p, min-p, with a generator per request.

The order is that of transformers and vLLM: temperature, then top-k, then top-p of what top-k left, then min-p.
A draw takes one uniform number from the request's own generator and inverts the cumulative distribution, so a
seed gives the same tokens whatever else is in the batch.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from engine.request import SamplingParams

# top-p needs the tokens in order. The likeliest 1024 hold the mass in all but near-uniform distributions, and
# selecting them is many times cheaper than sorting a vocabulary of 200,000.
_CANDIDATES = 1024


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
        _check(logits)
        if self._generator is None:
            return int(logits.argmax())
        ids, probabilities = distribution(logits, self.params)
        cumulative = probabilities.cumsum(0)
        uniform = torch.rand(1, generator=self._generator, dtype=torch.float64)
        # `right` skips tokens of probability zero; the clamp guards against rounding in the last cumulative sum.
        index = torch.searchsorted(cumulative, uniform * cumulative[-1], right=True)
        index = index.clamp(max=int(probabilities.nonzero()[-1]))
        return int(index) if ids is None else int(ids[index])


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


def distribution(logits: torch.Tensor, params: SamplingParams) -> tuple[torch.Tensor | None, torch.Tensor]:
    """The distribution that ``params`` draws from.

    Args:
        logits: float32 [vocab].
        params: With a temperature above zero.

    Returns:
        Token ids (None where every token is a candidate, in order of id) and their probabilities in float64,
        which sum to 1; zero where a filter dropped the token.
    """
    scaled = (logits.detach().to("cpu", torch.float64) - logits.max().item()) / params.temperature
    ids: torch.Tensor | None = None
    if 0 < params.top_k < scaled.numel():
        scaled, ids = scaled.topk(params.top_k)
    if params.top_p < 1:
        scaled, ids = _nucleus(scaled, ids, params.top_p)
    if params.min_p > 0:
        scaled = scaled.masked_fill(scaled.exp() < params.min_p * scaled.max().exp(), -torch.inf)
    return ids, scaled.softmax(0)


def _nucleus(
    scaled: torch.Tensor, ids: torch.Tensor | None, top_p: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Keep the smallest set of likeliest tokens whose probability reaches ``top_p``."""
    total = scaled.logsumexp(0)
    for count in (min(_CANDIDATES, scaled.numel()), scaled.numel()):
        values, order = scaled.topk(count)
        probabilities = (values - total).exp()
        cumulative = probabilities.cumsum(0)
        if cumulative[-1] >= top_p:
            break
    # A token stays while the ones before it have not yet reached top_p; so the first always stays.
    keep = int((cumulative - probabilities < top_p).sum())
    order = order[:keep]
    return values[:keep], order if ids is None else ids[order]


def _check(logits: torch.Tensor) -> None:
    highest = logits.max()
    if not torch.isfinite(highest):  # max is NaN if any logit is
        raise SamplingError("the model's output is not a number; the checkpoint may be damaged")
