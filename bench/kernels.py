"""CPU kernels beside this machine's own limits, measured in turn with the same threads.

Up to 16 tokens a call is compared with the read bandwidth (on the weights of the distinct experts touched), above that
with the multiply-add peak: of float32, bf16 dot products or tiles, whichever is highest, and of int8 products where
activations are int8. There are enough weights for them to come from memory rather than from the caches.

    python bench/kernels.py [--quick] [--json] [--threads 1,all] [--tokens T ...] [--formats F ...] [--memory GIB]
    python bench/kernels.py --alone [--quick] [--formats F ...]
    python bench/kernels.py --threads-check
    python bench/kernels.py --update-docs docs/measurements/kernels-*.jsonl

KT_CPU_ISA chooses a lower variant. With --json the first line tells of the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import numpy as np

if __package__ in {None, ""}:
    sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.kernel_cases import (
    EXPERT_FORMATS,
    INTEGERS,
    SHAPES,
    Call,
    Case,
    attention_cases,
    bytes_per_weight,
    expert_cases,
    fast_error,
    linear_cases,
    modes,
)
from bench.kernel_report import SMALL_BATCH, Row, markdown, read_lines, replace_table, to_json
from engine import _csrc
from engine.cpu import Format, Team

ROUNDS = 3
ALONE_DEPTH = 3072
QUICK_FORMATS = ("fp8_block128", "bf16", "int4_g32", "q4_k")
DOCS = Path(__file__).parents[1] / "docs" / "kernels.md"


def median_seconds(call: Call, budget: float) -> float:
    """Median time of a call."""
    times: list[float] = []
    start = time.perf_counter()
    while not times or (time.perf_counter() - start < budget and len(times) < 500):
        before = time.perf_counter()
        call(len(times))
        times.append(time.perf_counter() - before)
    return float(np.median(times))


@cache
def read_bytes() -> int:
    """How much to read for the bandwidth of the memory: several times the last-level cache."""
    largest = 0
    for size in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        digits = size.read_text("ascii").strip().rstrip("K")
        largest = max(largest, int(digits) * 1024 if digits.isdecimal() else 0)
    return max(1 << 28, 4 * largest)


def limit_of(team: Team, tokens: int, fmt: str, mode: str) -> float:
    """What the machine can do at best, per second."""
    if tokens <= SMALL_BATCH:
        return team.read_bandwidth(read_bytes(), 3)
    if mode == "fast" and fmt in INTEGERS:
        return team.int8_peak(seconds=0.05)
    return max(team.fma_peak(seconds=0.05), team.fma_peak(bf16=True, seconds=0.05))


def measure(team: Team, case: Case, budget: float) -> Row:
    """Limit and call in turn, so that a busy neighbour slows both."""
    memory_bound = case.tokens <= SMALL_BATCH
    case.call(0)
    rounds = []
    for _ in range(ROUNDS):
        limit = limit_of(team, case.tokens, case.format, case.mode)
        seconds = median_seconds(case.call, budget / ROUNDS)
        figure = (case.read_bytes if memory_bound else case.operations) / seconds
        rounds.append((seconds * 1e3, figure / 1e9, limit / 1e9, figure / limit))
    milliseconds, figure, limit, share = (float(value) for value in np.median(np.array(rounds), axis=0))
    return Row(
        case.operation,
        case.format,
        case.shape,
        case.mode,
        case.tokens,
        team.threads,
        team.isa,
        milliseconds,
        "GB/s" if memory_bound else "GFLOP/s",
        figure,
        limit,
        share,
    )


def cases(team: Team, args: argparse.Namespace, memory: float) -> Iterator[Case]:
    """All that was asked for; each layer is gone before the next is made."""
    tokens = args.tokens or ([1, 4, 256] if args.quick else [1, 2, 4, 8, 16, 256, 1024, 4096])
    formats = args.formats or (QUICK_FORMATS if args.quick else EXPERT_FORMATS)
    for shape in SHAPES[:1] if args.quick else SHAPES:
        for fmt in formats:
            for mode in modes(fmt, both=not args.quick):
                try:
                    yield from expert_cases(team, shape, fmt, mode, tokens, memory)
                except ValueError as reason:
                    print(f"note: {fmt} ({mode}) is left out: {reason}", file=sys.stderr)
    if args.formats or args.quick:
        return
    for fmt in ("bf16", "q4_1", "q8_0", "q4_k"):
        for mode in modes(fmt, both=True):
            yield from linear_cases(team, fmt, mode, tokens, memory / 4)
    yield from attention_cases(team, [4096, 32768])


def alone_rows(team: Team, fmts: Iterable[Format], *, both: bool) -> Iterator[Row]:
    """Kernels by themselves with all operands in the caches: what is left of a limit before memory, activations,
    gating and the waiting between phases cost anything."""
    if rate := team.tile_loop(seconds=0.5):
        yield operands_row(team, rate)
    for fmt in fmts:
        for mode in modes(fmt, both=both):
            for rows in (1, 4, 32, 128):
                few = rows <= SMALL_BATCH
                rate = team.multiply_alone(fmt, mode, ALONE_DEPTH, rows)
                figure = rate / (2 * rows) * bytes_per_weight(fmt) if few else rate
                limit = limit_of(team, rows, fmt, mode)
                yield Row(
                    "alone",
                    fmt,
                    f"2 tiles of {ALONE_DEPTH} columns",
                    mode,
                    rows,
                    team.threads,
                    team.isa,
                    64e3 * ALONE_DEPTH * rows * team.threads / rate,
                    "GB/s" if few else "GFLOP/s",
                    figure / 1e9,
                    limit / 1e9,
                    figure / limit,
                )


def operands_row(team: Team, rate: float) -> Row:
    """What is left of the tile peak when the operands are loaded, before any kernel does more than that."""
    peak = team.fma_peak(bf16=True, seconds=0.5)
    shape = "2 x 2 tiles from the first-level cache"
    milliseconds = 4 * 2 * 16 * 16 * 32 / rate * team.threads * 1e3
    figures = rate / 1e9, peak / 1e9, rate / peak
    return Row(
        "operands", "bf16", shape, "exact", 32, team.threads, team.isa, milliseconds, "GFLOP/s", *figures
    )


def error_row(team: Team, fmt: Format) -> Row:
    """How far the fast mode's results are from the exact mode's."""
    error = fast_error(team, fmt)
    return Row(
        "error", fmt, "512 x 2048", "fast", 64, team.threads, team.isa, 0.0, "relative", error, 0.0, 0.0
    )


def available_bytes() -> int:
    """Memory that can be used without swapping; half of all where the system does not tell."""
    info = Path("/proc/meminfo")
    for line in info.read_text("utf-8").splitlines() if info.exists() else []:
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def machine(team: Team) -> dict[str, str]:
    """What the figures depend on."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    for line in info.read_text("utf-8", errors="replace").splitlines() if info.exists() else []:
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    return {
        "cpu": model,
        "cores": str(Team().threads),
        "variant": team.isa,
        "measured": time.strftime("%Y-%m-%d"),
    }


