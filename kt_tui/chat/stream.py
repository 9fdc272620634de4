"""One answer from an OpenAI-compatible server, as events."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from kt_tui.chat.events import ChatEvent, ChatOptions, Endpoint


def stream_chat(
    endpoint: Endpoint, messages: Sequence[Mapping[str, Any]], options: ChatOptions | None = None
) -> AsyncIterator[ChatEvent]:
    """Ask for an answer and yield its events; the last one is `Finished` or `Failed`, never an exception.

    Cancelling the task that iterates, or closing the iterator, closes the connection at once, which tells the
    server to stop generating.
    """
    raise NotImplementedError
