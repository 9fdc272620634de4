"""Calibrations: the engine's answer read, kept by fingerprint, and every failure in one sentence."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from kt_tui.errors import KtError
from kt_tui.hardware.calibration import Calibration, calibration_file, calibration_from_json, load_calibration
from kt_tui.hardware.fingerprint import fingerprint
from kt_tui.hardware.machine import Cpu, Machine, Memory
from kt_tui.paths import Paths
from kt_tui.tune.calibrate import calibrate, calibration_of, command

MACHINE = Machine(cpu=Cpu(model="A", usable_physical_cores=2), memory=Memory(total=64 << 30))
ANSWER = {
    "threads": 16,
    "isa": "avx512_bf16",
    "figures": {
        "read.2147483648": 200e9,
        "read.33554432": 800e9,
        "read.536870912": 250e9,
        "job_s": 2e-6,
        "peak.bf16": 4e12,
        "peak.int8": 0.0,
        "kernel.fp8_block128": 1.5e12,
        "gpu.1.name": "B",
        "gpu.0.name": "A",
        "gpu.0.to_device": 50e9,
    },
    "notes": ["kernel.q4_k was left out: the time was up"],
}


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(*(tmp_path / name for name in ("config", "data", "state", "cache")))


def answering(
    stdout: str = "", stderr: str = "", code: int = 0
) -> Callable[[Sequence[str], float], subprocess.CompletedProcess[str]]:
    return lambda argv, timeout: subprocess.CompletedProcess(list(argv), code, stdout, stderr)


def test_a_measurement_is_kept_for_machines_of_the_same_kind(paths: Paths) -> None:
    measured = calibrate(MACHINE, paths, run=answering(json.dumps(ANSWER)), now=lambda: 1234.0)
    assert measured.read == ((33554432, 800e9), (536870912, 250e9), (2147483648, 200e9))
    assert measured.memory_bytes_per_s == 200e9
    assert measured.peaks == {"bf16": 4e12}  # a rate of nothing is no rate
    assert [gpu.name for gpu in measured.gpus] == ["A", "B"]
    assert (measured.gpus[0].to_device, measured.gpus[1].to_device) == (50e9, None)
    assert load_calibration(paths, fingerprint(MACHINE)) == measured
    assert load_calibration(paths, fingerprint(Machine(cpu=Cpu(model="B")))) is None


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (1, 800e9),
        (33554432, 800e9),
        (4 * 33554432, 525e9),  # half way from 32 to 512 MiB by their logarithm
        (1 << 30, 225e9),
        (1 << 40, 200e9),
    ],
)
def test_bandwidth_between_the_measured_sizes(size: int, expected: float) -> None:
    measured = calibration_of(ANSWER, 1.0)
    assert measured is not None
    assert measured.bandwidth(size) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("stdout", "stderr", "code", "part"),
    [
        ("", "Traceback ...\nModuleNotFoundError: No module named 'torch'\n", 1, "No module named 'torch'"),
        ("", "", -4, "signal 4"),
        ("not json", "", 0, "without a measurement"),
        ("{}", "", 0, "without a measurement"),
        ('{"figures": {"read.x": 1, "read.5": "fast"}}', "", 0, "without a measurement"),
        ("[" * 100_000, "", 0, "without a measurement"),
    ],
)
def test_a_failure_is_one_sentence(paths: Paths, stdout: str, stderr: str, code: int, part: str) -> None:
    with pytest.raises(KtError, match=part):
        calibrate(MACHINE, paths, run=answering(stdout, stderr, code))
    assert not paths.cache.exists()


def test_no_answer_in_time_is_told(paths: Paths) -> None:
    def late(argv: Sequence[str], timeout: float) -> subprocess.CompletedProcess[str]:
        raise subprocess.TimeoutExpired(list(argv), timeout)

    with pytest.raises(KtError, match="no answer"):
        calibrate(MACHINE, paths, run=late)


def test_a_cache_that_cannot_be_written_is_told(paths: Paths) -> None:
    paths.cache.parent.mkdir(parents=True, exist_ok=True)
    paths.cache.write_text("a file")
    with pytest.raises(KtError, match="cannot keep the calibration"):
        calibrate(MACHINE, paths, run=answering(json.dumps(ANSWER)))


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 2}', '{"format": 1, "read": 5}', "\xff"])
def test_a_damaged_file_is_no_calibration(paths: Paths, text: str) -> None:
    file = calibration_file(paths, "f")
    file.parent.mkdir(parents=True)
    file.write_bytes(text.encode("latin-1"))
    found = load_calibration(paths, "f")
    assert found is None or found == Calibration()


@pytest.mark.parametrize("wrong", [True, -1, "1e9", None, float("nan"), float("inf"), [], {}])
def test_rates_that_make_no_sense_are_left_out(wrong: Any) -> None:
    document = {
        "format": 1,
        "read": [{"bytes": 4096, "bytes_per_s": wrong}],
        "peaks": {"f32": wrong},
        "job_s": wrong,
    }
    assert calibration_from_json(document) == Calibration()


@pytest.mark.slow
def test_this_machine_is_measured() -> None:
    done = subprocess.run(command(0.5), capture_output=True, text=True, check=True)
    measured = calibration_of(json.loads(done.stdout), 1.0)
    assert measured is not None
    assert measured.threads >= 1
    # The largest size always comes first, however short the time.
    assert measured.memory_bytes_per_s is not None
    assert 1e8 < measured.memory_bytes_per_s < 1e13
