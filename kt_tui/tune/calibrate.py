"""A calibration in at most ten seconds: bandwidth, rates of the kernels, and the link of each GPU.

The engine measures in a process of its own (``python -m engine.limits``), so that nothing here loads tensors and an
engine that crashes on this processor takes nothing with it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kt_tui.errors import KtError
from kt_tui.hardware.calibration import Calibration, calibration_from_json, save_calibration
from kt_tui.hardware.fingerprint import fingerprint
from kt_tui.hardware.machine import Machine
from kt_tui.paths import Paths
from kt_tui.text import one_line, strip_sequences

MEASURE_SECONDS = 5.0
PATIENCE = 60.0
"""Loading torch from a cold disk takes longer than measuring."""

Run = Callable[[Sequence[str], float], "subprocess.CompletedProcess[str]"]


def command(seconds: float = MEASURE_SECONDS) -> list[str]:
    """What is run."""
    return [sys.executable, "-m", "engine.limits", "--seconds", f"{seconds:g}"]


def _run(argv: Sequence[str], timeout: float) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        argv, capture_output=True, text=True, errors="replace", timeout=timeout, check=False
    )


def calibrate(
    machine: Machine, paths: Paths, *, run: Run = _run, now: Callable[[], float] = time.time
) -> Calibration:
    """Measure this machine and keep the result by its fingerprint. Blocking.

    Raises:
        KtError: The measurement failed, or its result cannot be kept; says why.
    """
    argv = command()
    try:
        done = run(argv, PATIENCE)
    except subprocess.TimeoutExpired:
        raise KtError(
            f"the calibration gave no answer in {PATIENCE:.0f} s; is the machine busy? Try again later"
        ) from None
    except OSError as error:
        raise KtError(f"the calibration cannot be started: {error.strerror or error}") from None
    if done.returncode != 0:
        lines = [line for line in strip_sequences(done.stderr).splitlines() if line.strip()]
        why = one_line(lines[-1], 300) if lines else "it said nothing"
        how = f"signal {-done.returncode}" if done.returncode < 0 else f"exit code {done.returncode}"
        raise KtError(f"the calibration failed ({how}): {why}; `kt-tui doctor` checks the engine")
    try:
        measured = calibration_of(json.loads(done.stdout), now())
    except (ValueError, RecursionError):
        measured = None
    if measured is None or not measured.read:
        raise KtError("the calibration answered without a measurement; `kt-tui doctor` checks the engine")
    try:
        save_calibration(paths, fingerprint(machine), measured)
    except OSError as error:
        raise KtError(f"cannot keep the calibration in {paths.cache}: {error.strerror or error}") from None
    return measured


def calibration_of(answer: object, measured_at: float) -> Calibration | None:
    """The calibration that the engine's flat answer tells; None if it is none."""
    figures = answer.get("figures") if isinstance(answer, Mapping) else None
    if not isinstance(answer, Mapping) or not isinstance(figures, Mapping):
        return None
    read, peaks, kernels = [], {}, {}
    gpus: dict[int, dict[str, Any]] = {}
    for name, value in figures.items():
        kind, _, rest = str(name).partition(".")
        if kind == "read" and rest.isdecimal():
            read.append({"bytes": int(rest), "bytes_per_s": value})
        elif kind == "peak":
            peaks[rest] = value
        elif kind == "kernel":
            kernels[rest] = value
        elif kind == "gpu":
            index, _, what = rest.partition(".")
            if index.isdecimal():
                gpus.setdefault(int(index), {})[what] = value
    return calibration_from_json(
        {
            "format": 1,
            "threads": answer.get("threads"),
            "isa": answer.get("isa"),
            "read": read,
            "peaks": peaks,
            "kernels": kernels,
            "job_s": figures.get("job_s"),
            "gpus": [gpus[index] for index in sorted(gpus)],
            "measured_at": measured_at,
            "notes": answer.get("notes"),
        }
    )
