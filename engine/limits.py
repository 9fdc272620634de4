"""What this machine can do at best, measured within seconds and printed as one JSON object.

    python -m engine.limits [--threads N] [--seconds S]

Bandwidth is read for several sizes, since a model that fits into the caches is not bound by the memory. Rates of
formats are those of the kernels by themselves with 128 rows, which is what a long prompt gives them.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from engine import _csrc
from engine.cpu_arrays import Format, Mode
from engine.cpu_team import Team

SECONDS = 5.0
READ_SIZES = tuple(mebi << 20 for mebi in (8, 32, 64, 128, 256, 512, 2048))
KERNELS: tuple[tuple[Format, Mode], ...] = (
    ("fp8_block128", "exact"),
    ("bf16", "exact"),
    ("int4_g32", "exact"),
    ("mxfp4", "exact"),
    ("q4_1", "fast"),
    ("q4_k", "fast"),
    ("q8_0", "fast"),
)
DEPTH, ROWS = 3072, 128
PEAK_SECONDS = 0.15
COPY_BYTES = 256 << 20
MATRIX = 8192

Step = tuple[str, Callable[[], Any]]


def steps(team: Team) -> Iterator[Step]:
    """What is measured, most telling first: (dotted name, measurement)."""
    free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    for size in reversed([size for size in READ_SIZES if size <= free // 4] or READ_SIZES[:1]):
        yield f"read.{size}", partial(team.read_bandwidth, size, 2 if size >> 30 else 4)
    yield "job_s", partial(_csrc.job_seconds, team.native, 0.0, 2000)
    yield "peak.f32", partial(team.fma_peak, seconds=PEAK_SECONDS)
    yield "peak.bf16", partial(team.fma_peak, bf16=True, seconds=PEAK_SECONDS)
    yield "peak.int8", partial(team.int8_peak, seconds=PEAK_SECONDS)
    for fmt, mode in KERNELS:
        yield f"kernel.{fmt}", partial(team.multiply_alone, fmt, mode, DEPTH, ROWS)


def gpu_steps() -> Iterator[Step]:
    """What is measured of each GPU that torch can use."""
    for index in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        yield f"gpu.{index}.name", partial(torch.cuda.get_device_name, index)
        yield f"gpu.{index}.to_device", partial(copy_rate, index)
        yield f"gpu.{index}.bf16", partial(matrix_rate, index)
        yield f"gpu.{index}.read", partial(gpu_read_rate, index)


def copy_rate(index: int) -> float:
    """Bytes per second from pinned main memory to a GPU, best of four."""
    source = torch.empty(COPY_BYTES, dtype=torch.uint8, pin_memory=True)
    target = torch.empty(COPY_BYTES, dtype=torch.uint8, device=f"cuda:{index}")
    return COPY_BYTES / best(index, lambda: target.copy_(source, non_blocking=True))


def matrix_rate(index: int) -> float:
    """Operations per second of a bf16 matrix product on a GPU, best of four."""
    matrix = torch.ones((MATRIX, MATRIX), dtype=torch.bfloat16, device=f"cuda:{index}")
    return 2.0 * MATRIX**3 / best(index, lambda: matrix @ matrix)


def gpu_read_rate(index: int) -> float:
    """Bytes per second that a GPU reads from its own memory, best of four sums over 1 GiB."""
    numbers = torch.ones(1 << 28, dtype=torch.float32, device=f"cuda:{index}")
    return numbers.nbytes / best(index, numbers.sum)


def best(index: int, work: Callable[[], object]) -> float:
    """Seconds of the fastest of four runs, after one to warm up."""
    times = []
    for _ in range(5):
        torch.cuda.synchronize(index)
        before = time.perf_counter()
        work()
        torch.cuda.synchronize(index)
        times.append(time.perf_counter() - before)
    return min(times[1:])


def measure(team: Team, seconds: float) -> dict[str, Any]:
    """All measurements that fit into the time; what failed or did not fit has a sentence in ``notes``."""
    notes = list(team.notes)
    figures: dict[str, Any] = {}
    started = time.perf_counter()
    # GPUs have a share of their own, so that a slow memory cannot take their time.
    for share, todo in ((0.7, steps(team)), (1.0, gpu_steps())):
        for name, step in todo:
            if time.perf_counter() - started > seconds * share:
                notes.append(f"{name} was left out: the time was up")
                continue
            try:
                figures[name] = step()
            except (RuntimeError, ValueError, AttributeError) as error:
                notes.append(
                    f"{name} was not measured: {str(error).splitlines()[0][:200] if str(error) else error!r}"
                )
    return {"threads": team.threads, "isa": team.isa, "figures": figures, "notes": notes}


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        prog="python -m engine.limits", description="limits of this machine, as JSON"
    )
    parser.add_argument("--threads", type=int, default=0, help="threads (default: one per usable core)")
    parser.add_argument(
        "--seconds", type=float, default=SECONDS, help=f"at most this long (default {SECONDS:g})"
    )
    arguments = parser.parse_args()
    json.dump(measure(Team(arguments.threads), arguments.seconds), sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
