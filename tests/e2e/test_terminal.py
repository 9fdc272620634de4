"""The product in a real terminal: what a newcomer does, and what they see when things break."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kt_tui.paths import user_paths
from tests.e2e.conftest import Home
from tests.e2e.terminal import Terminal

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

CTRL_Q, F5, RIGHT = "\x11", "\x1b[15~", "\x1b[C"
LEAVE_RUNNING, STOP = RIGHT, RIGHT + RIGHT  # from the first answer, "Stay"
SIZES = [(120, 40), (80, 24)]


@contextmanager
def panel(home: Home, *words: str, columns: int = 120, rows: int = 40) -> Iterator[Terminal]:
    terminal = Terminal([sys.executable, "-m", "kt_tui", *words], home.env, columns, rows)
    try:
        yield terminal
    finally:
        terminal.kill()


def start_demo(terminal: Terminal) -> None:
    terminal.wait_for("Start demo")
    terminal.send("\r")
    terminal.wait_for(r"\bready\b", 120)


def leave(terminal: Terminal, answer: str) -> None:
    terminal.send(CTRL_Q)
    terminal.wait_for("(?i)leave it running")
    terminal.send(answer)
    terminal.send("\r")


@pytest.mark.parametrize(("columns", "rows"), SIZES)
def test_a_newcomer_gets_from_enter_to_an_answer_and_leaves_nothing_behind(
    ready_home: Home, columns: int, rows: int
) -> None:
    with panel(ready_home, columns=columns, rows=rows) as terminal:
        start_demo(terminal)
        terminal.send("What is the capital of Germany?")
        terminal.send("\r")
        terminal.wait_for(r"capital of Germany is Berlin\.", 60)
        terminal.wait_for(r"tok/s", 20)
        assert ready_home.engines()
        leave(terminal, STOP)
        assert terminal.wait_exit(60) == 0
        assert terminal.raw.rstrip().count(b"\x1b[?1049h") == terminal.raw.count(b"\x1b[?1049l")
        assert b"\x1b[?25h" in terminal.raw[-2000:]  # the cursor is back
    ready_home.wait_until_nothing_runs()


def test_the_first_start_makes_the_demo_and_shows_how_far_it_is(home: Home) -> None:
    with panel(home) as terminal:
        terminal.wait_for("Start demo|Make and start|demo")
        terminal.send("\r")
        terminal.wait_for(r"\d+ ?%", 90)
        terminal.wait_for(r"\bready\b", 180)
        assert (home.demo / "config.json").is_file()


def test_an_engine_left_running_is_found_again(ready_home: Home) -> None:
    with panel(ready_home) as terminal:
        start_demo(terminal)
        leave(terminal, LEAVE_RUNNING)
        assert terminal.wait_exit(30) == 0
    engines = ready_home.engines()
    assert engines
    with panel(ready_home) as terminal:
        terminal.wait_for(r"\bready\b", 30)
        assert ready_home.engines() == engines
        leave(terminal, STOP)
        assert terminal.wait_exit(60) == 0
    ready_home.wait_until_nothing_runs()


def test_sigkill_to_the_panel_while_the_engine_loads_leaves_nothing_behind(ready_home: Home) -> None:
    with panel(ready_home) as terminal:
        terminal.wait_for("Start demo|Make and start|demo")
        terminal.send("\r")
        end = time.monotonic() + 60
        while not ready_home.engines():
            terminal.pump(0.05)
            assert time.monotonic() < end
        terminal.kill()
        ready_home.wait_until_nothing_runs(20)


def test_sigkill_to_the_engine_while_it_streams_is_told_and_the_panel_lives_on(ready_home: Home) -> None:
    with panel(ready_home) as terminal:
        start_demo(terminal)
        terminal.send("Write a very long story about a lighthouse.")
        terminal.send("\r")
        terminal.wait_for(r"(?i)lighthouse[\s\S]*(the|a)\b", 60)
        terminal.pump(1)
        for engine in ready_home.engines():
            os.kill(engine.pid, signal.SIGKILL)
        terminal.wait_for(r"(?i)SIGKILL|killed", 20)
        terminal.wait_for("failed demo", 20)
        terminal.send(F5)  # the panel is usable: the same launch again
        terminal.wait_for("(starting|loading) demo", 20)
        terminal.wait_for("ready demo", 120)
        leave(terminal, STOP)
        assert terminal.wait_exit(60) == 0
    ready_home.wait_until_nothing_runs()


def test_a_port_in_use_is_told_with_its_number(ready_home: Home) -> None:
    with socket.socket() as owner, panel(ready_home) as terminal:
        owner.bind(("127.0.0.1", ready_home.port))
        owner.listen()
        terminal.wait_for("Start demo|Make and start|demo")
        terminal.send("\r")
        terminal.wait_for(rf"(?i)port {ready_home.port}", 60)
        assert not ready_home.engines()


def test_a_truncated_checkpoint_is_told_by_its_file(ready_home: Home, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged"
    subprocess.run(["cp", "-r", ready_home.demo, damaged], check=True)
    shard = max(damaged.glob("*.safetensors"))
    os.truncate(shard, shard.stat().st_size // 2)
    with panel(ready_home, str(damaged)) as terminal:
        terminal.wait_for(r"Home.*Models")
        terminal.send(F5)
        terminal.wait_for(rf"{shard.name}", 60)
        assert not ready_home.engines()


def test_the_terminal_is_clean_after_the_panel_crashes(ready_home: Home) -> None:
    with panel(ready_home) as terminal:
        terminal.wait_for(r"Home.*Models")
        os.kill(terminal.child.pid, signal.SIGTERM)
        terminal.wait_exit(20)
        assert terminal.raw.count(b"\x1b[?1049h") == terminal.raw.count(b"\x1b[?1049l")
        for off in (b"\x1b[?1000l", b"\x1b[?2004l", b"\x1b[?25h"):
            assert off in terminal.raw


def test_the_launch_of_the_panel_is_the_command_that_was_shown(ready_home: Home) -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "kt_tui", "run", "demo", "--dry-run", "--json"],
        env=ready_home.env,
        capture_output=True,
        check=True,
    )
    with panel(ready_home) as terminal:
        start_demo(terminal)
        (engine,) = ready_home.engines()
        assert engine.cmdline()[1:] == json.loads(shown.stdout)["argv"][1:]
        assert user_paths(ready_home.env).engines.is_dir()
