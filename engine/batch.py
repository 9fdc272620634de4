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
        past: Tokens that the sequence held before.
        slots: Slots of the cache of all its tokens, the new ones included, in order.
    """

    begin: int
    end: int
    past: int
    slots: tuple[Run, ...]


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
        segments.append(Segment(begin, begin + count, past, tuple(table.slots(0, past + count))))
        if want_logits:
            logit_rows.append(begin + count - 1)
    return Batch(
        torch.tensor(tokens, dtype=torch.int64, device=device),
        torch.tensor(positions, dtype=torch.int64, device=device),
        tuple(segments),
        torch.tensor(logit_rows, dtype=torch.int64, device=device),
    )
