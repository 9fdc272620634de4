"""The modes of the panel as data: one full screen each, imported when first shown."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass

from textual.screen import Screen


@dataclass(frozen=True)
class Mode:
    """A mode: its name, titles for wide and narrow tab bars, what it is for, and where its screen lives."""

    name: str
    title: str
    short: str
    purpose: str
    module: str
    screen: str

    def factory(self) -> Callable[[], Screen[object]]:
        """A function that imports the screen's module and makes the screen."""

        def make() -> Screen[object]:
            made: Screen[object] = getattr(importlib.import_module(self.module), self.screen)()
            return made

        return make


_SCREENS = "kt_tui.ui.screens"

ALL_MODES = (
    Mode("home", "Home", "Home", "this machine, the engine, the next step", f"{_SCREENS}.home", "HomeScreen"),
    Mode("models", "Models", "Mod", "models known and on disk", f"{_SCREENS}.models", "ModelsScreen"),
    Mode(
        "launch",
        "Launch",
        "Lau",
        "parameters, fit, exact command, start",
        f"{_SCREENS}.launch",
        "LaunchScreen",
    ),
    Mode(
        "monitor",
        "Monitor",
        "Mon",
        "cores, memory, GPUs, engine figures",
        f"{_SCREENS}.monitor",
        "MonitorScreen",
    ),
    Mode("chat", "Chat", "Chat", "talk to the running engine", f"{_SCREENS}.chat", "ChatScreen"),
    Mode("logs", "Logs", "Logs", "what the engine printed", f"{_SCREENS}.logs", "LogsScreen"),
)


def available_modes() -> tuple[Mode, ...]:
    """The modes whose screens are part of this installation."""
    return tuple(mode for mode in ALL_MODES if importlib.util.find_spec(mode.module) is not None)