def threads_check(team: Team, budget: float, memory: float) -> None:
    """All cores beside one fewer: a thread too many would show as a slower call. Before, what starting a job costs."""
    for what, pause, rounds in (("at work", 0.0, 5000), ("asleep", 2e-3, 200)):
        spent = _csrc.job_seconds(team.native, pause, rounds) * 1e6
        print(
            f"an empty job, {team.threads} threads {what}: {spent:.1f} microseconds (goal: below 10)",
            flush=True,
        )
    fewer = Team(max(1, team.threads - 1))
    for one in (fewer, team):
        for case in expert_cases(one, SHAPES[0], "bf16", "exact", [1, 256], memory):
            print(measure(one, case, budget), flush=True)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="CPU kernels beside the limits of this machine")
    parser.add_argument("--threads", default="all", help="numbers of threads, e.g. 1,all (default all)")
    parser.add_argument("--memory", type=float, default=2.0, help="GiB of weights a layer (default 2)")
    parser.add_argument("--tokens", type=int, nargs="+", help="numbers of tokens")
    parser.add_argument(
        "--formats", nargs="+", choices=EXPERT_FORMATS, help="formats of experts (default all)"
    )
    parser.add_argument("--quick", action="store_true", help="the headline rows, within 40 seconds")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument("--alone", action="store_true", help="only kernels by themselves, from the caches")
    parser.add_argument("--threads-check", action="store_true", help="all cores beside one fewer")
    parser.add_argument(
        "--update-docs", type=Path, nargs="+", metavar="JSONL", help="rewrite the table of the docs"
    )
    args = parser.parse_args()
    if args.update_docs:
        table = markdown(read_lines(args.update_docs))
        DOCS.write_text(replace_table(DOCS.read_text("utf-8"), table), "utf-8")
        return 0
    wanted = min(args.memory, 0.7) if args.quick else args.memory
    memory = min(wanted * 2**30, available_bytes() / 2)
    budget = 0.2 if args.quick else 1.5
    told = False
    for threads in args.threads.split(","):
        team = Team(0 if threads == "all" else int(threads))
        for note in team.notes:
            print(f"note: {note}", file=sys.stderr)
        if args.threads_check:
            threads_check(team, budget, memory)
            continue
        if args.json and not told:
            print(json.dumps(machine(team)), flush=True)
            told = True
        if args.alone:
            for row in alone_rows(team, args.formats or EXPERT_FORMATS, both=not args.quick):
                print(to_json(row) if args.json else row, flush=True)
            continue
        for case in cases(team, args, memory):
            row = measure(team, case, budget)
            print(to_json(row) if args.json else row, flush=True)
        for fmt in args.formats or (QUICK_FORMATS if args.quick else INTEGERS):
            if fmt in INTEGERS:
                row = error_row(team, fmt)
                print(to_json(row) if args.json else row, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
