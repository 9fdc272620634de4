"""A virtual environment of its own for a peer, so that its packages never meet ours."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path


def peer_python(name: str, *packages: str) -> Path:
    """The Python of the environment ``name`` with ``packages`` in it; made at first use, in the user's cache."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "kt-tui" / "peers" / name
    python = folder / "bin" / "python"
    stamp = folder / ".packages"
    wanted = "\n".join(packages)
    if not stamp.is_file() or stamp.read_text() != wanted:
        print(f"installing {', '.join(packages)} into an environment of its own ...", file=sys.stderr)
        venv.create(folder, with_pip=True, clear=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True)
        stamp.write_text(wanted)
    return python
