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
    if activity is not None:
        return NextStep(activity.title, _SOON)
    if status.state in _ENGINE_STEPS:
        return _ENGINE_STEPS[status.state](status, model)
    if profile is not None:
        return NextStep(
            f"Start {profile}",
            "Your last saved launch.",
            f"Start {profile}",
            f"app.start_profile({profile!r})",
        )
    if entry is None:
        return NextStep("Looking at the models", "")
    return _start_step(entry, prepared=prepared)


def _start_step(entry: ModelEntry, *, prepared: bool) -> NextStep:
    about, start = sentence(entry.description), f"app.start_model({entry.name!r})"
    if prepared:
        return NextStep(f"Start {entry.name}", about, f"Start {entry.name}", start)
    if entry.preparable:
        text = f"{about} It takes {size(entry.bytes)} on disk and no download."
        return NextStep(f"Start {entry.name}", text, f"Make and start {entry.name}", start)
    reason = entry.problems[0] if entry.problems else f"It is {entry.state}."
    return NextStep(
        f"{entry.name} cannot be started", sentence(reason), "Look at the models", "app.show_mode('models')"
    )


_SOON = "The chat opens as soon as the engine answers."


def _loading(status: EngineStatus, _: str) -> NextStep:
    return NextStep(f"Loading {status.model}", _SOON)


def _stopping(status: EngineStatus, _: str) -> NextStep:
    return NextStep(f"Stopping {status.model}", "Waiting until its processes are gone.")


def _ready(status: EngineStatus, _: str) -> NextStep:
    address = f"It answers at {status.base_url}."
    return NextStep(f"{status.model} is ready", address, "Open the chat", "app.show_mode('chat')")


def _failed(status: EngineStatus, model: str) -> NextStep:
    again = f"Start {status.model or model} again"
    text = f"{sentence(status.reason)} Its output is in Logs (6)."
    return NextStep("The engine failed", text, again, "app.start_again")


_ENGINE_STEPS = {
    EngineState.STARTING: _loading,
    EngineState.LOADING: _loading,
    EngineState.STOPPING: _stopping,
    EngineState.READY: _ready,
    EngineState.FAILED: _failed,
}
