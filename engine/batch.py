"""The rows of one step as tensors, with what attention needs to know of each sequence."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from engine.pages import PageTable, Run


@dataclass(frozen=True, slots=True)
class Segment:
    """The part of a batch that belongs to one sequence.

    Attributes:
        begin: Its first row in the batch.
        end: The row after its last.
        write: Slots of the cache that its new tokens go to, in order.
        read: Slots of all its tokens, the new ones included, in order.
        mask: ``[new, all]`` to be added to the scores, or None if there is one new token or nothing before.
    """

    begin: int
    end: int
    write: tuple[Run, ...]
    read: tuple[Run, ...]
    mask: torch.Tensor | None


@dataclass(frozen=True, slots=True)
class Batch:
    """One step.

    Attributes:
        tokens: int64 ``[rows]``, the new tokens of all sequences one after the other.
        positions: int64 ``[rows]``, each token's place in its own sequence.
        segments: One for each sequence.
        logit_rows: int64, the rows for which logits are wanted.
    """

    tokens: torch.Tensor
    positions: torch.Tensor
    segments: tuple[Segment, ...]
    logit_rows: torch.Tensor


def make_batch(parts: Iterable[tuple[Sequence[int], int, PageTable, bool]], device: torch.device) -> Batch:
    """Lay the parts of a step one after the other.

    Args:
        parts: For each sequence its new tokens, its length before them, its page table (with room for them) and
            whether logits are wanted after the last.
        device: Where the tensors live.
    """
    tokens: list[int] = []
    positions: list[int] = []
    segments: list[Segment] = []
    logit_rows: list[int] = []
    for new, past, table, want_logits in parts:
        begin, count = len(tokens), len(new)
        tokens.extend(new)
        positions.extend(range(past, past + count))
        mask = causal_mask(count, past, device) if count > 1 and past else None
        write, read = tuple(table.slots(past, past + count)), tuple(table.slots(0, past + count))
        segments.append(Segment(begin, begin + count, write, read, mask))
        if want_logits:
            logit_rows.append(begin + count - 1)
    return Batch(
        torch.tensor(tokens, dtype=torch.int64, device=device),
        torch.tensor(positions, dtype=torch.int64, device=device),
        tuple(segments),
        torch.tensor(logit_rows, dtype=torch.int64, device=device),
    )


def causal_mask(count: int, past: int, device: torch.device) -> torch.Tensor:
    """Float mask ``[count, past + count]``: zero where a new token may look, minus infinity in its future."""
    return torch.full((count, past + count), -torch.inf, device=device).triu_(past + 1)
