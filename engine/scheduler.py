"""Decides what each step computes: admission, prompt chunks mixed with decode tokens, ends, aborts.

Policy only: it knows no tensor operation, no text and no thread. Requests are served in order of arrival. Every
step takes one token of each request that decodes and fills up with prompt chunks; a request that finds no cache
page sends the youngest one back to the queue, where it keeps its tokens and is computed again later.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from engine.request import ErrorEvent, FinishEvent, FinishReason, Request, Timing
from engine.runner import Row, RunnerStats, Sequence
from engine.sampler import Sampler, SamplingError, sample
from engine.stats import EngineStats, Load

if TYPE_CHECKING:
    import torch

# The runner's counts walk over all experts, so they are not taken after every step.
_COUNTS_EVERY_S = 0.25


class StepRunner(Protocol):
    """What the scheduler needs of :class:`engine.runner.Runner`."""

    @property
    def stats(self) -> RunnerStats:
        """The counts at this moment."""

    def open_sequence(self) -> Sequence:
        """Start an empty sequence."""

    def close_sequence(self, sequence: Sequence) -> None:
        """Free its cache pages."""

    def reserve(self, sequence: Sequence, tokens: int) -> bool:
        """Hold room for this many more tokens; False if full."""

    def step(self, rows: list[Row]) -> list[torch.Tensor | None]:
        """Compute; float32 logits [vocab] for each row that wants them."""


class Output(Protocol):
    """Where the tokens of one request go."""

    def token(self, token_id: int) -> str | None:
        """Take a token that is not an end token; returns the stop string that it completed, or None."""

    def end(self, event: FinishEvent | ErrorEvent) -> None:
        """The request is over; nothing follows."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of a step: requests in it, and prompt tokens in it."""

    max_running_requests: int
    chunked_prefill_size: int


@dataclass(eq=False, slots=True)
class _Generation:
    """A request on its way. Its cache holds the first ``computed`` of ``tokens``."""

    request: Request
    output: Output
    max_tokens: int
    end_ids: frozenset[int]
    sampler: Sampler
    tokens: list[int]
    computed: int = 0
    sequence: Sequence | None = None
    started: float | None = None
    first_token: float | None = None
    last_token: float | None = None
    counted_prompt: int = field(default=0)

    @property
    def pending(self) -> int:
        """Tokens that the model has not seen: the rest of the prompt, or the token sampled last."""
        return len(self.tokens) - self.computed

    @property
    def generated(self) -> int:
        return len(self.tokens) - len(self.request.prompt_ids)


