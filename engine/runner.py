"""The model, its key-value cache and the sequences in it: one step at a time."""

from __future__ import annotations

from collections.abc import Sequence as Tokens
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from engine.progress import ProgressCallback, ignore

if TYPE_CHECKING:
    from engine.config import EngineConfig


@dataclass(eq=False, slots=True)
class Sequence:
    """One conversation's place in the key-value cache; made by `Runner.open_sequence`."""

    id: int
    length: int = 0
    pages: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Row:
    """The next tokens of one sequence in a step: a chunk of its prompt, or the one token sampled last.

    Attributes:
        sequence: Where the tokens go; they follow those it already holds.
        tokens: Token ids, at least one.
        want_logits: Whether the logits after the last of the tokens are wanted.
    """

    sequence: Sequence
    tokens: Tokens[int]
    want_logits: bool


@dataclass(frozen=True, slots=True)
class RunnerStats:
    """Counts of a running model.

    Attributes:
        kv_tokens_used: Tokens for which cache pages are held (whole pages).
        kv_tokens_total: Tokens that the cache can hold.
        kv_bytes: Size of the cache.
        weight_bytes: Size of the weights in the checkpoint's own formats.
        expert_hits: Routed tokens per expert, one list a mixture-of-experts layer, in layer order.
    """

    kv_tokens_used: int
    kv_tokens_total: int
    kv_bytes: int
    weight_bytes: int
    expert_hits: tuple[tuple[int, ...], ...]


class Runner:
    """Runs a model for many sequences. Not thread-safe: one thread calls it."""

    vocab_size: int
    context_length: int

    @classmethod
    def load(cls, config: EngineConfig, progress: ProgressCallback = ignore) -> Runner:
        """Load a checkpoint.

        Raises:
            EngineError: The checkpoint or the configuration cannot be run; the message says why.
        """
        raise NotImplementedError

    @property
    def stats(self) -> RunnerStats:
        """The counts at this moment."""
        raise NotImplementedError

    def open_sequence(self) -> Sequence:
        """Start an empty sequence."""
        raise NotImplementedError

    def close_sequence(self, sequence: Sequence) -> None:
        """Free the cache pages of a sequence, which must not be used afterwards. Closing twice is harmless."""
        raise NotImplementedError

    def reserve(self, sequence: Sequence, tokens: int) -> bool:
        """Hold room for ``tokens`` more tokens than the sequence has now; False, with nothing held, if full."""
        raise NotImplementedError

    def step(self, rows: list[Row]) -> list[torch.Tensor | None]:
        """Run the rows' tokens through the model in one pass.

        Args:
            rows: At most one row a sequence; prompt chunks and decode tokens mix freely.

        Returns:
            For each row the float32 logits ``[vocab_size]`` after its last token, or None if not wanted.

        Raises:
            KvPoolFull: The cache has no room (call `reserve` first to find out); nothing was changed.
            ContextOverflow: A sequence would grow past `context_length`; nothing was changed.
        """
        raise NotImplementedError
