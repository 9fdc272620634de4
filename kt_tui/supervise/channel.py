"""The keeper's end of its connections to panels: JSON lines over a socket.

Standard library only (used by the keeper).
"""

from __future__ import annotations

import contextlib
import json
import socket
from typing import Any

_MESSAGE_LIMIT = 4 << 20


class Connection:
    """One panel."""

    def __init__(self, link: socket.socket) -> None:
        link.setblocking(False)
        self.link = link
        self.buffer = b""

    def send(self, event: dict[str, Any]) -> None:
        """Send one event; a panel that is frozen or gone loses it."""
        with contextlib.suppress(OSError):
            self.link.send(json.dumps(event).encode() + b"\n", socket.MSG_NOSIGNAL)

    def receive(self) -> list[dict[str, Any]] | None:
        """The messages that arrived; None when the panel is gone."""
        try:
            data = self.link.recv(1 << 16)
        except BlockingIOError:
            return []
        except OSError:
            return None
        if not data or len(self.buffer) > _MESSAGE_LIMIT:
            return None
        *lines, self.buffer = (self.buffer + data).split(b"\n")
        found = []
        for line in lines:
            with contextlib.suppress(ValueError):
                message = json.loads(line)
                if isinstance(message, dict):
                    found.append(message)
        return found


def read_launch(link: socket.socket) -> dict[str, Any] | None:
    """Wait for the first message, the launch; None if the panel went away before."""
    data = b""
    while not data.endswith(b"\n"):
        piece = link.recv(1 << 16)
        if not piece or len(data) > _MESSAGE_LIMIT:
            return None
        data += piece
    launch = json.loads(data)
    return launch if isinstance(launch, dict) else None
