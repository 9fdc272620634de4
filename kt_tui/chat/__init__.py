"""Talking to an OpenAI-compatible server: conversation, streaming client, commands, history."""

from kt_tui.chat.conversation import Conversation, Draft, Message, Status, ToolCall
from kt_tui.chat.events import (
    ChatError,
    ChatEvent,
    ChatOptions,
    ContentDelta,
    ContentWasReasoning,
    Endpoint,
    Failed,
    Finished,
    Metrics,
    ReasoningDelta,
    ToolCallDelta,
    Usage,
    Waiting,
)
from kt_tui.chat.models import resolve_model, served_models
from kt_tui.chat.stream import stream_chat

__all__ = [
    "ChatError",
    "ChatEvent",
    "ChatOptions",
    "ContentDelta",
    "ContentWasReasoning",
    "Conversation",
    "Draft",
    "Endpoint",
    "Failed",
    "Finished",
    "Message",
    "Metrics",
    "ReasoningDelta",
    "Status",
    "ToolCall",
    "ToolCallDelta",
    "Usage",
    "Waiting",
    "resolve_model",
    "served_models",
    "stream_chat",
]
