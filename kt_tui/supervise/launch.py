"""From a launch plan to what the supervisor starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kt_tui.supervise.types import EngineSpec

if TYPE_CHECKING:
    from kt_tui.launch.plan import LaunchPlan

API_KEY_VARIABLE = "KT_ENGINE_API_KEY"
"""The environment variable through which the embedded engine takes its API key (``python -m engine serve``)."""


def spec_from_plan(plan: LaunchPlan, api_key: str | None = None) -> EngineSpec:
    """The launch that ``plan`` describes; the API key travels in the environment of the engine only."""
    environment = dict(plan.env)
    key = api_key or environment.get(API_KEY_VARIABLE) or None
    if key:
        environment[API_KEY_VARIABLE] = key
    return EngineSpec(
        argv=tuple(plan.argv),
        env=environment,
        host=plan.host,
        port=plan.port,
        model=plan.served_name or plan.model_name,
        engine=plan.engine,
        api_key=key,
    )
