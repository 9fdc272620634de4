"""A user's home with the demo model already made, an own port, and proof that nothing is left running."""

from __future__ import annotations

import os
import shutil
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest


@dataclass(frozen=True)
class Home:
    """One isolated user: the environment for child processes, and the port of their engine."""

    folder: Path
    port: int

    @property
    def env(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("KT_", "XDG_"))}
        return {**kept, "KT_TUI_HOME": str(self.folder), "KT_TUI_PORT": str(self.port), "LANG": "C.UTF-8"}

    @property
    def demo(self) -> Path:
        return self.folder / "cache" / "models" / "demo"

    def processes(self) -> list[psutil.Process]:
        """Everything that runs for this user: their home folder is in each process's environment."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get("KT_TUI_HOME") == str(self.folder) and process.pid != os.getpid():
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def engines(self) -> list[psutil.Process]:
        return [process for process in self.processes() if "serve" in _words(process)]

    def wait_until_nothing_runs(self, seconds: float = 30.0) -> None:
        end = time.monotonic() + seconds
        while left := self.processes():
            assert time.monotonic() < end, [_words(process) for process in left]
            time.sleep(0.1)


def _words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def _link(source: str, target: str) -> str:
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copy2(source, target)
    return target


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    """A user who has nothing yet."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    user = Home(tmp_path / "home", port)
    yield user
    for process in user.processes():
        process.kill()


@pytest.fixture
def ready_home(home: Home, demo_model: Path) -> Home:
    """A user whose demo model has been made."""
    home.demo.parent.mkdir(parents=True)
    shutil.copytree(demo_model, home.demo, copy_function=_link)
    return home
