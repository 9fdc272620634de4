"""Pictures of the chat and the logs: what a change of looks would change."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from kt_tui.chat import Conversation, Message, Metrics, Status, Usage
from tests.ui.chat_helpers import READY, BareChat, BareLogs, PanelApp, PlayedStream, wait_until

ANSWER = """Two things make node 1 slower:

1. expert pages were **first touched** on node 0, so node 1 reads them over the link;
2. the GPU hangs off node 0, which adds a copy, see `numa_maps`.

```bash
numactl --interleave=0,1 kt-tui run balanced   # both nodes
```

| node | memory | remote |
|:--|--:|:-:|
| 0 | 402 GiB | 3.1 % |
| 1 你好 | 233 GiB | **12 %** |

> To check, watch *remote* while the next prompt is prefilled [not markup].
"""
TURNS = (
    Message("user", "Why is node 1 slower during prefill?"),
    Message(
        "assistant",
        ANSWER,
        "The user asks about remote access.",
        "stop",
        Usage(212, 308, reasoning_tokens=212),
        Metrics(1.21, 0.054, 18.4, 6.4),
    ),
    Message("user", "And now?"),
    Message("assistant", "Half an ans", status=Status.STOPPED, note="stopped", metrics=Metrics(0.4)),
)
LOG = (
    'INFO:     kt-engine phase=weights progress=0.42 detail="layer 12 of 30"\n'
    "2026-11-30 22:45:12 WARNING engine.server: [/some/path] context is larger than the pool\n"
    "Loading shards:  90%|#### | 9/10\rLoading shards: 100%|#####| 10/10\n"
    "Traceback (most recent call last):\n"
    '  File "x.py", line 1\n'
    "RuntimeError: [bold]CUDA out of memory[/bold] 你好 " + "and on and on " * 12 + "\n"
)


async def fill(pilot: Pilot[Any]) -> None:
    screen = pilot.app.screen
    assert isinstance(screen, BareChat)
    screen.composer.prompt.cursor_blink = False
    screen.controller.replace(Conversation(messages=TURNS))
    await pilot.pause()
    screen.transcript.toggle_reasoning(1)
    await wait_until(pilot, lambda: screen.transcript.size.height and screen.transcript.follow)
    await pilot.pause()


async def fill_and_offer(pilot: Pilot[Any]) -> None:
    await fill(pilot)
    screen = pilot.app.screen
    assert isinstance(screen, BareChat)
    await pilot.press("/")
    await wait_until(pilot, lambda: screen.composer.prompt.completing)
    await pilot.pause()


async def first_error(pilot: Pilot[Any]) -> None:
    await wait_until(pilot, lambda: not pilot.app.screen.has_class("-empty"))
    await pilot.press("slash", *"shards|memory", "enter", "f", "n")
    await pilot.pause()


@pytest.fixture(autouse=True)
def fixed_zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The clock column shows local time."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize("size", [(120, 40), (80, 24)], ids=["120x40", "80x24"])
def test_a_conversation(snap_compare: Any, tmp_path: Path, size: tuple[int, int]) -> None:
    app = PanelApp(BareChat(stream=PlayedStream()), tmp_path)
    assert snap_compare(app, terminal_size=size, run_before=fill)


def test_offered_commands(snap_compare: Any, tmp_path: Path) -> None:
    app = PanelApp(BareChat(stream=PlayedStream()), tmp_path)
    assert snap_compare(app, terminal_size=(80, 24), run_before=fill_and_offer)


def test_a_log_with_a_search(snap_compare: Any, tmp_path: Path) -> None:
    app = PanelApp(
        BareLogs(), tmp_path, replace(READY, log_path=Path("/var/log/engines/demo-1.log"), started_at=1.0)
    )
    app.services.supervisor.log.feed(LOG.encode())
    assert snap_compare(app, terminal_size=(80, 24), run_before=first_error)
