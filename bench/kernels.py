"""CPU kernels beside this machine's own limits, measured in the same run with the same threads.

Decode is compared with the read bandwidth, prefill with the multiply-add peak (bf16 dot products where the variant
uses them). Weights are random bytes; expert layers are large enough to come from memory rather than from cache.

    python bench/kernels.py [--quick] [--json] [--threads N] [--memory GIB]

KT_CPU_ISA chooses a lower variant.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

import numpy as np
import torch

from engine.cpu import ExpertLayer, Linear, Team

HIDDEN, INTERMEDIATE, TOP = 3072, 1536, 8  # MiniMax-M2.1
LINEAR_ROWS, LINEAR_COLS = 6144, 3072
BITS = {"fp8_block128": 8.0, "bf16": 16.0, "q4_1": 5.0, "q8_0": 8.5}


@dataclass(frozen=True)
class Row:
    """One measurement: `figure` and `limit` in GB/s (decode) or GFLOP/s (prefill)."""

    operation: str
    format: str
    shape: str
    mode: str
    tokens: int
    threads: int
    isa: str
    milliseconds: float
    unit: str
    figure: float
    limit: float
    share: float


def median_seconds(call: Callable[[int], object], budget: float) -> float:
    """Median time of a call; it is given its own number, so that it can touch other weights each time."""
    call(0)
    times: list[float] = []
    start = time.perf_counter()
    while len(times) < 3 or (time.perf_counter() - start < budget and len(times) < 1000):
        before = time.perf_counter()
        call(len(times) + 1)
        times.append(time.perf_counter() - before)
    return float(np.median(times))


def expert_layer(team: Team, fmt: str, memory: float) -> ExpertLayer:
    rng = np.random.default_rng(1)
    one = int(3 * HIDDEN * INTERMEDIATE * BITS[fmt] / 8)
    count = max(TOP, int(memory * 2**30 / one))
    layer = ExpertLayer(team, fmt, count, HIDDEN, INTERMEDIATE)
    raw = rng.integers(0, 0x70, one // 3, dtype=np.uint8)
    if fmt == "bf16":
        raw = torch.randn(one // 6).bfloat16().view(torch.uint8).numpy()
    scales = [None, None, None]
    if fmt == "fp8_block128":
        across, down = -(-HIDDEN // 128), -(-INTERMEDIATE // 128)
        scales = [np.full(s, 1e-3, np.float32) for s in ((down, across), (down, across), (across, down))]
    for expert in range(count):
        layer.load(expert, raw, raw, raw, *scales)
    return layer


def linear(team: Team, fmt: str, mode: str) -> Linear:
    rng = np.random.default_rng(1)
    size = {"q4_1": 20, "q8_0": 34}[fmt]
    blocks = rng.integers(0, 256, (LINEAR_ROWS * LINEAR_COLS // 32, size), dtype=np.uint8)
    blocks[:, :2] = np.full(1, 0.01, np.float16).view(np.uint8)
    blocks[:, 2:4] = np.full(1, 0.02, np.float16).view(np.uint8)
    return Linear(team, fmt, blocks, rows=LINEAR_ROWS, cols=LINEAR_COLS, mode=mode)


def routing(layer: ExpertLayer, tokens: int, turn: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Every call takes the next experts, so that their weights have left the caches."""
    rng = np.random.default_rng(turn)
    if tokens == 1:
        ids = (np.arange(TOP) + turn * TOP) % layer.experts
    else:
        ids = np.argsort(rng.random((tokens, layer.experts)), axis=1)[:, :TOP]
    weights = torch.full((tokens, TOP), 1 / TOP)
    return torch.from_numpy(ids.reshape(tokens, TOP).astype(np.int32)), weights


