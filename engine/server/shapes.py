"""The documents that OpenAI's two completion endpoints answer with."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from engine.request import FinishEvent


def usage(end: FinishEvent) -> dict[str, int]:
    """Token counts; the end token counts as generated."""
    return {
        "prompt_tokens": end.prompt_tokens,
        "completion_tokens": end.completion_tokens,
        "total_tokens": end.prompt_tokens + end.completion_tokens,
    }


def timing(end: FinishEvent) -> dict[str, float | None]:
    """``kt_timing``: where the time went, by the server's clock, in seconds."""
    values = end.timing
    named = {
        "queue_s": values.queue_s,
        "ttft_s": values.ttft_s,
        "tpot_s": values.tpot_s,
        "total_s": values.total_s,
    }
    return {name: None if value is None else round(value, 6) for name, value in named.items()}


@dataclass(frozen=True, slots=True)
class Shape(ABC):
    """One answer's documents.

    Attributes:
        id: The answer's id, the same in all chunks.
        model: The served model's name.
        created: Unix time in seconds.
    """

    id: str
    model: str
    created: int

    whole_object: ClassVar[str]
    chunk_object: ClassVar[str]

    def opening(self) -> dict[str, Any] | None:
        """The first chunk, sent before any token."""
        return None

    @abstractmethod
    def piece(self, text: str) -> dict[str, Any]:
        """A chunk with more text."""

    @abstractmethod
    def ending(self, end: FinishEvent) -> dict[str, Any]:
        """The chunk with the finish reason."""

    @abstractmethod
    def whole(self, text: str, end: FinishEvent) -> dict[str, Any]:
        """The answer in one document."""

    def usage_chunk(self, end: FinishEvent) -> dict[str, Any]:
        """The chunk after the last choice, with token counts."""
        return self._document(self.chunk_object, []) | {"usage": usage(end), "kt_timing": timing(end)}

    def _document(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "choices": choices,
        }


def _choice(end: FinishEvent | None, **fields: object) -> dict[str, Any]:
    choice: dict[str, Any] = {"index": 0, **fields, "logprobs": None, "finish_reason": None}
    if end is not None:
        choice["finish_reason"] = end.reason.value
        if end.matched_stop is not None:
            choice["matched_stop"] = end.matched_stop
    return choice


class ChatShape(Shape):
    """``chat.completion`` and its chunks."""

    whole_object = "chat.completion"
    chunk_object = "chat.completion.chunk"

    def opening(self) -> dict[str, Any]:
        """The role."""
        delta = {"role": "assistant", "content": ""}
        return self._document(self.chunk_object, [_choice(None, delta=delta)])

    def piece(self, text: str) -> dict[str, Any]:
        """See :class:`Shape`."""
        return self._document(self.chunk_object, [_choice(None, delta={"content": text})])

    def ending(self, end: FinishEvent) -> dict[str, Any]:
        """See :class:`Shape`."""
        return self._document(self.chunk_object, [_choice(end, delta={})])

    def whole(self, text: str, end: FinishEvent) -> dict[str, Any]:
        """See :class:`Shape`."""
        message = {"role": "assistant", "content": text, "refusal": None}
        document = self._document(self.whole_object, [_choice(end, message=message)])
        return document | {"usage": usage(end), "kt_timing": timing(end)}


class CompletionShape(Shape):
    """``text_completion``, whole and in chunks."""

    whole_object = "text_completion"
    chunk_object = "text_completion"

    def piece(self, text: str) -> dict[str, Any]:
        """See :class:`Shape`."""
        return self._document(self.chunk_object, [_choice(None, text=text)])

    def ending(self, end: FinishEvent) -> dict[str, Any]:
        """See :class:`Shape`."""
        return self._document(self.chunk_object, [_choice(end, text="")])

    def whole(self, text: str, end: FinishEvent) -> dict[str, Any]:
        """See :class:`Shape`."""
        document = self._document(self.whole_object, [_choice(end, text=text)])
        return document | {"usage": usage(end), "kt_timing": timing(end)}
