"""The model, its key-value cache and the sequences in it: one step at a time.

Threads: everything that takes time is done by the kernels of `engine.cpu`, which have their own pinned team, one
thread per core. Torch holds the tensors; a second set of spinning threads on the same cores would slow both down, so
it gets one thread.
"""

from __future__ import annotations

from collections.abc import Sequence as Tokens
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import psutil
import torch

from engine import cpu
from engine.batch import make_batch
from engine.budget import (
    ModelShape,
    checkpoint_weight_bytes,
    default_total_tokens,
    kv_bytes,
    model_shape,
    whole_pages,
)
from engine.errors import ContextOverflowError, EngineError, KvPoolFullError
from engine.loading import Kernels
from engine.models.registry import Model, build_model
from engine.pages import KvCache, PageTable
from engine.progress import Progress, ProgressCallback, ignore
from engine.weights.index import open_checkpoint
from engine.weights.loader import Loader

if TYPE_CHECKING:
    from engine.config import EngineConfig


@dataclass(eq=False, slots=True)
class Sequence:
    """One conversation's place in the key-value cache; made by `Runner.open_sequence`.

    Attributes:
        id: A number that no other sequence of this runner has.
        length: Tokens that it holds.
        table: The cache slots of its tokens.
        closed: Whether its pages have been given back.
    """

    id: int
    length: int = 0
    table: PageTable = field(default_factory=PageTable)
    closed: bool = False


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
        weight_bytes: Size of the weights in the formats that they are kept in.
        expert_hits: Routed tokens per expert, one tuple a mixture-of-experts layer, in layer order.
    """

    kv_tokens_used: int
    kv_tokens_total: int
    kv_bytes: int
    weight_bytes: int
    expert_hits: tuple[tuple[int, ...], ...]


class Runner:
    """Runs a model for many sequences. Not thread-safe: one thread calls it."""

    def __init__(
        self, model: Model, cache: KvCache, context_length: int, weight_bytes: int, kernels: Kernels
    ) -> None:
        """Take a loaded model; use `load` to get one from a checkpoint."""
        self.kernels = kernels
        self.vocab_size = model.vocab_size
        self.context_length = context_length
        self._model = model
        self._cache = cache
        self._weight_bytes = weight_bytes
        self._opened = 0

    @classmethod
    def load(cls, config: EngineConfig, progress: ProgressCallback = ignore) -> Runner:
        """Load a checkpoint.

        Raises:
            EngineError: The checkpoint or the configuration cannot be run; the message says why.
        """
        device = choose_device(config)
        progress(Progress("checkpoint", 0, 1, str(config.model)))
        checkpoint = open_checkpoint(config.model)
        store = None if config.cpu_store == "keep" else config.cpu_store
        loader = Loader(checkpoint, device, config.cpu_numerics, store)
        try:
            team = cpu.Team(config.cpu_threads or 0)
        except (ValueError, RuntimeError) as error:
            raise EngineError(f"the CPU kernels cannot start: {error}") from None
        model = build_model(checkpoint, loader, team)
        context = choose_context(config, model.context_length)
        shape = replace(model_shape(checkpoint.config), context_length=context)
        kept = (
            loader.weight_bytes if store is None else checkpoint_weight_bytes(checkpoint).stored(store).total
        )
        tokens = choose_kv_tokens(config, shape, psutil.virtual_memory().available - kept)
        progress(Progress("checkpoint", 1, 1, "complete"))
        torch.set_num_threads(1)
        loader.run(progress)
        cache = KvCache(shape.layers, shape.kv_heads, shape.head_dim, tokens, device)
        kernels = Kernels(team.isa, team.threads, config.cpu_numerics, config.cpu_store)
        return cls(model, cache, context, kept, kernels)

    @property
    def stats(self) -> RunnerStats:
        """The counts at this moment."""
        pool = self._cache.pool
        return RunnerStats(
            kv_tokens_used=pool.tokens_used,
            kv_tokens_total=pool.tokens,
            kv_bytes=self._cache.nbytes,
            weight_bytes=self._weight_bytes,
            expert_hits=tuple(tuple(layer.hits.tolist()) for layer in self._model.experts),
        )

    def open_sequence(self) -> Sequence:
        """Start an empty sequence."""
        self._opened += 1
        return Sequence(self._opened)

    def close_sequence(self, sequence: Sequence) -> None:
        """Free the cache pages of a sequence, which must not be used afterwards. Closing twice is harmless."""
        self._cache.pool.release(sequence.table)
        sequence.closed = True

    def reserve(self, sequence: Sequence, tokens: int) -> bool:
        """Hold room for ``tokens`` more tokens than the sequence has now; False, with nothing held, if full."""
        if sequence.closed:
            raise ValueError(f"sequence {sequence.id} is closed")
        return self._cache.pool.grow(sequence.table, sequence.length + tokens)

    @torch.inference_mode()
    def step(self, rows: list[Row]) -> list[torch.Tensor | None]:
        """Run the rows' tokens through the model in one pass.

        Args:
            rows: At most one row a sequence; prompt chunks and decode tokens mix freely.

        Returns:
            For each row the float32 logits ``[vocab_size]`` after its last token, or None if not wanted.

        Raises:
            KvPoolFullError: The cache has no room (call `reserve` first to find out); nothing was computed.
            ContextOverflowError: A sequence would grow past `context_length`; nothing was computed.
            ValueError: A row is empty, a token id is out of range, or a sequence is closed or named twice.
        """
        if not rows:
            return []
        self._check(rows)
        for row in rows:
            if not self.reserve(row.sequence, len(row.tokens)):
                raise KvPoolFullError(
                    f"the KV cache of {self._cache.pool.tokens} tokens is full: "
                    "end or shorten a conversation, or start with a larger --max-total-tokens"
                )
        batch = make_batch(
            (row.tokens, row.sequence.length, row.sequence.table, row.want_logits) for row in rows
        )
        logits = iter(self._model.forward(batch, self._cache))
        for row in rows:
            row.sequence.length += len(row.tokens)
        return [next(logits) if row.want_logits else None for row in rows]

    def _check(self, rows: list[Row]) -> None:
        if len({row.sequence.id for row in rows}) != len(rows):
            raise ValueError("a sequence is named twice in one step")
        for row in rows:
            if not row.tokens or min(row.tokens) < 0 or max(row.tokens) >= self.vocab_size:
                raise ValueError(f"a row needs token ids from 0 to {self.vocab_size - 1}")
            length = row.sequence.length + len(row.tokens)
            if length > self.context_length:
                raise ContextOverflowError(
                    f"{length} tokens do not fit into the context of {self.context_length}: shorten the conversation"
                )


def choose_device(config: EngineConfig) -> torch.device:
    """The device for attention, norms and router.

    Raises:
        EngineError: A GPU is asked for.
    """
    if config.device == "cuda" or config.gpu_experts:
        asked = "--device cuda" if config.device == "cuda" else f"--gpu-experts {config.gpu_experts}"
        reason = (
            "this engine computes on the CPU only"
            if torch.cuda.is_available()
            else "there is no usable GPU here"
        )
        raise EngineError(f"{asked} asks for a GPU, but {reason}: leave the option out")
    return torch.device("cpu")


def choose_context(config: EngineConfig, longest: int) -> int:
    """Tokens of one sequence at most.

    Raises:
        EngineError: More is asked for than the ``longest`` that the model was made for.
    """
    if config.context_length is not None and config.context_length > longest:
        raise EngineError(
            f"--context-length {config.context_length} is more than the {longest} tokens that the model was made "
            "for: ask for fewer"
        )
    return config.context_length or longest


def choose_kv_tokens(config: EngineConfig, shape: ModelShape, free_bytes: int) -> int:
    """Tokens that the key-value cache holds: as asked, else as `engine.budget` says.

    Args:
        config: May hold the wish.
        shape: The model, with the context length in force.
        free_bytes: Memory left besides the weights.

    Raises:
        EngineError: The memory does not hold what is asked for, or nothing useful.
    """
    free = f"{max(0, free_bytes) / 2**30:.1f} GiB"
    if config.max_total_tokens is None:
        tokens = default_total_tokens(shape, free_bytes)
        if tokens == 0:
            raise EngineError(
                f"the weights leave {free} of memory, too little for a KV cache: close other programs or take a "
                "smaller model"
            )
        return tokens
    tokens, size = whole_pages(config.max_total_tokens), kv_bytes(shape, config.max_total_tokens)
    if size > free_bytes:
        raise EngineError(
            f"--max-total-tokens {config.max_total_tokens} takes {size / 2**30:.1f} GiB of memory, but {free} are "
            "free besides the weights: ask for fewer"
        )
    return tokens
