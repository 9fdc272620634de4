"""Grouped-query attention over the paged cache."""

from __future__ import annotations

import torch
from torch.nn.functional import scaled_dot_product_attention

from engine.batch import Batch, Segment


def attend(qkv: torch.Tensor, cache: torch.Tensor, batch: Batch, heads: int, kv_heads: int) -> torch.Tensor:
    """Store the new keys and values and let every row look at its own sequence up to itself.

    Args:
        qkv: ``[rows, heads + 2 * kv_heads, head_dim]``: queries, keys and values, normed and rotated. The queries
            are scaled in place.
        cache: One layer's ``[2, kv_heads, tokens, head_dim]``, written in place.
        batch: What the rows are.
        heads: Query heads; ``heads / kv_heads`` neighbouring ones share a key head.
        kv_heads: Key and value heads.

    Returns:
        ``[rows, heads * head_dim]``.
    """
    head_dim = qkv.shape[-1]
    qkv[:, :heads].mul_(head_dim**-0.5)
    outputs = []
    for segment in batch.segments:
        begin, end = segment.begin, segment.end
        new = qkv[begin:end, heads:].view(-1, 2, kv_heads, head_dim).permute(1, 2, 0, 3)
        row = 0
        for start, stop in segment.write:
            cache.narrow(2, start, stop - start).copy_(new.narrow(2, row, stop - start))
            row += stop - start
        queries = qkv[begin:end, :heads]
        if end - begin == 1:
            outputs.append(_attend_one(queries.view(kv_heads, -1, head_dim), cache, segment))
        else:
            outputs.append(_attend_many(queries.view(end - begin, kv_heads, -1, head_dim), cache, segment))
    return outputs[0] if len(outputs) == 1 else torch.cat(outputs)


def _attend_one(queries: torch.Tensor, cache: torch.Tensor, segment: Segment) -> torch.Tensor:
    """One new token, queries ``[kv_heads, group, head_dim]``: plain products, faster here than the fused kernel."""
    keys, values = cache.unbind()
    if len(segment.read) == 1:
        start, stop = segment.read[0]
        scores = torch.bmm(queries, keys.narrow(1, start, stop - start).mT)
        return torch.bmm(torch.softmax(scores, -1), values.narrow(1, start, stop - start)).view(1, -1)
    scores = torch.cat([torch.bmm(queries, keys[:, start:stop].mT) for start, stop in segment.read], -1)
    weights = torch.softmax(scores, -1)
    output = torch.zeros_like(queries)
    at = 0
    for start, stop in segment.read:
        output.baddbmm_(weights[..., at : at + stop - start], values[:, start:stop])
        at += stop - start
    return output.view(1, -1)


def _attend_many(queries: torch.Tensor, cache: torch.Tensor, segment: Segment) -> torch.Tensor:
    """A chunk of new tokens, queries ``[new, kv_heads, group, head_dim]``.

    Key heads take the place of the batch dimension, and the group shares them without a copy (stride 0).
    """
    group = queries.shape[2]
    runs = [cache[:, :, start:stop] for start, stop in segment.read]
    history = runs[0] if len(runs) == 1 else torch.cat(runs, 2)
    keys, values = history.unsqueeze(2).expand(-1, -1, group, -1, -1)
    mask = segment.mask
    output = scaled_dot_product_attention(
        queries.permute(1, 2, 0, 3), keys, values, attn_mask=mask, is_causal=mask is None, scale=1.0
    )
    return output.permute(2, 0, 1, 3).flatten(1)
