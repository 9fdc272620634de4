"""One mixture-of-experts layer here and in kt-kernel: the same weights, the same routes, measured in turns."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch

from bench.kernel_cases import Case, Shape, expert_layer, random_matrix, routing
from bench.kernel_report import SMALL_BATCH
from bench.kernels import limit_of, median_seconds
from bench.peers.answering import Answering, answering
from bench.peers.environment import PeerError, peer_python
from engine.cpu import ExpertLayer, Format, Store, Team, default_mode

FORMATS = ("fp8_block128", "bf16", "int4_g32", "q4_k", "mxfp4", "int8")
"""What is compared unless asked otherwise; `int8` is made at load from bf16 on both sides (their AMXINT8)."""
ALL_FORMATS = (*FORMATS, "fp8_channel", "mxfp8", "int4_g128", "q8_0", "q4_0")
ROUNDS = 3
SLEEPY_SECONDS = 0.1
"""After a call kt-kernel's threads spin for a twentieth of a second; nothing is measured meanwhile."""


@dataclass(frozen=True)
class LayerRow:
    """One engine's figure; `figure` and `limit` are in `unit`, medians over the rounds."""

    engine: str
    kernel: str
    format: str
    shape: str
    tokens: int
    threads: int
    milliseconds: float
    unit: str
    figure: float
    limit: float
    share: float
    ratio: float
    """Our speed over this engine's; 1 for ourselves."""
    difference: float
    """Of this engine's outputs from ours, relative; 0 for ourselves."""

    def __str__(self) -> str:
        beside = (
            f"   x {self.ratio:6.2f}   outputs differ by {self.difference:.4f}" if self.difference else ""
        )
        return (
            f"{self.engine:9} {self.kernel:20} {self.format:12} {self.shape:14} {self.tokens:5} tokens "
            f"{self.threads:3} threads {self.milliseconds:10.2f} ms {self.figure:8.1f} {self.unit:8} "
            f"of {self.limit:8.1f} = {self.share:.2f}{beside}"
        )

    def json(self) -> str:
        """One JSON object."""
        values = asdict(self).items()
        return json.dumps(
            {key: round(value, 4) if isinstance(value, float) else value for key, value in values}
        )


def kt_kernel_python() -> Path:
    """kt-kernel's environment. Its wheel pins a torch of several GB for GPUs; the one installed here does, too."""
    torch_version = torch.__version__.partition("+")[0]
    return peer_python(
        "kt-kernel", f"torch=={torch_version}", "numpy", "safetensors", "gguf", alone=["kt-kernel"]
    )


def source_of(fmt: str) -> Format:
    """The format of the checkpoint."""
    return "bf16" if fmt == "int8" else fmt  # type: ignore[return-value]


def our_layer(team: Team, shape: Shape, fmt: str, memory: float) -> ExpertLayer:
    """The layer as the engine would have it, with as many experts as fit."""
    source = source_of(fmt)
    store: Store | None = "int8" if fmt == "int8" else None
    mode = "fast" if store else default_mode(source)
    return expert_layer(team, shape, source, mode, memory, store=store)


def compare(
    shape: Shape,
    formats: Sequence[str],
    tokens: Sequence[int],
    threads: Sequence[int],
    memory: float,
    budget: float,
) -> Iterator[LayerRow]:
    """Measure both; what kt-kernel cannot do here is told on the error output, and our row stands alone."""
    python = None
    try:
        python = kt_kernel_python()
    except PeerError as reason:
        print(f"note: {reason}", file=sys.stderr)
    for fmt in formats:
        for count in threads:
            layer = our_layer(Team(count), shape, fmt, memory)
            with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
                folder = Path(name)
                peer, wrong = None, 0.0
                try:
                    if python:
                        asked = settings(folder, shape, fmt, layer.experts, count, max(tokens))
                        peer = stack.enter_context(answering("kt-kernel", program(python, asked)))
                        wrong = difference(folder, layer, shape, peer)
                except PeerError as reason:
                    print(f"note: {fmt}, {count} threads: {reason}", file=sys.stderr)
                    peer = None
                for length in tokens:
                    rows: list[LayerRow] = []
                    try:
                        rows = one_case(folder, layer, shape, fmt, length, budget, peer, wrong)
                    except PeerError as reason:
                        print(f"note: {fmt}, {count} threads, {length} tokens: {reason}", file=sys.stderr)
                        peer = None
                        rows = one_case(folder, layer, shape, fmt, length, budget, peer, wrong)
                    yield from rows