class Scheduler:
    """Runs requests on a runner, step by step. One thread calls it.

    Args:
        runner: Computes the steps.
        limits: Bounds of a step.
        model_end_ids: Tokens that end an answer, unless a request ignores them.
        stats: Counters to keep.
        clock: Seconds, monotonic.
    """

    def __init__(
        self,
        runner: StepRunner,
        limits: Limits,
        model_end_ids: frozenset[int],
        stats: EngineStats,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._runner = runner
        self._limits = limits
        self._model_end_ids = model_end_ids
        self._stats = stats
        self._clock = clock
        self._waiting: deque[_Generation] = deque()
        self._running: list[_Generation] = []  # in order of arrival
        # After a retraction nothing is admitted until a request ends; else the same one would come and go.
        self._hold_admission = False
        self._counts_taken = -_COUNTS_EVERY_S
        self._publish(fresh=True)

    @property
    def has_work(self) -> bool:
        """Whether a step would do anything."""
        return bool(self._waiting or self._running)

    def submit(self, request: Request, output: Output, max_tokens: int) -> None:
        """Queue a request.

        Args:
            request: At least one prompt token, and prompt and answer together must fit into context and cache.
            output: Takes its tokens.
            max_tokens: Tokens to generate at most.
        """
        params = request.params
        end_ids = frozenset(params.stop_token_ids)
        if not params.ignore_eos:
            end_ids |= self._model_end_ids
        self._waiting.append(
            _Generation(request, output, max_tokens, end_ids, Sampler(params), list(request.prompt_ids))
        )
        self._publish()

    def abort(self, request_id: str) -> None:
        """End a request now; unknown ids (already over) are ignored."""
        for generation in (*self._running, *self._waiting):
            if generation.request.id == request_id:
                self._finish(generation, FinishReason.ABORT, None)
        self._publish(fresh=not self.has_work)

    def abort_all(self) -> None:
        """End every request now."""
        for generation in (*self._running, *self._waiting):
            self._finish(generation, FinishReason.ABORT, None)
        self._publish(fresh=True)

    def step(self) -> None:
        """Compute one step and deliver its tokens."""
        self._admit()
        planned = self._plan()
        if planned:
            self._compute(planned)
        self._publish(fresh=not self.has_work)

    def _admit(self) -> None:
        while self._waiting and len(self._running) < self._limits.max_running_requests:
            if self._hold_admission and self._running:
                return
            generation = self._waiting[0]
            sequence = self._runner.open_sequence()
            # The whole prompt at once: a chunk of it must not run out of cache half-way.
            if not self._runner.reserve(sequence, len(generation.tokens)):
                self._runner.close_sequence(sequence)
                if self._running:
                    return
                self._fail(generation, "the key-value cache has no room for this prompt")
                continue
            self._waiting.popleft()
            generation.sequence = sequence
            if generation.started is None:
                generation.started = self._clock()
            self._running.append(generation)

    def _plan(self) -> list[tuple[_Generation, Row]]:
        planned: list[tuple[_Generation, Row]] = []
        budget = self._limits.chunked_prefill_size
        for generation in tuple(self._running):
            if generation.sequence is None:  # retracted by an older one
                continue
            decodes = generation.pending == 1 and generation.generated > 0
            count = 1 if decodes else min(generation.pending, budget)
            if count == 0 or not self._make_room(generation, count):
                continue
            if not decodes:
                budget -= count
            tokens = generation.tokens[generation.computed : generation.computed + count]
            planned.append((generation, Row(generation.sequence, tokens, count == generation.pending)))
        return planned

    def _make_room(self, generation: _Generation, count: int) -> bool:
        """Hold pages for the next tokens, if need be by retracting younger requests; False if none were left."""
        while generation.sequence is not None:
            if self._runner.reserve(generation.sequence, count):
                return True
            if len(self._running) == 1:
                self._fail(generation, "the key-value cache has no room for more tokens")
                return False
            self._retract(self._running[-1])
        return False

    def _retract(self, generation: _Generation) -> None:
        self._release(generation)
        generation.computed = 0
        self._waiting.appendleft(generation)
        self._hold_admission = True
        self._stats.retractions.inc()

    def _compute(self, planned: list[tuple[_Generation, Row]]) -> None:
        try:
            logits = self._runner.step([row for _, row in planned])
        except Exception as error:
            # Which of the rows is at fault is unknown; the others wait for the next step unharmed.
            for generation, _ in planned:
                self._fail(generation, f"the step failed ({type(error).__name__}: {error})")
            return
        ready: list[_Generation] = []
        rows: list[torch.Tensor] = []
        for (generation, row), row_logits in zip(planned, logits, strict=True):
            generation.computed += len(row.tokens)
            self._count_prompt(generation)
            if row_logits is not None:
                ready.append(generation)
                rows.append(row_logits)
        tokens = sample(rows, [generation.sampler for generation in ready])
        now = self._clock()
        for generation, token in zip(ready, tokens, strict=True):
            if isinstance(token, SamplingError):
                self._fail(generation, str(token))
            else:
                self._accept(generation, token, now)
        if ready:
            self._stats.generation_tokens.inc(len(ready))
            self._stats.generated.add(len(ready))

    def _count_prompt(self, generation: _Generation) -> None:
        """Count prompt tokens once, even if a retraction has them computed again."""
        seen = min(generation.computed, len(generation.request.prompt_ids))
        if seen > generation.counted_prompt:
            self._stats.prompt_tokens.inc(seen - generation.counted_prompt)
            generation.counted_prompt = seen

    def _accept(self, generation: _Generation, token: int, now: float) -> None:
        generation.tokens.append(token)
        generation.last_token = now
        if generation.first_token is None:
            generation.first_token = now
        if token in generation.end_ids:
            own = token in generation.request.params.stop_token_ids
            self._finish(generation, FinishReason.STOP, token if own else None)
            return
        matched = generation.output.token(token)
        if matched is not None:
            self._finish(generation, FinishReason.STOP, matched)
        elif generation.generated >= generation.max_tokens:
            self._finish(generation, FinishReason.LENGTH, None)

    def _finish(self, generation: _Generation, reason: FinishReason, matched: str | int | None) -> None:
        self._drop(generation)
        event = FinishEvent(
            reason=reason,
            matched_stop=matched,
            prompt_tokens=len(generation.request.prompt_ids),
            completion_tokens=generation.generated,
            timing=self._timing(generation),
        )
        self._stats.ended(event)
        generation.output.end(event)

    def _fail(self, generation: _Generation, message: str) -> None:
        self._drop(generation)
        self._stats.ended(None)
        generation.output.end(ErrorEvent(message))

    def _drop(self, generation: _Generation) -> None:
        if generation in self._waiting:
            self._waiting.remove(generation)
        self._release(generation)
        self._hold_admission = False

    def _release(self, generation: _Generation) -> None:
        if generation.sequence is not None:
            self._runner.close_sequence(generation.sequence)
            generation.sequence = None
            self._running.remove(generation)

    def _timing(self, generation: _Generation) -> Timing:
        now, arrived = self._clock(), generation.request.arrived
        first, last = generation.first_token, generation.last_token
        tpot = None
        if first is not None and last is not None and generation.generated > 1:
            tpot = (last - first) / (generation.generated - 1)
        return Timing(
            queue_s=(generation.started or now) - arrived,
            ttft_s=None if first is None else first - arrived,
            tpot_s=tpot,
            total_s=now - arrived,
        )

    def _publish(self, *, fresh: bool = False) -> None:
        """Show the load to readers; the runner's own counts only now and then, or when ``fresh``."""
        now = self._clock()
        load = self._stats.load
        used, total = load.kv_tokens_used, load.kv_tokens_total
        kv_bytes, weight_bytes, expert_tokens = load.kv_bytes, load.weight_bytes, load.expert_tokens
        if fresh or now - self._counts_taken >= _COUNTS_EVERY_S:
            self._counts_taken = now
            counts = self._runner.stats
            used, total = counts.kv_tokens_used, counts.kv_tokens_total
            kv_bytes, weight_bytes = counts.kv_bytes, counts.weight_bytes
            expert_tokens = sum(map(sum, counts.expert_hits))
        self._stats.load = Load(
            len(self._running), len(self._waiting), used, total, kv_bytes, weight_bytes, expert_tokens
        )
