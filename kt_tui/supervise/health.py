"""Asking an engine how far it is (``/health``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kt_tui.text import one_line, share

if TYPE_CHECKING:
    import httpx

_BODY_LIMIT = 1 << 16


@dataclass(frozen=True)
class Timing:
    """How often to ask and how long to wait, in seconds."""

    loading: float
    ready: float
    timeout: float


# sglang's /health generates a token: it takes a second or more by itself and up to 20 s before it says no.
TIMING = {"embedded": Timing(0.25, 2.0, 3.0), "sglang": Timing(2.0, 10.0, 25.0)}


@dataclass(frozen=True)
class Health:
    """An answer. ``answered`` is False when nothing listens yet (or it said nothing in time)."""

    answered: bool
    ready: bool = False
    phase: str = ""
    progress: float | None = None
    detail: str = ""


async def ask_health(client: httpx.AsyncClient, base_url: str, api_key: str | None) -> Health:
    """One question. Never raises for what a server (or its absence) may do."""
    import httpx

    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    try:
        async with client.stream("GET", f"{base_url}/health", headers=headers) as response:
            body = b""
            async for piece in response.aiter_bytes():
                body += piece
                if len(body) > _BODY_LIMIT:
                    break
            return _read(response.status_code, body)
    except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError):
        return Health(answered=False)


def _read(status: int, body: bytes) -> Health:
    import json

    if status == 200:
        return Health(answered=True, ready=True)
    try:
        document = json.loads(body)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        return Health(answered=True, detail=f"/health answers with status {status}")
    phase, detail = document.get("phase"), document.get("detail")
    return Health(
        answered=True,
        phase=one_line(phase, 40) if isinstance(phase, str) else "",
        progress=share(document.get("progress")),
        detail=one_line(detail) if isinstance(detail, str) else "",
    )
