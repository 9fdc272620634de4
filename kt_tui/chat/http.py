"""The HTTP client of the chat, and failures of HTTP in one sentence each."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from kt_tui.chat.deltas import error_text
from kt_tui.chat.events import ChatError, Endpoint
from kt_tui.net import is_loopback
from kt_tui.text import one_line, share

if TYPE_CHECKING:
    import httpx


BODY_LIMIT = 64 << 20  # bytes of an answer that is not streamed
_ERROR_BODY_LIMIT = 1 << 16

_TITLE = re.compile(r"<title[^>]*>(.*?)</title>", re.IGNORECASE | re.DOTALL)


class NotReadyError(ChatError):
    """The server may be ready later: it says that it is loading, or does not listen yet."""

    def __init__(self, message: str, reason: str, progress: float | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.progress = progress


def new_client(endpoint: Endpoint, silence_s: float, connect_s: float = 5.0) -> httpx.AsyncClient:
    """A client for one exchange with ``endpoint``.

    A server on this machine is never asked for through a proxy; one without TLS needs no certificates (reading
    them would take longer than the request).
    """
    import httpx

    parts = urlsplit(endpoint.base_url)
    local = is_loopback(parts.hostname or "")
    return httpx.AsyncClient(
        headers=endpoint.headers,
        trust_env=not local,
        verify=parts.scheme == "https",
        timeout=httpx.Timeout(silence_s, connect=connect_s, write=30.0, pool=connect_s),
        follow_redirects=False,
    )


def checked(endpoint: Endpoint) -> str:
    """The endpoint's root address.

    Raises:
        ChatError: It is no http or https address.
    """
    try:
        parts = urlsplit(endpoint.base_url)
        usable = (
            parts.scheme in {"http", "https"}
            and bool(parts.hostname)
            and (parts.port is None or parts.port > 0)
        )
    except ValueError:
        usable = False
    if not usable:
        raise ChatError(
            f"{endpoint.base_url!r} is not an address of a server; it should look like http://127.0.0.1:30000."
        )
    return endpoint.url("")


def connection_sentence(endpoint: Endpoint, error: Exception) -> str:
    """Why no exchange took place, and the way out."""
    import httpx

    where = endpoint.url("")
    if isinstance(error, httpx.ConnectTimeout):
        return f"The server at {where} does not answer (no connection in time); check the address and the network."
    if isinstance(error, httpx.ConnectError):
        return f"No server answers at {where}; start one by `kt-tui run MODEL`, or name another by --host, --port."
    if isinstance(error, httpx.ReadTimeout):
        return (
            f"The server at {where} said nothing for too long; it may hang: look at its log, or restart it."
        )
    if isinstance(error, httpx.RemoteProtocolError | httpx.ReadError | httpx.WriteError):
        return f"The server at {where} broke the connection off ({one_line(str(error)) or type(error).__name__})."
    return f"The exchange with {where} failed: {one_line(str(error)) or type(error).__name__}."


def connect_error(endpoint: Endpoint, error: Exception) -> NotReadyError:
    """No connection came about."""
    return NotReadyError(connection_sentence(endpoint, error), f"no server answers at {endpoint.url('')} yet")


def loading_error(words: str, document: Any) -> NotReadyError | None:
    """What a status 503 means if the server is loading; None if it means something else."""
    phase = document.get("phase") if isinstance(document, dict) else None
    hints = ("loading", "starting", "not ready", "warming", "initializ")
    if not isinstance(phase, str) and not any(hint in words.lower() for hint in hints):
        return None
    progress = share(document.get("progress")) if isinstance(document, dict) else None
    details = [one_line(phase, 40)] if isinstance(phase, str) and phase else []
    details += [f"{progress:.0%}"] if progress is not None else []
    reason = "the model is loading" + (f" ({', '.join(details)})" if details else "")
    return NotReadyError(f"{reason[0].upper()}{reason[1:]}; try again when it is ready.", reason, progress)


async def read_limited(response: httpx.Response, limit: int) -> bytes:
    """The body, at most ``limit`` bytes of it."""
    body = bytearray()
    async for piece in response.aiter_bytes():
        body += piece
        if len(body) >= limit:
            break
    return bytes(body[:limit])


def parse_json(body: bytes) -> Any:
    """The document in ``body``, or None."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


async def read_error(response: httpx.Response) -> tuple[str, Any]:
    """The server's words about an error status, and its JSON document if it sent one."""
    import httpx

    try:
        body = await read_limited(response, _ERROR_BODY_LIMIT)
    except httpx.HTTPError:
        return "", None
    document = parse_json(body)
    if isinstance(document, dict):
        return error_text(document) or "", document
    text = body.decode("utf-8", "replace")
    if title := _TITLE.search(text):
        return one_line(title[1]), None
    return ("" if "<" in text[:200] else one_line(text)), None


def status_sentence(endpoint: Endpoint, status: int, words: str) -> str:
    """An error status in one sentence with the way out."""
    said = f": {words}" if words else ""
    where = endpoint.url("")
    if status in {401, 403}:
        return f"The server at {where} wants another API key ({status}{said}); set it with KT_TUI_API_KEY."
    if status == 429:
        return f"The server at {where} has too many requests now (429{said}); try again in a moment."
    if status in {502, 504}:
        return f"Something in front of the server answers with {status}{said}; the server behind {where} may be down."
    if status in {400, 413, 422}:
        return f"The server did not accept the request ({status}{said})."
    if 300 <= status < 400:
        return f"The server at {where} redirects elsewhere ({status}); give the address that it redirects to."
    return f"The server at {where} answers with an error ({status}{said})."
