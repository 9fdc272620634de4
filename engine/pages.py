"""The key-value cache: one pool of pages for all sequences.

Keys and values are float32: attention computes in float32 on the CPU, and a conversion of the whole history for
each token would cost more than the bytes it saves. A sequence's pages lie side by side as long as there is room,
so that its history is read in place, as a view; where it has to continue elsewhere, it is read run by run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import torch

from engine.budget import PAGE_TOKENS

Run = tuple[int, int]
"""First slot of a stretch of token slots, and the slot after its last."""


@dataclass(slots=True)
class PageTable:
    """The slots of one sequence's tokens, in order, as runs of neighbouring slots."""

    runs: list[Run] = field(default_factory=list)

    @property
    def capacity(self) -> int:
        """Tokens that fit into the pages held."""
        return sum(stop - start for start, stop in self.runs)

    def slots(self, begin: int, end: int) -> Iterator[Run]:
        """The runs that hold the tokens from ``begin`` up to, not including, ``end``."""
        at = 0
        for start, stop in self.runs:
            low, high = max(begin, at), min(end, at + stop - start)
            if low < high:
                yield start + low - at, start + high - at
            at += stop - start


class PagePool:
    """Which pages are free. Knows nothing of tensors."""

    def __init__(self, tokens: int) -> None:
        self.pages = tokens // PAGE_TOKENS
        self._free = np.ones(self.pages, dtype=np.bool_)

    @property
    def tokens(self) -> int:
        """Tokens that fit into all pages."""
        return self.pages * PAGE_TOKENS

    @property
    def tokens_used(self) -> int:
        """Tokens that fit into the pages held by sequences."""
        return (self.pages - int(self._free.sum())) * PAGE_TOKENS

    def grow(self, table: PageTable, tokens: int) -> bool:
        """Give a table room for ``tokens`` in all; False, with nothing changed, if there are not enough pages."""
        wanted = -(-max(0, tokens - table.capacity) // PAGE_TOKENS)
        if wanted > int(self._free.sum()):
            return False
        while wanted:
            start, count = self._next_run(table, wanted)
            self._free[start : start + count] = False
            first, last = start * PAGE_TOKENS, (start + count) * PAGE_TOKENS
            if table.runs and table.runs[-1][1] == first:
                table.runs[-1] = (table.runs[-1][0], last)
            else:
                table.runs.append((first, last))
            wanted -= count
        return True

    def release(self, table: PageTable) -> None:
        """Take back all pages of a table."""
        for start, stop in table.runs:
            self._free[start // PAGE_TOKENS : stop // PAGE_TOKENS] = True
        table.runs.clear()

    def _next_run(self, table: PageTable, wanted: int) -> Run:
        """First page and number of pages to take next: behind the table's last page, else in the widest gap."""
        edges = np.flatnonzero(np.diff(self._free, prepend=False, append=False))
        gaps = list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))
        after = table.runs[-1][1] // PAGE_TOKENS if table.runs else None
        for start, stop in gaps:
            if start == after:
                return start, min(wanted, stop - start)
        start, stop = max(gaps, key=lambda gap: gap[1] - gap[0])
        # Halfway in, so that whoever ends before the gap keeps room to grow; a big wish may need all of it.
        if start > 0:
            start = max(start, min((start + stop) // 2, stop - wanted))
        return start, min(wanted, stop - start)


class KvCache:
    """The memory behind the pages: for each layer ``[2, kv_heads, tokens, head_dim]``, keys before values.

    Keys lie in blocks of 16 tokens, ``[kv_heads, tokens / 16, head_dim, 16]`` in the same memory, so that the scores
    of 16 tokens are computed side by side; only `engine.plan.attend` reads or writes them.
    """

    def __init__(self, layers: int, kv_heads: int, head_dim: int, tokens: int, device: torch.device) -> None:
        self.pool = PagePool(tokens)
        shape = (2, kv_heads, self.pool.tokens, head_dim)
        # Untouched memory costs nothing: the system gives pages when they are first written.
        self.layers = [torch.empty(shape, dtype=torch.float32, device=device) for _ in range(layers)]

    @property
    def nbytes(self) -> int:
        """Size of the cache."""
        return sum(layer.nbytes for layer in self.layers)
