"""The one thing to do next, worked out from where things stand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kt_tui.supervise.types import EngineState, EngineStatus
from kt_tui.ui.figures import sentence, size
from kt_tui.ui.starting import Activity

if TYPE_CHECKING:
    from kt_tui.catalog import ModelEntry

DEMO_MODEL = "demo"


@dataclass(frozen=True)
class NextStep:
    """A step: what it is, why, the label of its button (empty: nothing to press) and the app action behind it."""

    title: str
    text: str
    label: str = ""
    action: str = ""


def next_step(
    status: EngineStatus,
    activity: Activity | None,
    model: str,
    entry: ModelEntry | None,
    *,
    prepared: bool,
    profile: str | None = None,
) -> NextStep:
    """What to offer.

    Args:
        status: The engine.
        activity: What the panel is busy with.
        model: Name of the model that a start would take.
        entry: Its catalogue entry, once known.
        prepared: Whether it can be started as it lies on disk.
        profile: A saved launch to prefer over the model.
    """
    state = status.state
    if activity is not None:
        return NextStep(activity.title, "The chat opens as soon as the engine answers.")
    if state in {EngineState.STARTING, EngineState.LOADING}:
        return NextStep(f"Loading {status.model}", "The chat opens as soon as the engine answers.")
    if state is EngineState.STOPPING:
        return NextStep(f"Stopping {status.model}", "Waiting until its processes are gone.")
    if state is EngineState.READY:
        return NextStep(
            f"{status.model} is ready",
            f"It answers at {status.base_url}.",
            "Open the chat",
            "app.show_mode('chat')",
        )
    if state is EngineState.FAILED:
        again = status.model or model
        return NextStep("The engine stopped", status.reason, f"Start {again} again", "app.start_again")
    if profile is not None:
        return NextStep(
            f"Start {profile}",
            "Your last saved launch.",
            f"Start {profile}",
            f"app.start_profile({profile!r})",
        )
    if entry is None:
        return NextStep("Looking at the models", "")
    start = f"app.start_model({entry.name!r})"
    if prepared:
        return NextStep(f"Start {entry.name}", sentence(entry.description), f"Start {entry.name}", start)
    if entry.preparable:
        return NextStep(
            f"Start {entry.name}",
            f"{sentence(entry.description)} It takes {size(entry.bytes)} on disk and no download.",
            f"Make and start {entry.name}",
            start,
        )
    reason = entry.problems[0] if entry.problems else f"{entry.name} is {entry.state}."
    return NextStep(
        f"{entry.name} cannot be started", reason, "Look at the models", "app.show_mode('models')"
    )
