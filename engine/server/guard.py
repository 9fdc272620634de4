"""Who may talk to the server: a check of the Host header, and of the API key if one is set."""

from __future__ import annotations

import hmac
import ipaddress
import socket
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from engine.server.errors import error_response

OPEN_PATHS = frozenset({"/", "/health", "/metrics"})
"""Answered without an API key: they tell how the server is, and nothing of what it is asked."""


class HostGuard:
    """Refuses requests whose Host header names another site.

    A page that a browser shows can have its own name resolve to 127.0.0.1 and then talk to servers there (DNS
    rebinding); it cannot change the Host header. An address in digits cannot be rebound.

    Args:
        app: The application.
        host: The address that the server is bound to.
    """

    def __init__(self, app: ASGIApp, host: str) -> None:
        self._app = app
        self._names = {"localhost", host.lower().strip("[]")}
        self._any_address = _is_address(host) and not ipaddress.ip_address(host.strip("[]")).is_loopback
        if self._any_address:
            self._names |= {socket.gethostname().lower()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] == "http" and not self._allows(Headers(scope=scope).get("host")):
            response = error_response(
                "The Host header names another site; use the address that the server was started with.",
                403,
                code="host_not_allowed",
            )
            await response(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _allows(self, header: str | None) -> bool:
        if header is None:  # HTTP/1.0; no browser sends that
            return True
        try:
            name = urlsplit(f"//{header}").hostname or ""
        except ValueError:
            return False
        if name in self._names or (name.endswith(".localhost") and not _is_address(name)):
            return True
        return _is_address(name) and (self._any_address or ipaddress.ip_address(name).is_loopback)


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text.strip("[]"))
    except ValueError:
        return False
    return True


class KeyGuard:
    """Asks for ``Authorization: Bearer KEY`` (or ``x-api-key: KEY``) on all but :data:`OPEN_PATHS`.

    Args:
        app: The application.
        api_key: The key.
    """

    def __init__(self, app: ASGIApp, api_key: str) -> None:
        self._app = app
        self._key = api_key.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] == "http" and scope["path"] not in OPEN_PATHS:
            given = _given_key(Headers(scope=scope))
            if given is None or not hmac.compare_digest(given.encode("utf-8", "replace"), self._key):
                what = "is missing" if given is None else "is wrong"
                response = error_response(
                    f"The API key {what}; send it as 'Authorization: Bearer KEY'.",
                    401,
                    code="invalid_api_key",
                    headers={"WWW-Authenticate": "Bearer"},
                )
                await response(scope, receive, send)
                return
        await self._app(scope, receive, send)


def _given_key(headers: Headers) -> str | None:
    scheme, _, value = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and value.strip():
        return value.strip()
    return headers.get("x-api-key")
