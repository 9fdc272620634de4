"""CPU kernels beside this machine's own limits, measured in turn with the same threads.

Decode is compared with the read bandwidth, prefill with the multiply-add peak (of bf16 dot products where the variant
uses them). Weights are random bytes; there are enough of them to come from memory rather than from the caches.

    python bench/kernels.py [--quick] [--json] [--threads N] [--tokens T ...] [--only FORMAT] [--memory GIB]

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
BITS = {"fp8_block128": 8, "bf16": 16}
BLOCK_BYTES = {"q4_1": 20, "q8_0": 34}
DECODE_TOKENS = 16  # up to here the memory is the limit, above it the arithmetic
ROUNDS = 5

Call = Callable[[int], object]


@dataclass(frozen=True)
class Row:
    """One measurement; `figure` and `limit` are in `unit`, and all are medians over the rounds."""

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

    def __str__(self) -> str:
        return (
            f"{self.operation:8} {self.format:13} {self.shape:14} {self.mode:6} {self.tokens:5} tokens "
            f"{self.threads} threads {self.isa:12} {self.milliseconds:9.2f} ms {self.figure:8.1f} {self.unit:8}"
            f"of {self.limit:8.1f} = {self.share:.2f}"
        )


@dataclass(frozen=True)
class Case:
    """What is measured, and the work of one call."""

    operation: str
    format: str
    shape: str
    mode: str
    tokens: int
    weight_bytes: float
    operations: float


def median_seconds(call: Call, budget: float) -> float:
    """Median time of a call; it is given its own number, so that it can touch other weights each time."""
    times: list[float] = []
    start = time.perf_counter()
    while not times or (time.perf_counter() - start < budget and len(times) < 500):
        before = time.perf_counter()
        call(len(times))
        times.append(time.perf_counter() - before)
    return float(np.median(times))


def measure(team: Team, case: Case, call: Call, budget: float) -> Row:
    """Limit and call in turn, so that a busy neighbour slows both."""
    decode = case.tokens <= DECODE_TOKENS
    call(0)
    rounds = []
    for _ in range(ROUNDS):
        if decode:
            limit = team.read_bandwidth(1 << 28, 3)
        else:
            bf16 = case.format in BITS
            limit = (team.fma_peak(bf16=bf16, seconds=0.05) if bf16 else 0) or team.fma_peak(seconds=0.05)
        seconds = median_seconds(call, budget / ROUNDS)
        figure = (case.weight_bytes if decode else case.operations) / seconds
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
        "GB/s" if decode else "GFLOP/s",
        figure,
        limit,
        share,
    )


def expert_layer(team: Team, fmt: str, memory: float) -> ExpertLayer:
    """As many experts as fit; their matrices are equal, which no kernel can notice."""
    one = HIDDEN * INTERMEDIATE * BITS[fmt] // 8
    count = max(TOP, int(memory * 2**30 / (3 * one)))
    layer = ExpertLayer(team, fmt, count, HIDDEN, INTERMEDIATE)
    if fmt == "bf16":
        raw = torch.randn(one // 2).bfloat16().view(torch.uint8).numpy()
        scales: list[np.ndarray | None] = [None, None, None]
    else:
        raw = np.random.default_rng(1).integers(0, 0x70, one, dtype=np.uint8)
        across, down = -(-HIDDEN // 128), -(-INTERMEDIATE // 128)
        scales = [np.full(s, 1e-3, np.float32) for s in ((down, across), (down, across), (across, down))]
    for expert in range(count):
        layer.load(expert, raw, raw, raw, *scales)
    return layer


def routing(experts: int, tokens: int, turn: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Random distinct experts; with one token each turn takes the next ones, whose weights have left the caches."""
    rng = np.random.default_rng(turn)
    if tokens == 1:
        ids = (np.arange(TOP) + turn * TOP) % experts
    else:
        ids = np.argsort(rng.random((tokens, experts)), axis=1)[:, :TOP]
    return torch.from_numpy(ids.reshape(tokens, TOP).astype(np.int32)), torch.full((tokens, TOP), 1 / TOP)


