"""What one chunk of a chat completion says, whatever is missing, null or of the wrong type in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kt_tui.chat.events import ToolCallDelta, Usage
from kt_tui.text import one_line


@dataclass(frozen=True)
class Delta:
    """The meaning of one chunk (or of a whole answer that was not streamed)."""

    content: str = ""
    reasoning: str = ""
    tool_calls: tuple[Mapping[str, Any], ...] = ()
    finish_reason: str | None = None
    finish_message: str = ""  # a reason that some servers put beside it
    usage: Usage | None = None
    error: str | None = None


def read_chunk(document: Any) -> Delta:
    """The meaning of a parsed chunk."""
    if not isinstance(document, dict):
        return Delta(error=f"malformed event: {one_line(str(document))}")
    if (error := error_text(document)) is not None:
        return Delta(error=error)
    usage = read_usage(document.get("usage"))
    choices = document.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    if not isinstance(choice, dict):
        return Delta(usage=usage)
    delta = choice.get("delta")
    if not isinstance(delta, dict):
        delta = choice.get("message")
    if not isinstance(delta, dict):
        # A legacy completion has its text beside the choice.
        text = choice.get("text")
        delta = {"content": text} if isinstance(text, str) else {}
    reason, message = _finish(choice.get("finish_reason"))
    calls = delta.get("tool_calls")
    return Delta(
        content=_content(delta.get("content")),
        reasoning=_reasoning(delta),
        tool_calls=tuple(call for call in calls if isinstance(call, dict)) if isinstance(calls, list) else (),
        finish_reason=reason,
        finish_message=message,
        usage=usage,
    )


def _content(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list):  # content parts
        parts = (part.get("text") for part in value if isinstance(part, dict))
        return "".join(part for part in parts if isinstance(part, str))
    return ""


def _reasoning(delta: Mapping[str, Any]) -> str:
    # Servers use the one name or the other, or both with the same text: one of them, never both.
    for name in ("reasoning_content", "reasoning"):
        value = delta.get(name)
        if isinstance(value, str) and value:
            return value
    return ""


def _finish(value: Any) -> tuple[str | None, str]:
    if isinstance(value, dict):
        kind, message = value.get("type"), value.get("message")
        return (str(kind) if kind else "error"), (message if isinstance(message, str) else "")
    if value is None or value == "":
        return None, ""
    return one_line(str(value), 80), ""


def error_text(document: Mapping[str, Any]) -> str | None:
    """The server's own words if the document is an error, in any of the shapes that servers use."""
    error = document.get("error")
    if isinstance(error, dict):
        message = (
            error.get("message") or error.get("detail") or error.get("type") or "an error without a message"
        )
        return one_line(str(message), 500)
    if isinstance(error, str) and error:
        return one_line(error, 500)
    if "choices" in document:
        return None
    if document.get("object") == "error" or document.get("type") == "error":
        return one_line(str(document.get("message") or "an error without a message"), 500)
    for name in ("detail", "message"):
        value = document.get(name)
        if value:
            return one_line(str(value), 500)
    return None


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def read_usage(value: Any) -> Usage | None:
    """Token counts, or None when there are none."""
    if not isinstance(value, dict):
        return None
    completion = value.get("completion_tokens_details")
    prompt = value.get("prompt_tokens_details")
    reasoning = _count(completion.get("reasoning_tokens")) if isinstance(completion, dict) else None
    cached = _count(prompt.get("cached_tokens")) if isinstance(prompt, dict) else None
    return Usage(
        prompt_tokens=_count(value.get("prompt_tokens")),
        completion_tokens=_count(value.get("completion_tokens")),
        reasoning_tokens=reasoning if reasoning is not None else _count(value.get("reasoning_tokens")),
        cached_tokens=cached,
    )


@dataclass
class ToolCallAssembler:
    """Tells which call each piece belongs to.

    A new id begins a call. A piece without an id joins the call of its index, or else the call in progress; only a
    piece with a name and an index not seen before begins a call without an id.
    """

    _ids: dict[str, int] = field(default_factory=dict)
    _indices: dict[int, int] = field(default_factory=dict)
    _count: int = 0
    _current: int = -1

    def take(self, pieces: tuple[Mapping[str, Any], ...]) -> list[ToolCallDelta]:
        """The pieces of one chunk, with the position of their calls."""
        found = []
        for piece in pieces:
            function = piece.get("function")
            function = function if isinstance(function, dict) else {}
            call_id, name, arguments = piece.get("id"), function.get("name"), function.get("arguments")
            call_id = call_id if isinstance(call_id, str) else ""
            name = name if isinstance(name, str) else ""
            arguments = arguments if isinstance(arguments, str) else ""
            index = _count(piece.get("index"))
            self._current = self._position(call_id, name, index)
            found.append(ToolCallDelta(self._current, call_id, name, arguments))
        return found

    def _position(self, call_id: str, name: str, index: int | None) -> int:
        if call_id and call_id in self._ids:
            return self._ids[call_id]
        known = index is not None and index in self._indices
        begins = bool(call_id) or self._count == 0 or (bool(name) and index is not None and not known)
        if not begins:
            return self._indices[index] if known and index is not None else self._current
        position = self._count
        self._count += 1
        if call_id:
            self._ids[call_id] = position
        if index is not None:
            self._indices[index] = position
        return position
