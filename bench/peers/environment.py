"""A virtual environment of its own for a peer, so that its packages never meet ours."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path


class PeerError(RuntimeError):
    """A peer cannot be had or does not do what it was asked for; the message says why."""


def peer_python(name: str, *packages: str, alone: Sequence[str] = ()) -> Path:
    """The Python of the environment ``name``; made at first use, in the user's cache.

    Args:
        name: Of its folder.
        packages: Installed with what they depend on.
        alone: Installed without that.

    Raises:
        PeerError: pip could not install a package; its last words are in the message.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "kt-tui" / "peers" / name
    python = folder / "bin" / "python"
    stamp = folder / ".packages"
    wanted = "\n".join([*packages, *(f"{package} alone" for package in alone)])
    if not stamp.is_file() or stamp.read_text() != wanted:
        print(
            f"installing {', '.join([*packages, *alone])} into an environment of its own ...", file=sys.stderr
        )
        venv.create(folder, with_pip=True, clear=True)
        try:
            if packages:
                _pip(python, *packages)
            if alone:
                _pip(python, "--no-deps", *alone)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)  # half an environment would be used next time
            raise
        stamp.write_text(wanted)
    return python


def _pip(python: Path, *arguments: str) -> None:
    result = subprocess.run(
        [python, "-m", "pip", "install", "--quiet", *arguments], capture_output=True, text=True, check=False
    )
    if result.returncode:
        said = " ".join(result.stderr.split())[-500:]
        raise PeerError(f"pip cannot install {' '.join(arguments)} here; it said: {said}")
