"""Which models a server serves, and which of them to ask for."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kt_tui.chat import http
from kt_tui.chat.events import ChatError, Endpoint
from kt_tui.text import one_line

_LIST_LIMIT = 4 << 20


@dataclass(frozen=True)
class ModelChoice:
    """The endpoint with a model that the server really serves; ``notice`` if it is not the one asked for."""

    endpoint: Endpoint
    served: tuple[str, ...]
    notice: str = ""


async def served_models(endpoint: Endpoint, patience_s: float = 10.0) -> tuple[str, ...]:
    """The ids that ``GET /v1/models`` lists.

    Raises:
        ChatError: No server answers, or what answers is no such API.
    """
    import httpx

    http.checked(endpoint)
    try:
        async with (
            http.new_client(endpoint, patience_s) as client,
            client.stream("GET", endpoint.url("/v1/models")) as response,
        ):
            if response.status_code != 200:
                words, refusal = await http.read_error(response)
                if response.status_code == 503 and (loading := http.loading_error(words, refusal)):
                    raise loading
                raise ChatError(http.status_sentence(endpoint, response.status_code, words))
            document = http.parse_json(await http.read_limited(response, _LIST_LIMIT))
    except httpx.ConnectError as error:
        raise http.connect_error(endpoint, error) from error
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise ChatError(http.connection_sentence(endpoint, error)) from error
    data = document.get("data") if isinstance(document, dict) else None
    if not isinstance(data, list):
        raise ChatError(
            f"What answers at {endpoint.url('')} is no OpenAI-compatible server: /v1/models lists no models."
        )
    ids = [model.get("id") for model in data if isinstance(model, dict)]
    return tuple(name for name in ids if isinstance(name, str) and name)


async def resolve_model(endpoint: Endpoint) -> ModelChoice:
    """Settle which model to ask for: the wanted one if served, else the first one served.

    Raises:
        ChatError: As `served_models`; also when the server lists no model.
    """
    served = await served_models(endpoint)
    if not served:
        raise ChatError(f"The server at {endpoint.url('')} serves no model.")
    if endpoint.model in served:
        return ModelChoice(endpoint, served)
    notice = ""
    if endpoint.model:
        wanted, given = one_line(endpoint.model, 80), one_line(served[0], 80)
        notice = f"The server does not serve {wanted!r}; {given!r} answers instead."
    return ModelChoice(replace(endpoint, model=served[0]), served, notice)
