"""What a machine was measured to do: bandwidths and rates, kept in the cache folder by hardware fingerprint."""

from __future__ import annotations

import contextlib
import json
import math
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from kt_tui.paths import Paths

_MAXIMUM = 1 << 20
_FORMAT = 1


@dataclass(frozen=True)
class GpuRates:
    """One GPU. All rates per second.

    Attributes:
        to_device: Bytes from pinned main memory to the GPU.
        bf16: Operations of a large matrix product.
        read: Bytes that it reads from its own memory.
    """

    name: str = ""
    to_device: float | None = None
    bf16: float | None = None
    read: float | None = None


@dataclass(frozen=True)
class Calibration:
    """What was measured. All rates per second, of all threads together.

    Attributes:
        threads: Threads that measured.
        isa: Kernel variant.
        read: (bytes, bytes per second) of reading that much again and again, by size.
        peaks: Operations per second by kind: ``f32``, ``bf16``, ``int8``.
        kernels: Operations per second of the kernels by themselves, by format.
        job_s: Seconds that starting a job on all threads takes.
        gpus: By CUDA index.
        measured_at: Seconds since 1970.
        notes: What was not measured, one sentence each.
    """

    threads: int = 0
    isa: str = ""
    read: tuple[tuple[int, float], ...] = ()
    peaks: Mapping[str, float] = field(default_factory=dict)
    kernels: Mapping[str, float] = field(default_factory=dict)
    job_s: float | None = None
    gpus: tuple[GpuRates, ...] = ()
    measured_at: float = 0.0
    notes: tuple[str, ...] = ()

    @property
    def memory_bytes_per_s(self) -> float | None:
        """Bandwidth of the memory itself: of the largest size read."""
        return self.read[-1][1] if self.read else None

    def bandwidth(self, size: int) -> float | None:
        """Bytes per second of reading ``size`` bytes again and again; between measured sizes by their logarithm."""
        if not self.read:
            return None
        if size <= self.read[0][0]:
            return self.read[0][1]
        for (low, slow), (high, fast) in pairwise(self.read):
            if size <= high:
                share = math.log(size / low) / math.log(high / low)
                return slow + (fast - slow) * share
        return self.read[-1][1]

    def to_json(self) -> dict[str, Any]:
        """The document in the cache folder, and of ``kt-tui hardware --calibrate --json``."""
        return {
            "format": _FORMAT,
            "threads": self.threads,
            "isa": self.isa,
            "read": [{"bytes": size, "bytes_per_s": rate} for size, rate in self.read],
            "peaks": dict(self.peaks),
            "kernels": dict(self.kernels),
            "job_s": self.job_s,
            "gpus": [
                {"name": gpu.name, "to_device": gpu.to_device, "bf16": gpu.bf16, "read": gpu.read}
                for gpu in self.gpus
            ],
            "measured_at": self.measured_at,
            "notes": list(self.notes),
        }


def _rate(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) and value > 0 else None


def _rates(value: object) -> dict[str, float]:
    found = value if isinstance(value, Mapping) else {}
    return {str(name): rate for name, given in found.items() if (rate := _rate(given)) is not None}


def calibration_from_json(document: object) -> Calibration | None:
    """Read `Calibration.to_json` back; None if it is none. What makes no sense is left out."""
    if not isinstance(document, Mapping) or document.get("format") != _FORMAT:
        return None
    read: dict[int, float] = {}
    rows = document.get("read")
    for row in rows if isinstance(rows, list) else ():
        if isinstance(row, Mapping) and (rate := _rate(row.get("bytes_per_s"))) and _rate(row.get("bytes")):
            read[int(row["bytes"])] = rate
    gpus, notes, threads = document.get("gpus"), document.get("notes"), document.get("threads")
    return Calibration(
        threads=threads if type(threads) is int and threads > 0 else 0,
        isa=str(document.get("isa") or "")[:40],
        read=tuple(sorted(read.items())),
        peaks=_rates(document.get("peaks")),
        kernels=_rates(document.get("kernels")),
        job_s=_rate(document.get("job_s")),
        gpus=tuple(
            GpuRates(
                str(gpu.get("name") or "")[:80],
                _rate(gpu.get("to_device")),
                _rate(gpu.get("bf16")),
                _rate(gpu.get("read")),
            )
            for gpu in (gpus if isinstance(gpus, list) else ())
            if isinstance(gpu, Mapping)
        ),
        measured_at=_rate(document.get("measured_at")) or 0.0,
        notes=tuple(str(note)[:300] for note in notes) if isinstance(notes, list) else (),
    )


def calibration_file(paths: Paths, fingerprint: str) -> Path:
    """Where the calibration of a machine is kept."""
    return paths.cache / "calibration" / f"{fingerprint}.json"


def load_calibration(paths: Paths, fingerprint: str) -> Calibration | None:
    """The kept calibration of a machine; None without a readable one."""
    path = calibration_file(paths, fingerprint)
    try:
        if path.stat().st_size > _MAXIMUM:
            return None
        return calibration_from_json(json.loads(path.read_bytes()))
    except (OSError, ValueError, RecursionError):
        return None


def save_calibration(paths: Paths, fingerprint: str, calibration: Calibration) -> None:
    """Keep a calibration, in one step.

    Raises:
        OSError: The cache folder cannot be written.
    """
    path = calibration_file(paths, fingerprint)
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, encoding="utf-8", delete=False) as file:
        temporary = Path(file.name)
        json.dump(calibration.to_json(), file)
    try:
        temporary.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
