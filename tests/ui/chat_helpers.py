"""A small app around a screen, a stream that the test plays, and waiting without sleeping."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from textual.app import App, ComposeResult
from textual.pilot import Pilot
from textual.screen import Screen
from textual.signal import Signal

import kt_tui.ui
from kt_tui.chat import ChatEvent, ChatOptions, ContentDelta, Endpoint, Failed, Finished, Metrics, Usage
from kt_tui.config import load_config
from kt_tui.paths import Paths, user_paths
from kt_tui.supervise.log import LogRing
from kt_tui.supervise.types import EngineState, EngineStatus
from kt_tui.ui import theming
from kt_tui.ui.app import KtApp
from kt_tui.ui.screens.chat import ChatScreen
from kt_tui.ui.screens.logs import LogsScreen

SCREENS = Path(kt_tui.ui.__file__).with_name("screens")
THEME_FOLDER = Path(__file__).parents[2] / "themes"
READY = EngineStatus(
    EngineState.READY,
    phase="ready",
    reason="",
    pid=4242,
    host="127.0.0.1",
    port=30000,
    model="demo",
    engine="embedded",
)
END = Finished("stop", Usage(212, 96), Metrics(1.21, 0.054, 18.4, 6.4))


async def wait_until(pilot: Pilot[Any], condition: Callable[[], object], limit: float = 10.0) -> None:
    """Lets the app run until ``condition`` holds."""
    deadline = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < deadline, "the awaited state never came"
        await pilot.pause(0.01)


class PlayedStream:
    """A `stream_chat` whose events the test puts in; it remembers requests and whether it was closed."""

    def __init__(self) -> None:
        self.requests: list[list[Mapping[str, Any]]] = []
        self.options: list[ChatOptions | None] = []
        self.closed = 0
        self._events: asyncio.Queue[ChatEvent] = asyncio.Queue()

    def play(self, *events: ChatEvent) -> None:
        """Makes events arrive now."""
        for event in events:
            self._events.put_nowait(event)

    def answer(self, text: str, size: int = 4) -> None:
        """Makes a whole answer arrive, in pieces."""
        self.play(*(ContentDelta(text[at : at + size]) for at in range(0, len(text), size)), END)

    async def __call__(
        self, endpoint: Endpoint, messages: Sequence[Mapping[str, Any]], options: ChatOptions | None = None
    ) -> AsyncIterator[ChatEvent]:
        """The stream itself."""
        self.requests.append(list(messages))
        self.options.append(options)
        try:
            while True:
                event = await self._events.get()
                yield event
                if isinstance(event, Finished | Failed):
                    return
        finally:
            self.closed += 1


class BareChat(ChatScreen):
    """The chat without the bars that all screens share."""

    CSS_PATH = SCREENS / "chat.tcss"

    def compose(self) -> ComposeResult:
        yield from self.compose_body()


class BareLogs(LogsScreen):
    """The logs without the bars that all screens share."""

    CSS_PATH = SCREENS / "logs.tcss"

    def compose(self) -> ComposeResult:
        yield from self.compose_body()


class FakeServices:
    """What the chat and log screens read of the services."""

    def __init__(self, paths: Paths, status: EngineStatus = READY) -> None:
        self.paths = paths
        self.config = load_config(paths, {})
        self.supervisor = SimpleNamespace(
            status=status, api_key=None, log=LogRing(10_000, clock=lambda: 1_700_000_000.0)
        )
        self.decoded: list[float] = []

    def record_decode(self, tokens_per_s: float) -> None:
        self.decoded.append(tokens_per_s)


class PanelApp(App[None]):
    """One screen inside the least of an app."""

    CSS_PATH = Path(kt_tui.ui.__file__).with_name("app.tcss")
    HORIZONTAL_BREAKPOINTS = KtApp.HORIZONTAL_BREAKPOINTS

    def __init__(self, screen: Screen[Any], home: Path, status: EngineStatus = READY) -> None:
        super().__init__()
        self.services = FakeServices(user_paths({"KT_TUI_HOME": str(home)}), status)
        self.engine_status = status
        self.engine_status_signal: Signal[EngineStatus] = Signal(self, "engine-status")
        self.snapshot_signal: Signal[Any] = Signal(self, "snapshot")
        self.snapshot = None
        self.chat_session = None
        self.said: list[str] = []
        self.copied: list[str] = []
        self._shown = screen
        for theme in theming.load_themes([THEME_FOLDER]).themes:
            self.register_theme(theme)
        self.theme = theming.DEFAULT_THEME

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return theming.variable_defaults(self.current_theme)

    async def on_mount(self) -> None:
        await self.push_screen(self._shown)

    def engine(self, status: EngineStatus) -> None:
        """The engine changes its state."""
        self.services.supervisor.status = self.engine_status = status
        self.engine_status_signal.publish(status)

    def say(self, text: str, severity: str = "information") -> None:
        self.said.append(text)

    def copy(self, text: str) -> None:
        self.copied.append(text)
