"""The real app with the real engine, driven without a terminal."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest
from textual.pilot import Pilot

from kt_tui.services import build_services
from kt_tui.supervise.types import EngineState
from kt_tui.ui.app import KtApp
from kt_tui.ui.screens.chat import ChatScreen
from kt_tui.ui.widgets.transcript import Answer
from tests.e2e.conftest import Home

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


async def wait_until(pilot: Pilot[Any], condition: Callable[[], object], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, pilot.app.export_screenshot()[-4000:]
        await pilot.pause(0.05)


async def test_start_ask_read_stop(ready_home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ready_home.env.items():
        monkeypatch.setenv(name, value)
    app = KtApp(build_services(ready_home.env))
    async with app.run_test(size=(120, 40)) as pilot:
        await wait_until(pilot, lambda: app.focused is not None and app.focused.id is not None)
        await wait_until(pilot, lambda: "Start demo" in app.export_screenshot().replace("&#160;", " "))
        await pilot.press("enter")
        await wait_until(pilot, lambda: app.engine_status.state is EngineState.READY, 120)
        await wait_until(pilot, lambda: isinstance(app.screen, ChatScreen))
        chat = app.screen
        assert isinstance(chat, ChatScreen)
        await pilot.press(*"What is the capital of Germany?", "enter")
        await wait_until(pilot, lambda: len(chat.transcript.entries) == 2 and not chat.controller.busy)
        answer = chat.transcript.entries[1]
        assert isinstance(answer, Answer)
        assert answer.content == "The capital of Germany is Berlin."
        for figure in ("TTFT", "TPOT", "tok/s", "37 in + 8 out"):
            assert figure in answer.footer
        report = await app.services.supervisor.stop()
        assert report.gone, report
        assert app.engine_status.state is EngineState.STOPPED
    await asyncio.to_thread(ready_home.wait_until_nothing_runs)