def program(python: Path, asked: dict[str, object]) -> list[str]:
    """The command line of the peer's side."""
    return [str(python), str(Path(__file__).with_name("kt_kernel_layer.py")), json.dumps(asked)]


def settings(
    folder: Path, shape: Shape, fmt: str, experts: int, threads: int, longest: int
) -> dict[str, object]:
    """What the peer's program is told, with the weights in a file."""
    gate, down = (
        random_matrix(source_of(fmt), shape.intermediate, shape.hidden),
        random_matrix(source_of(fmt), shape.hidden, shape.intermediate),
    )
    none = np.zeros(0, np.float32)
    parts = {"gate": gate[0], "gate_scale": gate[1], "down": down[0], "down_scale": down[1]}
    np.savez(folder / "weights.npz", **{name: none if part is None else part for name, part in parts.items()})
    return {
        "format": fmt,
        "hidden": shape.hidden,
        "intermediate": shape.intermediate,
        "experts": experts,
        "top": shape.top,
        "threads": threads,
        "longest": longest,
        "weights": str(folder / "weights.npz"),
    }


def difference(folder: Path, layer: ExpertLayer, shape: Shape, peer: Answering) -> float:
    """How far the peer's outputs are from ours for the same inputs, relative to ours."""
    x = torch.randn(4, shape.hidden, generator=torch.Generator().manual_seed(5)).bfloat16().float()
    ids, weights = routing(layer.experts, shape.top, 4, 0)
    mine = layer.forward(x, ids, weights)
    np.savez(folder / "check.npz", x=x.numpy(), ids=ids.numpy(), weights=weights.numpy())
    peer.ask(check=str(folder / "check.npz"), out=str(folder / "out.npy"))
    theirs = torch.from_numpy(np.load(folder / "out.npy"))
    return float((theirs - mine).norm() / mine.norm())


def one_case(
    folder: Path,
    layer: ExpertLayer,
    shape: Shape,
    fmt: str,
    tokens: int,
    budget: float,
    peer: Answering | None,
    wrong: float,
) -> list[LayerRow]:
    """Limit, ours and theirs in turn, so that a busy neighbour slows all of them."""
    turns = max(2, layer.experts // shape.top) if tokens == 1 else 8 if tokens <= SMALL_BATCH else 2
    routes = [routing(layer.experts, shape.top, tokens, turn) for turn in range(turns)]
    ids = np.stack([route[0].numpy() for route in routes])
    np.savez(folder / "case.npz", routes=ids)
    x = torch.randn(tokens, shape.hidden)
    touched = float(np.mean([len(np.unique(route)) for route in ids]))
    mode = "fast" if fmt == "int8" else default_mode(source_of(fmt))
    case = Case(
        "experts",
        "q8_0" if fmt == "int8" else fmt,  # for the choice of the limit
        f"{shape.hidden}/{shape.intermediate}",
        mode,
        tokens,
        touched * layer.nbytes / layer.experts,
        6.0 * shape.hidden * shape.intermediate * shape.top * tokens,
        lambda turn: layer.forward(x, *routes[turn % turns]),
    )
    case.call(0)
    rounds: list[list[float]] = []
    for number in range(ROUNDS):
        limit = limit_of(layer.team, tokens, case.format, mode)
        each = [median_seconds(case.call, budget)]
        if peer:
            each.append(float(peer.ask(case=str(folder / "case.npz"), seconds=budget)["seconds"]))
            time.sleep(SLEEPY_SECONDS)
        rounds.append([limit, *each])
        if number == 0 and sum(each) > 4 * budget:
            break  # so slow that one round is precise enough
    limit, *each = (float(value) for value in np.median(np.array(rounds), axis=0))
    work = case.read_bytes if tokens <= SMALL_BATCH else case.operations
    names = [("kt-tui", f"{layer.team.isa} {mode}", 0.0)]
    if peer:
        names.append(("kt-kernel", f"{peer.hello['variant']} {peer.hello['kind']}", wrong))
    return [
        LayerRow(
            engine,
            kernel,
            fmt,
            case.shape,
            tokens,
            layer.team.threads,
            seconds * 1e3,
            "GB/s" if tokens <= SMALL_BATCH else "GFLOP/s",
            work / seconds / 1e9,
            limit / 1e9,
            work / seconds / limit,
            seconds / each[0],
            differs,
        )
        for (engine, kernel, differs), seconds in zip(names, each, strict=True)
    ]
