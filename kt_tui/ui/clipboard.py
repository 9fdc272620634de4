"""Copying that works over SSH: the terminal first, then local tools, then a file."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

_TOOLS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("WAYLAND_DISPLAY", "wl-copy", ()),
    ("DISPLAY", "xclip", ("-selection", "clipboard")),
    ("", "pbcopy", ()),
)
"""Variable that must be set (if any), program, arguments."""

OSC52_LIMIT = 74_000
"""Characters of text that terminals and tmux reliably take through OSC 52 (about 100,000 in base64)."""


def local_tool(environ: Mapping[str, str]) -> tuple[str, ...] | None:
    """The command of a clipboard tool that can work in this session, or None."""
    for variable, program, arguments in _TOOLS:
        if variable and not environ.get(variable):
            continue
        if found := shutil.which(program, path=environ.get("PATH")):
            return (found, *arguments)
    return None


def copy_with_tool(text: str, environ: Mapping[str, str]) -> str | None:
    """Copy with a local tool; gives its name, or None if there is none or it fails. Blocking, at most 2 s."""
    command = local_tool(environ)
    if command is None:
        return None
    try:
        # wl-copy and xclip stay in the background to serve the selection, so their output must not be waited for.
        done = subprocess.run(
            command,
            input=text.encode("utf-8", "replace"),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=dict(environ),
            timeout=2,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return Path(command[0]).name if done.returncode == 0 else None


def copy_to_file(text: str, folder: Path) -> Path:
    """Write ``text`` to a new private file (mode 0600) and give its path. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix="copied-", suffix=".txt", dir=folder)
    with open(descriptor, "w", encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - a descriptor
        file.write(text)
    return Path(name)
