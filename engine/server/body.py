"""Reads a JSON body within limits."""

from __future__ import annotations

from typing import Any

import pydantic_core
from starlette.requests import ClientDisconnect, Request

from engine.request import RequestError
from engine.server.sse import ClientGoneError

LARGEST_BODY = 32 << 20
"""Bytes. A conversation of a million tokens takes about five million."""


async def read_object(request: Request, limit: int = LARGEST_BODY) -> dict[str, Any]:
    """The request's body as a JSON object.

    Raises:
        RequestError: It is too large (413), not valid JSON, or no object (400).
    """
    announced = request.headers.get("content-length", "")
    if announced.isdigit() and len(announced) < 20 and int(announced) > limit:
        raise _too_large(limit)
    body = bytearray()
    try:
        async for piece in request.stream():
            body += piece
            if len(body) > limit:
                raise _too_large(limit)
    except ClientDisconnect as error:
        raise ClientGoneError from error
    try:
        # Bounds the depth and refuses NaN, Infinity and half surrogate pairs, which Python's json takes.
        document = pydantic_core.from_json(bytes(body), allow_inf_nan=False)
    except (ValueError, RecursionError) as error:
        what = "empty" if not body.strip() else f"not valid JSON ({str(error)[:200]})"
        raise RequestError(f"The request body is {what}.", code="invalid_json") from error
    if not isinstance(document, dict):
        raise RequestError("The request body must be a JSON object.", code="invalid_json")
    return document


def _too_large(limit: int) -> RequestError:
    return RequestError(
        f"The request body is larger than {limit >> 20} MiB.", code="request_too_large", status=413
    )