def measure_experts(team: Team, fmt: str, args: argparse.Namespace) -> Iterator[Row]:
    layer = expert_layer(team, fmt, args.memory)
    per_expert = layer.nbytes / layer.experts
    for tokens in args.tokens:
        x = torch.randn(tokens, HIDDEN)
        routes = [routing(layer, tokens, turn) for turn in range(64 if tokens == 1 else 4)]
        touched = float(np.mean([len(np.unique(ids.numpy())) for ids, _ in routes]))
        seconds = median_seconds(lambda turn: layer.forward(x, *routes[turn % len(routes)]), args.seconds)
        yield report(
            team,
            "experts",
            fmt,
            "exact",
            tokens,
            seconds,
            touched * per_expert,
            6.0 * HIDDEN * INTERMEDIATE * TOP * tokens,
            f"{HIDDEN}/{INTERMEDIATE}/{layer.experts}",
        )


def measure_linear(team: Team, fmt: str, mode: str, args: argparse.Namespace) -> Iterator[Row]:
    # Several copies, so that they don't stay in the caches.
    copies = [
        linear(team, fmt, mode) for _ in range(max(1, int(args.memory * 2**28 / (LINEAR_ROWS * LINEAR_COLS))))
    ]
    for tokens in args.tokens:
        x = torch.randn(tokens, LINEAR_COLS)
        seconds = median_seconds(lambda turn: copies[turn % len(copies)](x), args.seconds)
        yield report(
            team,
            "linear",
            fmt,
            mode,
            tokens,
            seconds,
            copies[0].nbytes,
            2.0 * LINEAR_ROWS * LINEAR_COLS * tokens,
            f"{LINEAR_ROWS}x{LINEAR_COLS}",
        )


def report(
    team: Team,
    operation: str,
    fmt: str,
    mode: str,
    tokens: int,
    seconds: float,
    touched: float,
    operations: float,
    shape: str,
) -> Row:
    if tokens <= 16:
        unit, figure, limit = "GB/s", touched / seconds / 1e9, team.read_bandwidth(1 << 29, 4) / 1e9
    else:
        uses_bf16 = fmt in ("bf16", "fp8_block128")
        limit = (team.fma_peak(bf16=uses_bf16) or team.fma_peak()) / 1e9
        unit, figure = "GFLOP/s", operations / seconds / 1e9
    return Row(
        operation,
        fmt,
        shape,
        mode,
        tokens,
        team.threads,
        team.isa,
        seconds * 1e3,
        unit,
        figure,
        limit,
        figure / limit,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description="CPU kernels beside the limits of this machine")
    parser.add_argument("--threads", type=int, default=0, help="threads; 0 = one per usable physical core")
    parser.add_argument("--memory", type=float, default=2.0, help="GiB of expert weights per format")
    parser.add_argument("--tokens", type=int, nargs="+", help="numbers of tokens (default 1 256 1024)")
    parser.add_argument("--only", choices=sorted(BITS), help="one format")
    parser.add_argument("--quick", action="store_true", help="fewer rows, less memory")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    args = parser.parse_args()
    args.tokens = args.tokens or ([1, 256] if args.quick else [1, 256, 1024])
    args.memory = min(args.memory, 1.0) if args.quick else args.memory
    args.seconds = 0.5 if args.quick else 1.5
    team = Team(args.threads)
    for note in team.notes:
        print(f"note: {note}", file=sys.stderr)
    jobs = [(fmt, None) for fmt in ("fp8_block128", "bf16")]
    jobs += [(fmt, mode) for fmt in ("q4_1", "q8_0") for mode in ("exact", "fast")]
    for fmt, mode in jobs:
        if args.only in (None, fmt):
            for row in (
                measure_experts(team, fmt, args) if mode is None else measure_linear(team, fmt, mode, args)
            ):
                if args.json:
                    print(json.dumps(asdict(row)), flush=True)
                else:
                    print(
                        f"{row.operation:8} {row.format:13} {row.shape:15} {row.mode:6} {row.tokens:5} tokens "
                        f"{row.threads} threads {row.isa:12} {row.milliseconds:9.2f} ms {row.figure:8.1f} {row.unit:8} "
                        f"of {row.limit:8.1f} = {row.share:.2f}",
                        flush=True,
                    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
