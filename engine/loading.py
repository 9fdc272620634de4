"""Loads what the engine needs: tokenizer and chat template, then the model, then one step to see that it works."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from engine.config import EngineConfig
from engine.errors import EngineError
from engine.progress import Progress, ProgressCallback
from engine.request import RequestError, SamplingParams

if TYPE_CHECKING:
    from engine.scheduler import StepRunner
    from engine.text.model import TextModel

    class LoadedRunner(StepRunner, Protocol):
        """A runner as it comes from loading."""

        vocab_size: int
        context_length: int

        @property
        def kernels(self) -> Kernels | None:
            """How its weights are multiplied."""


@dataclass(frozen=True, slots=True)
class Sources:
    """Where the engine's parts come from; tests put their own here."""

    text: Callable[[EngineConfig], TextModel]
    runner: Callable[[EngineConfig, ProgressCallback], LoadedRunner]


def real_sources() -> Sources:
    """Tokenizer and model of the configured checkpoint."""

    def text(config: EngineConfig) -> TextModel:
        from engine.text.load import load_text

        return load_text(config.model)

    def runner(config: EngineConfig, progress: ProgressCallback) -> LoadedRunner:
        from engine.runner import Runner

        return Runner.load(config, progress)

    return Sources(text, runner)


@dataclass(frozen=True, slots=True)
class Kernels:
    """How the weights are kept and multiplied.

    Attributes:
        isa: The variant of the kernels.
        threads: Of their team.
        numerics: As it was asked for.
        store: What float weights became.
    """

    isa: str
    threads: int
    numerics: str
    store: str


@dataclass(frozen=True, slots=True)
class Ready:
    """What is known once the model is loaded.

    Attributes:
        text: Tokenizer, chat template, end tokens.
        vocab_size: Rows of the output layer.
        context_length: Tokens of one sequence that the model allows.
        kv_tokens: Tokens that the key-value cache holds.
        load_seconds: How long loading took.
        kernels: How the weights are multiplied; None if the runner has none.
    """

    text: TextModel
    vocab_size: int
    context_length: int
    kv_tokens: int
    load_seconds: float
    kernels: Kernels | None = None


class LoadCancelledError(Exception):
    """The engine was told to close while it was loading."""


def load(config: EngineConfig, sources: Sources, progress: ProgressCallback) -> tuple[Ready, LoadedRunner]:
    """Load all parts, in the thread that will use them.

    Args:
        config: What to load.
        sources: Where the parts come from.
        progress: Called with each report; what it raises ends the loading.

    Raises:
        Exception: Whatever went wrong; :func:`as_engine_error` makes a sentence of it.
    """
    began = time.monotonic()
    progress(Progress("start", 0, 1, "importing torch"))
    import torch  # noqa: F401  # seconds on a cold machine: do it under a phase of its own

    progress(Progress("start", 1, 1))
    progress(Progress("checkpoint", 0, 2, "tokenizer and chat template"))
    text = sources.text(config)
    progress(Progress("checkpoint", 1, 2))
    runner = sources.runner(config, progress)
    progress(Progress("warmup", 0, 1, "first step"))
    _warm_up(runner, next(iter(text.end_ids), 0))
    progress(Progress("warmup", 1, 1))
    kv_tokens = runner.stats.kv_tokens_total
    seconds = time.monotonic() - began
    return Ready(text, runner.vocab_size, runner.context_length, kv_tokens, seconds, runner.kernels), runner


def as_engine_error(config: EngineConfig, error: BaseException) -> EngineError:
    """One sentence for whatever ended the loading."""
    if isinstance(error, EngineError):
        return error
    if isinstance(error, LoadCancelledError):
        return EngineError("Loading was stopped.")
    if isinstance(error, MemoryError):
        what = "there is not enough memory; use a smaller model or close other programs"
    else:
        what = f"{type(error).__name__}: {' '.join(str(error).split())[:500]}"
    wrapped = EngineError(f"{config.model} could not be loaded: {what}.")
    wrapped.__cause__ = error
    return wrapped


def room_for(prompt_ids: list[int], ready: Ready) -> int:
    """How many tokens may follow a prompt.

    Raises:
        RequestError: The prompt is empty, holds an unknown token id or does not fit.
    """
    tokens = len(prompt_ids)
    if not tokens:
        raise RequestError("The prompt is empty.", param="prompt", code="invalid_value")
    if not 0 <= min(prompt_ids) <= max(prompt_ids) < ready.vocab_size:
        raise RequestError(
            f"The prompt holds a token id outside 0..{ready.vocab_size - 1}.",
            param="prompt",
            code="invalid_value",
        )
    limit = min(ready.context_length, ready.kv_tokens)
    if tokens < limit:
        return limit - tokens
    if ready.context_length <= ready.kv_tokens:
        bound = f"the model's context is {ready.context_length} tokens, and one must be left for the answer"
    else:
        bound = (
            f"the key-value cache holds {ready.kv_tokens} tokens (the model's context would be "
            f"{ready.context_length}); start the engine with a larger --max-total-tokens"
        )
    raise RequestError(
        f"The prompt is too long: it has {tokens} tokens, but {bound}.",
        param="messages",
        code="context_length_exceeded",
    )


def _warm_up(runner: LoadedRunner, token_id: int) -> None:
    """Run one step, so that the first request finds everything in place and a broken model is found now."""
    from engine.runner import Row
    from engine.sampler import Sampler, SamplingError

    sequence = runner.open_sequence()
    try:
        if not runner.reserve(sequence, 1):
            raise EngineError("The key-value cache has no room for a single token; raise --max-total-tokens.")
        (logits,) = runner.step([Row(sequence, [token_id], True)])
        if logits is not None:
            Sampler(SamplingParams(temperature=0)).draw(logits)
    except SamplingError as error:
        raise EngineError(f"The first step went wrong: {error}.") from error
    finally:
        runner.close_sequence(sequence)
