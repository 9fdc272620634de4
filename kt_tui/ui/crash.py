"""What is left of an unexpected error: a report on disk, one sentence on the terminal."""

from __future__ import annotations

import os
import platform
import time
import traceback
from pathlib import Path

from kt_tui import __version__


def write_crash_report(error: BaseException, folder: Path) -> Path | None:
    """Write the traceback (without local variables, which may hold secrets); None if that fails too."""
    text = "".join(traceback.format_exception(error))
    name = f"crash-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.txt"
    head = f"kt-tui {__version__}, Python {platform.python_version()}, {platform.platform()}\n\n"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / name
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:  # noqa: PTH123
            file.write(head + text)
    except OSError:
        return None
    return path


def crash_sentence(error: BaseException, report: Path | None) -> str:
    """What to tell the user."""
    what = f"kt-tui: an unexpected error ended the panel ({type(error).__name__})"
    return f"{what}; the report is {report}" if report else f"{what}, and no report could be written: {error}"
