"""What was predicted of launches and what was then measured: one small file, from which errors so far are told."""

from __future__ import annotations

import fcntl
import json
import math
import statistics
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from kt_tui.paths import Paths

KEPT = 1000
RUNS = 20
_MAXIMUM = 4 << 20


@dataclass(frozen=True)
class Measured:
    """One figure of one launch.

    Attributes:
        model: Name in the catalogue.
        hardware: Fingerprint of the machine.
        engine: ``embedded`` or ``sglang``.
        what: ``decode`` or ``prefill`` (tokens per second), ``host_memory`` (bytes), ...
        measured: The figure.
        predicted: What the plan had said, without any correction.
        at: Seconds since 1970.
        settings: What it was measured with.
    """

    model: str
    hardware: str
    engine: str
    what: str
    measured: float
    predicted: float
    at: float = 0.0
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Seen:
    """How predictions did so far: measured divided by predicted."""

    runs: int
    median: float
    lowest: float
    highest: float


def record_file(paths: Paths) -> Path:
    """Where measured launches are kept."""
    return paths.state / "measured.jsonl"


def add_measured(paths: Paths, entry: Measured) -> None:
    """Keep one more; of very many only the newest.

    Raises:
        OSError: The state folder cannot be written.
    """
    path = record_file(paths)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        kept = [*read_measured(paths), entry][-KEPT:]
        with tempfile.NamedTemporaryFile("w", dir=path.parent, encoding="utf-8", delete=False) as file:
            file.writelines(json.dumps(asdict(one)) + "\n" for one in kept)
        Path(file.name).replace(path)


def read_measured(paths: Paths) -> list[Measured]:
    """All that is kept, oldest first; lines that make no sense are left out."""
    path = record_file(paths)
    try:
        if path.stat().st_size > _MAXIMUM:
            return []
        lines = path.read_text("utf-8", errors="replace").splitlines()
    except OSError:
        return []
    return [entry for line in lines if (entry := _entry(line)) is not None]


def _entry(line: str) -> Measured | None:
    try:
        table = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(table, dict):
        return None
    texts = [
        text for name in ("model", "hardware", "engine", "what") if isinstance(text := table.get(name), str)
    ]
    numbers = [_number(table.get(name)) for name in ("measured", "predicted")]
    if len(texts) < 4 or not numbers[0] or not numbers[1]:
        return None
    model, hardware, engine, what = texts
    settings = table.get("settings")
    return Measured(
        model,
        hardware,
        engine,
        what,
        measured=numbers[0],
        predicted=numbers[1],
        at=_number(table.get("at")),
        settings={str(k): str(v) for k, v in settings.items()} if isinstance(settings, dict) else {},
    )


def _number(value: object) -> float:
    """A finite number above 0; 0 for everything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return 0.0
    return max(0.0, float(value))


def seen(entries: Iterable[Measured], model: str, hardware: str, engine: str, what: str) -> Seen | None:
    """The error so far of one figure, by the newest `RUNS` launches; None without any."""
    wanted = (model, hardware, engine, what)
    ratios = [
        one.measured / one.predicted
        for one in entries
        if (one.model, one.hardware, one.engine, one.what) == wanted
    ][-RUNS:]
    return Seen(len(ratios), statistics.median(ratios), min(ratios), max(ratios)) if ratios else None


def prediction_of(speed: Mapping[str, Any], what: str) -> float | None:
    """The ceiling of one figure in a plan's ``speed``; None where nothing was predicted."""
    figure = speed.get(what)
    value = figure.get("ceiling_tokens_per_s") if isinstance(figure, Mapping) else None
    return _number(value) or None
