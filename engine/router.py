"""The one routing function of all mixture-of-experts families."""

from __future__ import annotations

from typing import Literal

import torch

Score = Literal["softmax", "sigmoid", "topk_softmax"]


def route(
    logits: torch.Tensor,
    bias: torch.Tensor | None = None,
    *,
    k: int,
    score: Score,
    groups: tuple[int, int] | None = None,
    renorm: bool = False,
    scale: float = 1.0,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Choose the experts of each token and their weights.

    In this order: score; add the bias, for the choice only; drop all but the best groups; take the k best, equals
    in the order of their numbers; weigh them by their scores without the bias; normalise; scale.

    Args:
        logits: ``[tokens, experts]``, float32.
        bias: ``[experts]`` correction (``e_score_correction_bias``) that moves the choice and never the weights.
        k: Experts a token.
        score: ``sigmoid`` (MiniMax, DeepSeek, GLM), ``softmax`` over all experts (Qwen, Mixtral), or
            ``topk_softmax``: choose by logit, then softmax over the chosen (gpt-oss).
        groups: Number of groups that the experts fall into, and how many of them are kept; a group counts as
            much as its two best experts together (DeepSeek-V3).
        renorm: Whether the k weights are divided by their sum.
        scale: Factor on the weights, at the very end.

    Returns:
        Expert numbers int32 ``[tokens, k]``, best first, and weights float32 of the same shape.
    """
    scores = logits
    if score == "sigmoid":
        scores = torch.sigmoid(logits)
    elif score == "softmax":
        scores = torch.softmax(logits, -1)
    choice = scores if bias is None else scores + bias
    if groups is not None:
        choice = _keep_groups(choice, *groups)
    # topk promises no order among equals; a stable sort does, so that results do not depend on the machine.
    ids = torch.sort(choice, dim=-1, descending=True, stable=True).indices[:, :k]
    weights = scores.gather(1, ids)
    if score == "topk_softmax":
        weights = torch.softmax(weights, -1)
    if renorm:
        weights.div_(weights.sum(-1, keepdim=True).add_(1e-20))
    if scale != 1.0:
        weights.mul_(scale)
    return ids.to(torch.int32), weights


def _keep_groups(choice: torch.Tensor, count: int, keep: int) -> torch.Tensor:
    """Set the choice scores of all but the ``keep`` best groups to minus infinity.

    Zero would not do: a biased score may be negative and lose to a dropped one.
    """
    grouped = choice.view(choice.shape[0], count, -1)
    strength = grouped.topk(min(2, grouped.shape[-1]), dim=-1).values.sum(-1)
    best = torch.sort(strength, dim=-1, descending=True, stable=True).indices[:, :keep]
    dropped = torch.ones_like(strength, dtype=torch.bool).scatter_(1, best, False)
    return grouped.masked_fill(dropped.unsqueeze(-1), -torch.inf).flatten(-2)
