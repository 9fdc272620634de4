"""The rows of one step: their tokens, and what attention needs to know of each sequence."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine import _csrc
from engine.pages import PageTable


@dataclass(frozen=True, slots=True)
class Batch:
    """One step.

    Attributes:
        tokens: int64 ``[rows]``, the new tokens of all sequences one after the other.
        step: The rows' places in their sequences and in the cache, and which rows' logits are wanted.
    """

    tokens: NDArray[np.int64]
    step: _csrc.Step


def make_batch(parts: Iterable[tuple[Sequence[int], int, PageTable, bool]]) -> Batch:
    """Lay the parts of a step one after the other.

    Args:
        parts: For each sequence its new tokens, its length before them, its page table (with room for them) and
            whether logits are wanted after the last.
    """
    tokens: list[int] = []
    segments: list[tuple[int, int, int, list[tuple[int, int]]]] = []
    wanted: list[int] = []
    for new, past, table, want_logits in parts:
        begin, count = len(tokens), len(new)
        tokens.extend(new)
        segments.append((begin, begin + count, past, list(table.slots(0, past + count))))
        if want_logits:
            wanted.append(begin + count - 1)
    return Batch(np.array(tokens, dtype=np.int64), _csrc.Step(segments, wanted))
