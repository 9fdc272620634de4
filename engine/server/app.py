"""The HTTP application: routes, guards and errors put together."""

from __future__ import annotations

import traceback
from importlib.metadata import PackageNotFoundError, version

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from engine.api import Engine
from engine.request import RequestError
from engine.server.errors import http_error, internal_error, request_error
from engine.server.guard import HostGuard, KeyGuard
from engine.server.log import Log
from engine.server.openai import OpenAi
from engine.server.sse import KEEP_ALIVE_S, ClientGoneError
from engine.server.status import Status


def create_app(engine: Engine, log: Log, keep_alive_s: float = KEEP_ALIVE_S) -> Starlette:
    """The application for one engine.

    No CORS headers are sent, so pages of other sites cannot read its answers.

    Args:
        engine: Generates.
        log: Gets a line for each request and each fault.
        keep_alive_s: Silence in a stream after which a comment line is sent.
    """
    status, openai = Status(engine, _version()), OpenAi(engine, log, keep_alive_s)
    middleware = [Middleware(HostGuard, host=engine.config.host)]
    if engine.config.api_key is not None:
        middleware.append(Middleware(KeyGuard, api_key=engine.config.api_key))

    async def client_gone(_: Request, error: Exception) -> Response:
        del error
        return Response(status_code=499)  # nobody reads it

    async def fault(request: Request, error: Exception) -> Response:
        log.line("fault", "error", path=request.url.path[:200], reason=f"{type(error).__name__}: {error}")
        if log.debug:
            log.line("traceback", "debug", text="".join(traceback.format_exception(error)))
        return await internal_error(request, error)

    return Starlette(
        routes=[
            Route("/", status.root, methods=["GET"]),
            Route("/health", status.health, methods=["GET"]),
            Route("/info", status.info, methods=["GET"]),
            Route("/metrics", status.metrics, methods=["GET"]),
            Route("/v1/models", status.models, methods=["GET"]),
            Route("/v1/models/{name:path}", status.model, methods=["GET"]),
            Route("/v1/loads", status.loads, methods=["GET"]),
            Route("/v1/chat/completions", openai.chat, methods=["POST"]),
            Route("/v1/completions", openai.completions, methods=["POST"]),
        ],
        middleware=middleware,
        exception_handlers={
            RequestError: request_error,
            HTTPException: http_error,
            ClientGoneError: client_gone,
            Exception: fault,
        },
    )


def _version() -> str:
    try:
        return version("kt-tui")
    except PackageNotFoundError:
        return "unknown"
