"""Which models a server serves, and which of them to ask for."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kt_tui.chat.events import Endpoint


@dataclass(frozen=True)
class ModelChoice:
    """The endpoint with a model that the server really serves; ``notice`` if it is not the one asked for."""

    endpoint: Endpoint
    served: tuple[str, ...]
    notice: str = ""


async def served_models(endpoint: Endpoint) -> tuple[str, ...]:
    """The ids that ``GET /v1/models`` lists.

    Raises:
        ChatError: No server answers, or what answers is no such API.
    """
    raise NotImplementedError


async def resolve_model(endpoint: Endpoint) -> ModelChoice:
    """Settle which model to ask for: the wanted one if served, else the first one served.

    Raises:
        ChatError: As `served_models`; also when the server lists no model.
    """
    served = await served_models(endpoint)
    return ModelChoice(replace(endpoint, model=served[0]), served)
