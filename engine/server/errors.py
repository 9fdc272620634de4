"""Errors in OpenAI's shape, for everything that the server answers with 4xx or 5xx."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from engine.request import RequestError

LONGEST_MESSAGE = 2000


def error_body(
    message: str, status: int, *, param: str | None = None, code: str | None = None
) -> dict[str, object]:
    """The JSON document of an error."""
    kinds = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
    kind = kinds.get(status, "server_error" if status >= 500 else "invalid_request_error")
    return {"error": {"message": message[:LONGEST_MESSAGE], "type": kind, "param": param, "code": code}}


def error_response(
    message: str,
    status: int,
    *,
    param: str | None = None,
    code: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """An error as a response."""
    return JSONResponse(error_body(message, status, param=param, code=code), status, headers)


def from_validation(error: ValidationError) -> RequestError:
    """The first thing that is wrong with a request body, named by its path (``messages[2].content``)."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    path = ""
    for part in first["loc"]:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else str(part)
    message = first["msg"].removeprefix("Value error, ")
    return RequestError(
        f"{path}: {message}." if path else f"{message}.", param=path or None, code="invalid_value"
    )


async def request_error(_: Request, error: Exception) -> Response:
    """Answers a :class:`RequestError`."""
    if not isinstance(error, RequestError):
        raise TypeError(type(error).__name__)
    headers = {"Retry-After": "1"} if error.status in (429, 503) else None
    return error_response(str(error), error.status, param=error.param, code=error.code, headers=headers)


async def http_error(request: Request, error: Exception) -> Response:
    """Answers what the router finds: an unknown path or a wrong method."""
    if not isinstance(error, HTTPException):
        raise TypeError(type(error).__name__)
    where = f"{request.method} {request.url.path}"[:200]
    if error.status_code == 404:
        message = f"There is nothing at {where}; this server has /v1/models, /v1/chat/completions and /v1/completions."
        return error_response(message, 404, code="not_found")
    if error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "")
        message = f"{where} is not possible; the path takes {allowed or 'another method'}."
        return error_response(message, 405, code="method_not_allowed", headers=error.headers)
    return error_response(str(error.detail), error.status_code, headers=error.headers)


async def internal_error(_: Request, error: Exception) -> Response:
    """Answers a fault of ours; what it was goes to the log, not to the client."""
    return error_response(
        f"The server failed on this request ({type(error).__name__}); its log says more.",
        500,
        code="internal_error",
    )
