"""How the engine's states look: a mark and a colour, always beside the word."""

from __future__ import annotations

from collections.abc import Mapping

from kt_tui.supervise.types import EngineState

MARKS: Mapping[EngineState, tuple[str, str]] = {
    EngineState.IDLE: ("○", "$muted"),
    EngineState.STARTING: ("◔", "$warn"),
    EngineState.LOADING: ("◑", "$warn"),
    EngineState.READY: ("●", "$ok"),
    EngineState.STOPPING: ("◔", "$warn"),
    EngineState.STOPPED: ("○", "$muted"),
    EngineState.FAILED: ("✗", "$bad"),
}
