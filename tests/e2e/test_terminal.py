"""The product in a real terminal: what a newcomer does, and what they see when things break."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from kt_tui.paths import user_paths
from tests.e2e.conftest import Home
from tests.e2e.terminal import Terminal

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

CTRL_Q, F5 = "\x11", "\x1b[15~"
LEAVE_RUNNING, STOP = "l", "s"
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


def wait_for_an_engine(home: Home, terminal: Terminal) -> None:
    end = time.monotonic() + 60
    while not home.engines():
        terminal.pump(0.05)
        assert time.monotonic() < end


def assert_clean(terminal: Terminal) -> None:
    """The terminal is as a shell wants it: main screen, no mouse or paste reports, cursor and echo there."""
    for mode in ("1049", "1000", "1003", "1006", "2004"):
        on, off = (terminal.raw.rfind(f"\x1b[?{mode}{end}".encode()) for end in "hl")
        assert off > on, mode
    assert terminal.raw.rfind(b"\x1b[?25h") > terminal.raw.rfind(b"\x1b[?25l")
    flags = termios.tcgetattr(terminal.child.child_fd)[3]
    assert flags & termios.ECHO
    assert flags & termios.ICANON


@pytest.mark.parametrize("victim", ["guard", "panel"])
def test_sigkill_while_the_engine_loads_leaves_no_process_and_a_clean_terminal(
    ready_home: Home, victim: str
) -> None:
    with panel(ready_home) as terminal:
        terminal.wait_for("Start demo")
        terminal.send("\r")
        wait_for_an_engine(ready_home, terminal)
        guard = psutil.Process(terminal.child.pid)
        (drawing,) = guard.children()
        (guard if victim == "guard" else drawing).kill()
        ready_home.wait_until_nothing_runs(30)
        terminal.pump(1)
        assert_clean(terminal)
        if victim == "panel":
            terminal.wait_for("the panel was ended by SIGKILL; an engine that it had started is stopped")


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


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_panel_and_engine_cleanly(ready_home: Home, number: signal.Signals) -> None:
    with panel(ready_home) as terminal:
        start_demo(terminal)
        os.kill(terminal.child.pid, number)
        terminal.wait_exit(30)
        assert_clean(terminal)
    ready_home.wait_until_nothing_runs()


@pytest.mark.parametrize(("columns", "rows"), SIZES)
def test_a_named_model_starts_with_enter_and_the_launch_is_saved_and_started_by_name(
    ready_home: Home, columns: int, rows: int
) -> None:
    with panel(ready_home, "demo", columns=columns, rows=rows) as terminal:
        terminal.wait_for(r"Served model name\s+demo")
        terminal.send("\r")
        terminal.wait_for("ready demo", 120)
        terminal.send("\x1b3")  # alt+3: Launch
        terminal.wait_for("Parameters")
        terminal.send("\x13")  # ctrl+s
        terminal.wait_for("(?i)save")
        terminal.wait_for("It stores:")  # typing goes into the question once it is there
        terminal.send("evening\r")
        terminal.wait_for("(?i)evening")
        leave(terminal, STOP)
        assert terminal.wait_exit(60) == 0
    assert (ready_home.folder / "config" / "profiles" / "evening.toml").is_file()
    with panel(ready_home, columns=columns, rows=rows) as terminal:
        terminal.wait_for("evening", 30)
    started = subprocess.Popen(
        [sys.executable, "-m", "kt_tui", "run", "--profile", "evening"],
        env=ready_home.env,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert started.stdout
    assert any("kt-engine ready" in line for line in started.stdout)
    started.send_signal(signal.SIGINT)
    started.communicate(timeout=60)
    ready_home.wait_until_nothing_runs()


def test_a_disk_that_fills_while_the_demo_is_made_is_told_and_the_panel_lives_on(home: Home) -> None:
    cache = home.folder / "cache"
    cache.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", "size=380m", "none", str(cache)]
    if subprocess.run(mount, check=False, stderr=subprocess.DEVNULL).returncode:
        pytest.skip("mounting a small file system needs root")
    try:
        ballast = cache / "ballast"
        with panel(home) as terminal:
            terminal.wait_for("Make and start demo")
            terminal.send("\r")
            terminal.wait_for(r"\d+ ?%", 90)
            ballast.write_bytes(bytes(200_000_000))  # somebody else writes meanwhile
            terminal.wait_for("(?i)(disk|space|full)[^%]*(free|need|space)", 90)
            assert not [path for path in (cache / "models").iterdir() if path.is_dir()]
            ballast.unlink()
            terminal.wait_for("Make and start demo", 20)
    finally:
        subprocess.run(["umount", "-l", str(cache)], check=True)


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
