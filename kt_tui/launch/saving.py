"""From a launch as it is asked for to a profile."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from kt_tui.errors import KtError
from kt_tui.profiles import Conditions, Profile

FIGURES = ("tokens_per_s", "prompt_tokens_per_s", "ttft_s", "peak_memory_bytes", "peak_gpu_memory_bytes")
"""What a profile keeps of a measurement."""


def compose_profile(
    name: str,
    model: str,
    *,
    engine: str | None,
    options: Mapping[str, object],
    extra: tuple[str, ...],
    base: Profile | None = None,
    note: str | None = None,
    measured: Mapping[str, object] | None = None,
    conditions: Conditions = Conditions(),  # noqa: B008 (frozen)
) -> Profile:
    """A profile of a launch; what it leaves open is taken from the profile that it started from.

    Figures that were measured with ``base`` do not hold for a launch with other options, so they are kept only if
    nothing differs.
    """
    profile = Profile(
        name=name,
        model=model,
        engine=engine or (base.engine if base else None),
        options={**(base.options if base else {}), **options},
        note=note if note is not None else base.note if base else "",
        extra=(*(base.extra if base else ()), *extra),
        measured=measured or {},
        conditions=conditions,
    )
    if base is not None and not measured and _same_launch(base, profile):
        return replace(profile, measured=base.measured, conditions=base.conditions)
    return profile


def _same_launch(one: Profile, other: Profile) -> bool:
    def launch(profile: Profile) -> tuple[object, ...]:
        return profile.model, profile.engine, dict(profile.options), profile.extra

    return launch(one) == launch(other)


def measured_from_json(text: str) -> dict[str, object]:
    """The figures in a document that ``kt-tui chat --once --json`` printed, or in any object with such keys.

    Raises:
        KtError: It is no such document, or holds no figure.
    """
    try:
        document: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise KtError(f"the measurement is no valid JSON: {str(error)[:120]}") from None
    found: dict[str, object] = {}
    for source in (document, document.get("metrics")) if isinstance(document, dict) else ():
        if isinstance(source, dict):
            found |= {key: value for key in FIGURES if _is_figure(value := source.get(key))}
    if not found:
        raise KtError(
            f"the measurement holds none of {', '.join(FIGURES)}; `kt-tui chat --once TEXT --json` prints some"
        )
    return stamped(found)


def stamped(figures: Mapping[str, object]) -> dict[str, object]:
    """Figures with the present time."""
    return {**figures, "at": datetime.now(UTC).isoformat(timespec="seconds")}


def _is_figure(value: object) -> bool:
    return (
        isinstance(value, (int, float))
        and not isinstance(value, bool)
        and math.isfinite(value)
        and value >= 0
    )
