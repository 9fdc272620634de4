"""What an answer consists of while it arrives, and the numbers at its end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kt_tui.errors import KtError


class ChatError(KtError):
    """A server could not be reached or refused; one sentence for the user."""


@dataclass(frozen=True)
class Endpoint:
    """An OpenAI-compatible server.

    Attributes:
        base_url: ``http://host:port``, with or without a trailing ``/v1``.
        api_key: Sent as a bearer token; None for a server that asks for none.
        model: The id to ask for; empty means the first one that the server lists.
    """

    base_url: str
    api_key: str | None = field(default=None, repr=False)
    model: str = ""

    def url(self, path: str) -> str:
        """The address of an API path such as ``/v1/models``."""
        root = self.base_url.rstrip("/").removesuffix("/v1")
        return root + path

    @property
    def headers(self) -> dict[str, str]:
        """Headers that every request carries."""
        return {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}


@dataclass(frozen=True)
class ChatOptions:
    """How to answer. None leaves a choice to the server.

    Attributes:
        wait_s: Seconds to wait for a server that is not there yet or says it is still loading; 0 fails at once.
        silence_s: Seconds without a single byte after which the server counts as hung.
        extra: Further fields of the request, passed as they are.
    """

    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stream: bool = True
    wait_s: float = 0.0
    silence_s: float = 900.0
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Usage:
    """Token counts as the server gives them; what it does not give is None."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    reasoning_tokens: int | None = None
    cached_tokens: int | None = None

    def to_json(self) -> dict[str, int | None]:
        """As ``chat --json`` prints it."""
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "reasoning_tokens": self.reasoning_tokens,
            "cached_tokens": self.cached_tokens,
        }


@dataclass(frozen=True)
class Metrics:
    """Times of one answer in seconds, measured at the client; what cannot be measured is None.

    Attributes:
        ttft_s: From sending the request to the first piece of text (queue and prefill included).
        tpot_s: Time per output token after the first: (last piece - first piece) / (completion tokens - 1), with
            the server's own count. None without that count, or when all came in one piece.
        tokens_per_s: ``1 / tpot_s``, the decode speed.
        total_s: From sending the request to the end of the answer.
    """

    ttft_s: float | None = None
    tpot_s: float | None = None
    tokens_per_s: float | None = None
    total_s: float | None = None

    def to_json(self) -> dict[str, float | None]:
        """As ``chat --json`` prints it."""
        return {
            "ttft_s": self.ttft_s,
            "tpot_s": self.tpot_s,
            "tokens_per_s": self.tokens_per_s,
            "total_s": self.total_s,
        }


@dataclass(frozen=True)
class Waiting:
    """The server is not ready; the request will be sent again. ``progress`` is 0..1 or unknown."""

    reason: str
    progress: float | None = None


@dataclass(frozen=True)
class ReasoningDelta:
    """More of the model's reasoning."""

    text: str


@dataclass(frozen=True)
class ContentDelta:
    """More of the answer."""

    text: str


@dataclass(frozen=True)
class ContentWasReasoning:
    """All content sent so far was reasoning.

    Sent when a closing think tag appears without an opening one, because the chat template had already opened it.
    """


@dataclass(frozen=True)
class ToolCallDelta:
    """More of a tool call; ``position`` counts the calls of this answer from 0, ``arguments`` is a raw piece."""

    position: int
    id: str = ""
    name: str = ""
    arguments: str = ""


@dataclass(frozen=True)
class Finished:
    """The answer is complete.

    Attributes:
        finish_reason: As the server gave it (``stop``, ``length``, ``tool_calls`` ...); None if it gave none.
        note: The same in words where a reader should know ("truncated ..."); empty for an ordinary end.
    """

    finish_reason: str | None
    usage: Usage | None = None
    metrics: Metrics = Metrics()
    note: str = ""


@dataclass(frozen=True)
class Failed:
    """The answer broke off or never began. ``partial`` is the content that had come by then."""

    message: str
    partial: str = ""
    finish_reason: str | None = None
    usage: Usage | None = None
    metrics: Metrics = Metrics()


ChatEvent = Waiting | ReasoningDelta | ContentDelta | ContentWasReasoning | ToolCallDelta | Finished | Failed
