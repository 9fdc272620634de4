"""Checks the messages of a chat request and gives them the plain form that chat templates read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine.request import RequestError

ROLES = ("system", "developer", "user", "assistant", "tool")


def plain_messages(messages: object) -> list[dict[str, Any]]:
    """Messages whose content is a text.

    Lists of text parts are joined. ``developer`` becomes ``system``, which is what templates know. Reasoning of
    earlier turns is handed on as ``reasoning_content`` under either name that clients use. What else a message
    holds is left out.

    Raises:
        RequestError: ``param`` names the message and field at fault.
    """
    if not isinstance(messages, list) or not messages:
        raise _wrong("messages", "must be a list with at least one message")
    return [_message(message, f"messages[{i}]") for i, message in enumerate(messages)]


def _message(message: object, where: str) -> dict[str, Any]:
    if not isinstance(message, dict):
        raise _wrong(where, "must be an object with role and content")
    role = message.get("role")
    if role not in ROLES:
        raise _wrong(f"{where}.role", f"must be one of {', '.join(ROLES)}")
    calls = message.get("tool_calls") or None
    if calls is not None and not (isinstance(calls, list) and all(isinstance(call, dict) for call in calls)):
        raise _wrong(f"{where}.tool_calls", "must be a list of objects")
    content = message.get("content")
    if content is None and role == "assistant":
        content = ""  # an answer that only called tools, or was empty
    plain: dict[str, Any] = {
        "role": "system" if role == "developer" else role,
        "content": _text(content, f"{where}.content"),
    }
    reasoning = message.get("reasoning_content") or message.get("reasoning")
    if role == "assistant" and isinstance(reasoning, str):
        plain["reasoning_content"] = reasoning
    if calls is not None:
        plain["tool_calls"] = calls
    for name in ("name", "tool_call_id"):
        value = message.get(name)
        if isinstance(value, str):
            plain[name] = value
    return plain


def _text(content: object, where: str) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, Sequence):
        return "".join(_part(part, where, i) for i, part in enumerate(content))
    raise _wrong(where, "must be a text or a list of text parts")


def _part(part: object, where: str, index: int) -> str:
    if isinstance(part, dict):
        kind, text = part.get("type"), part.get("text")
        if kind == "text" and isinstance(text, str):
            return text
        if kind in ("image_url", "input_audio", "video_url", "file", "image"):
            raise _wrong(where, f"part {index} is of type {kind}, but this model reads text only")
    raise _wrong(where, f"part {index} must be an object of type 'text' with a text")


def _wrong(where: str, what: str) -> RequestError:
    return RequestError(f"{where}: {what}.", param=where, code="invalid_value")