def expert_rows(team: Team, fmt: str, tokens: list[int], memory: float, budget: float) -> Iterator[Row]:
    layer = expert_layer(team, fmt, memory)
    for count in tokens:
        x = torch.randn(count, HIDDEN)
        routes = [routing(layer.experts, count, turn) for turn in range(64 if count == 1 else 4)]
        touched = float(np.mean([len(np.unique(ids.numpy())) for ids, _ in routes]))
        case = Case(
            "experts",
            fmt,
            f"{HIDDEN}/{INTERMEDIATE}/{layer.experts}",
            "exact",
            count,
            touched * layer.nbytes / layer.experts,
            6.0 * HIDDEN * INTERMEDIATE * TOP * count,
        )

        def call(turn: int, x: torch.Tensor = x, routes: list[tuple[torch.Tensor, ...]] = routes) -> object:
            return layer.forward(x, *routes[turn % len(routes)])

        yield measure(team, case, call, budget)


def linear(team: Team, fmt: str, mode: str) -> Linear:
    blocks = np.random.default_rng(1).integers(
        0, 256, (LINEAR_ROWS * LINEAR_COLS // 32, BLOCK_BYTES[fmt]), dtype=np.uint8
    )
    blocks[:, :2] = np.full(1, 0.01, np.float16).view(np.uint8)
    blocks[:, 2:4] = np.full(1, 0.02, np.float16).view(np.uint8)
    return Linear(team, fmt, blocks, rows=LINEAR_ROWS, cols=LINEAR_COLS, mode=mode)


def linear_rows(
    team: Team, fmt: str, mode: str, tokens: list[int], memory: float, budget: float
) -> Iterator[Row]:
    # Several copies, so that they don't stay in the caches.
    copies = [linear(team, fmt, mode) for _ in range(max(2, int(memory * 16)))]
    for count in tokens:
        x = torch.randn(count, LINEAR_COLS)
        case = Case(
            "linear",
            fmt,
            f"{LINEAR_ROWS}x{LINEAR_COLS}",
            mode,
            count,
            copies[0].nbytes,
            2.0 * LINEAR_ROWS * LINEAR_COLS * count,
        )

        def call(turn: int, x: torch.Tensor = x) -> object:
            return copies[turn % len(copies)](x)

        yield measure(team, case, call, budget)


def main() -> int:
    parser = argparse.ArgumentParser(description="CPU kernels beside the limits of this machine")
    parser.add_argument("--threads", type=int, default=0, help="threads; 0 = one per usable physical core")
    parser.add_argument("--memory", type=float, default=2.0, help="GiB of expert weights per format")
    parser.add_argument("--tokens", type=int, nargs="+", help="numbers of tokens (default 1 256 1024)")
    parser.add_argument("--only", choices=sorted({*BITS, *BLOCK_BYTES}), help="one format")
    parser.add_argument("--quick", action="store_true", help="fewer rows, less memory and time")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    args = parser.parse_args()
    tokens = args.tokens or ([1, 256] if args.quick else [1, 256, 1024])
    memory = min(args.memory, 1.0) if args.quick else args.memory
    budget = 0.3 if args.quick else 1.5
    team = Team(args.threads)
    for note in team.notes:
        print(f"note: {note}", file=sys.stderr)
    rows = [expert_rows(team, fmt, tokens, memory, budget) for fmt in BITS if args.only in (None, fmt)]
    rows += [
        linear_rows(team, fmt, mode, tokens, memory, budget)
        for fmt in BLOCK_BYTES
        for mode in ("exact", "fast")
        if args.only in (None, fmt)
    ]
    for group in rows:
        for row in group:
            print(json.dumps(asdict(row)) if args.json else row, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
