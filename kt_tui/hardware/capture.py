"""Saves what was read of this machine, so that anyone can look at it and plan for it elsewhere."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from kt_tui.errors import KtError
from kt_tui.hardware.files import SystemFiles
from kt_tui.hardware.machine import Machine
from kt_tui.hardware.nvml import gpu_document
from kt_tui.hardware.read import machine_from_files

GPUS_NAME = "gpus.json"


def _lines(keep: Callable[[str], bool]) -> Callable[[str], str]:
    return lambda text: "".join(line for line in text.splitlines(keepends=True) if keep(line))


# A capture goes to other people, so files that tell more than the hardware are cut down to the lines that we read.
FILTERS: Mapping[str, Callable[[str], str]] = {
    "/proc/self/status": _lines(lambda line: line.startswith(("Cpus_allowed", "Mems_allowed"))),
    "/proc/self/mountinfo": _lines(lambda line: " - cgroup" in line or " /dev/shm " in line),
    "/proc/cpuinfo": _lines(lambda line: not line.lower().startswith("serial")),
}


def capture_machine(folder: Path, environ: Mapping[str, str] | None = None) -> Machine:
    """Save this machine's files below ``folder`` (``proc``, ``sys`` and ``gpus.json``) and return what they say.

    ``kt-tui hardware --sysroot folder --gpus folder/gpus.json`` then shows the same machine.

    Raises:
        KtError: The folder is not empty, or cannot be written.
    """
    files = SystemFiles()
    gpus = gpu_document(os.environ if environ is None else environ)
    machine = machine_from_files(files, gpus)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise KtError(f"{folder} is not empty; give a new folder for the capture")
        for path, text in files.seen.items():
            target = folder / path.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(FILTERS.get(path, str)(text), "utf-8")
        (folder / GPUS_NAME).write_text(json.dumps(gpus, indent=1) + "\n", "utf-8")
    except OSError as error:
        raise KtError(f"cannot write the capture to {folder}: {error.strerror or error}") from None
    return machine
