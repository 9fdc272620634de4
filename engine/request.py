"""One generation: what is asked (:class:`Request`), how tokens are chosen, and the events that answer it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum


class FinishReason(StrEnum):
    """Why a generation ended; ``stop`` and ``length`` are OpenAI's words, ``abort`` is SGLang's."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"


class RequestError(Exception):
    """A request that cannot be served, told to the client.

    Attributes:
        param: The field that is at fault, or None.
        code: A stable word for programs, for instance ``context_length_exceeded``.
        status: The HTTP status that fits.
    """

    def __init__(
        self, message: str, *, param: str | None = None, code: str | None = None, status: int = 400
    ) -> None:
        super().__init__(message)
        self.param = param
        self.code = code
        self.status = status


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How tokens are chosen and when to stop.

    Filters apply in this order, each on the renormalised rest: temperature, top_k, top_p, min_p.

    Attributes:
        temperature: 0 takes the likeliest token (greedy).
        top_k: Keep the k likeliest tokens; 0 keeps all.
        top_p: Keep the smallest set of likeliest tokens whose probability reaches this; 1 keeps all.
        min_p: Drop tokens less likely than this times the likeliest; 0 drops none.
        seed: Makes the draw repeatable, whatever else runs at the same time; None draws a fresh seed.
        max_tokens: Tokens to generate at most; None means as many as the context and the KV cache hold.
        stop: Texts that end the generation; they are not part of the output.
        stop_token_ids: Token ids that end the generation, besides the model's own end tokens.
        ignore_eos: Go on after the model's end tokens.

    Raises:
        RequestError: A value is out of range; ``param`` names it.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False

    def __post_init__(self) -> None:
        _require(
            math.isfinite(self.temperature) and self.temperature >= 0, "temperature", "a number of at least 0"
        )
        _require(self.top_k >= 0, "top_k", "a whole number of at least 0 (0 keeps all tokens)")
        _require(0 < self.top_p <= 1, "top_p", "above 0 and at most 1")
        _require(0 <= self.min_p <= 1, "min_p", "between 0 and 1")
        _require(self.seed is None or -(2**63) <= self.seed < 2**63, "seed", "a 64-bit whole number")
        _require(self.max_tokens is None or self.max_tokens >= 1, "max_tokens", "at least 1")
        _require(all(self.stop), "stop", "made of texts that are not empty")

    @property
    def greedy(self) -> bool:
        """True where no draw is needed. Below 1e-5 the draw would give the likeliest token anyway."""
        return self.temperature < 1e-5


def _require(holds: bool, name: str, what: str) -> None:
    if not holds:
        raise RequestError(f"{name} must be {what}.", param=name, code="invalid_value")


@dataclass(frozen=True, slots=True)
class Request:
    """A prompt in token ids and how to continue it. ``arrived`` is ``time.monotonic()`` in seconds."""

    id: str
    prompt_ids: tuple[int, ...]
    params: SamplingParams
    arrived: float


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds, by the server's clock.

    Attributes:
        queue_s: From arrival to the first step that computed a part of the prompt.
        ttft_s: From arrival to the first token.
        tpot_s: Mean time per token after the first; None with fewer than two tokens.
        total_s: From arrival to the end.
    """

    queue_s: float
    ttft_s: float | None
    tpot_s: float | None
    total_s: float


@dataclass(frozen=True, slots=True)
class TextEvent:
    """More text. Never half a character, never a part of a stop string. ``tokens`` counts all tokens so far."""

    text: str
    tokens: int


@dataclass(frozen=True, slots=True)
class FinishEvent:
    """The end of a generation that went well or was aborted; always the last event.

    Attributes:
        reason: Why it ended.
        matched_stop: The stop string or the stop token's id, if one of them ended it.
        prompt_tokens: Tokens of the prompt.
        completion_tokens: Tokens generated, with the end token.
        timing: Where the time went.
    """

    reason: FinishReason
    matched_stop: str | int | None
    prompt_tokens: int
    completion_tokens: int
    timing: Timing


@dataclass(frozen=True, slots=True)
class ErrorEvent:
    """The generation failed inside the engine; always the last event. ``message`` is fit for the client."""

    message: str


Event = TextEvent | FinishEvent | ErrorEvent
