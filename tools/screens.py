"""Takes the pictures of docs/screens: the real app, the real engine, the demo model.

usage: python tools/screens.py [OUT_FOLDER]     (rsvg-convert must be installed)
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from textual.pilot import Pilot

sys.path.insert(0, str(Path(__file__).parent))
from svg_to_png import convert

from kt_tui.config import load_config, set_value
from kt_tui.paths import user_paths
from kt_tui.services import build_services
from kt_tui.supervise.types import EngineState
from kt_tui.ui.app import KtApp
from kt_tui.ui.screens.chat import ChatScreen

MODES = ("home", "monitor", "chat")  # the others show paths of the machine that takes the pictures
QUESTIONS = (
    "What is the capital of Germany?",
    "Explain what a CPU is in one sentence.",
    "Count from 1 to 10.",
)
SIZES = ((120, 40), (80, 24))


async def until(pilot: Pilot[int], condition: Callable[[], object], seconds: float = 120) -> None:
    """Let the app run until the condition holds."""
    async with asyncio.timeout(seconds):
        while not condition():
            await pilot.pause(0.05)


async def converse(pilot: Pilot[int], app: KtApp) -> None:
    """A short talk, so that there is something to see."""
    await app.switch_mode("chat")
    await pilot.pause(0.5)
    chat = app.screen
    assert isinstance(chat, ChatScreen)  # noqa: S101
    for number, question in enumerate(QUESTIONS, 1):
        chat.controller.submit(question)
        await until(pilot, lambda: not chat.controller.busy)
        await until(pilot, lambda wanted=2 * number: len(chat.transcript.entries) == wanted)


async def take(folder: Path, theme: str, modes: tuple[str, ...], sizes: tuple[tuple[int, int], ...]) -> None:
    """Start the engine, talk, and picture each mode at each size."""
    app = KtApp(build_services(os.environ))
    async with app.run_test(size=SIZES[0]) as pilot:
        app.theme = theme
        await until(pilot, lambda: "Start demo" in app.export_screenshot().replace("&#160;", " "))
        await pilot.press("enter")
        await until(pilot, lambda: app.engine_status.state is EngineState.READY, 300)
        await converse(pilot, app)
        await pilot.pause(3)  # a few samples for the graphs
        for columns, rows in sizes:
            await pilot.resize_terminal(columns, rows)
            for mode in modes:
                await app.switch_mode(mode)
                await pilot.pause(1.5)
                suffix = "" if theme == "kt-dark" else f"-{theme}"
                svg = folder / f"{mode}{suffix}-{columns}x{rows}.svg"
                svg.write_text(app.export_screenshot(title="kt-tui"))
        await app.services.supervisor.stop()


def main() -> None:
    """All modes in the default theme; the chat in the others too."""
    out = Path(sys.argv[1] if len(sys.argv) > 1 else "docs/screens")
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as home, tempfile.TemporaryDirectory() as drawn:
        cache = user_paths(os.environ).models
        os.environ.update(KT_TUI_HOME=home, KT_TUI_PORT="30700")
        paths = user_paths(os.environ)
        if (cache / "demo").is_dir():  # made before: no need to make it again
            paths.models.mkdir(parents=True)
            (paths.models / "demo").symlink_to(cache / "demo")
        set_value(paths, "ui.theme", "kt-dark")
        load_config(paths, os.environ)
        asyncio.run(take(Path(drawn), "kt-dark", MODES, SIZES))
        for theme in ("kt-light", "terminal", "mono"):
            asyncio.run(take(Path(drawn), theme, ("chat", "monitor"), SIZES[:1]))
        for svg in sorted(Path(drawn).glob("*.svg")):
            print(convert(svg, out, 1200))


if __name__ == "__main__":
    main()
