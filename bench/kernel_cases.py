"""What `bench.kernels` measures: layers of the shapes of real models, with the work of one call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from engine import plan
from engine.batch import Batch, make_batch
from engine.cpu import ExpertLayer, Format, Linear, Mode, Store, Team, default_mode
from engine.layers.rope import Rope
from engine.pages import PageTable

Call = Callable[[int], object]
Raw = tuple[NDArray[np.uint8], NDArray[np.generic] | None]


@dataclass(frozen=True)
class Shape:
    """The experts of one layer of a model."""

    name: str
    hidden: int
    intermediate: int
    experts: int
    top: int = 8


SHAPES = (
    Shape("MiniMax-M2.1", 3072, 1536, 256),
    Shape("Qwen3-30B-A3B", 2048, 768, 128),
    Shape("DeepSeek-V3", 7168, 2048, 256),
)
LINEAR_ROWS, LINEAR_COLS = 6144, 3072
EXPERT_FORMATS: tuple[Format, ...] = (
    "fp8_block128",
    "bf16",
    "int4_g32",
    "q4_k",
    "fp8_channel",
    "mxfp8",
    "mxfp4",
    "int4_g128",
    "q4_0",
    "q4_1",
    "q8_0",
    "q5_k",
    "q6_k",
)
INTEGERS = ("int4_g32", "int4_g128", "mxfp4", "q4_0", "q4_1", "q8_0", "q4_k", "q5_k", "q6_k")
"""Formats with two numeric modes."""
BLOCKS = {
    "q4_0": (32, 18),
    "q4_1": (32, 20),
    "q8_0": (32, 34),
    "q4_k": (256, 144),
    "q5_k": (256, 176),
    "q6_k": (256, 210),
}
"""Columns and bytes of a block of ggml."""


@dataclass(frozen=True)
class Case:
    """What is measured, and the work of one call.

    Attributes:
        operation: ``experts``, ``linear`` or ``attention``.
        format: Of the weights, or ``f32`` for a key-value cache.
        shape: In words.
        mode: ``exact`` or ``fast``.
        tokens: Rows of one call.
        read_bytes: What a call reads from memory.
        operations: Multiplications and additions of a call.
        call: Runs it; it is given its own number, so that it can touch other weights each time.
    """

    operation: str
    format: str
    shape: str
    mode: str
    tokens: int
    read_bytes: float
    operations: float
    call: Call


def random_matrix(fmt: Format, rows: int, cols: int) -> Raw:
    """Bytes and scales of a matrix whose numbers are like a real model's: no subnormals beyond the usual few."""
    rng = np.random.default_rng(1)
    if fmt in {"bf16", "f32"}:
        values = torch.randn(rows, cols, generator=torch.Generator().manual_seed(1)) * 0.02
        return (values.bfloat16() if fmt == "bf16" else values).view(torch.uint8).numpy().reshape(-1), None
    if fmt in {"fp8_block128", "fp8_channel", "mxfp8"}:
        # Normal numbers whose largest of a block fills the format.
        codes = (torch.randn(128, cols, generator=torch.Generator().manual_seed(1)) * 100).clamp(-448, 448)
        raw = np.tile(codes.to(torch.float8_e4m3fn).view(torch.uint8).numpy(), (-(-rows // 128), 1))[:rows]
        scale: NDArray[np.generic] = {
            "fp8_block128": np.full((-(-rows // 128), -(-cols // 128)), 2e-4, np.float32),
            "fp8_channel": np.full(rows, 2e-4, np.float32),
            "mxfp8": np.full((rows, cols // 32), 115, np.uint8),
        }[fmt]
        return np.ascontiguousarray(raw).reshape(-1), scale
    if fmt in BLOCKS:
        columns, size = BLOCKS[fmt]
        blocks = rng.integers(0, 256, (rows * cols // columns, size), dtype=np.uint8)
        small = np.full(1, 0.003, np.float16).view(np.uint8)
        at = 208 if fmt == "q6_k" else 0
        blocks[:, at : at + 2] = small
        if fmt in {"q4_1", "q4_k", "q5_k"}:
            blocks[:, 2:4] = small
        return blocks.reshape(-1), None
    packed = rng.integers(0, 256, rows * cols // 2, dtype=np.uint8)
    scales: dict[str, NDArray[np.generic]] = {
        "int4_g32": np.full((rows, cols // 32), 0x3B80, np.uint16),
        "int4_g128": np.full((cols // 128, rows), np.float16(0.003).view(np.uint16), np.uint16),
        "mxfp4": np.full((rows, cols // 32), 120, np.uint8),
    }
    return packed, scales[fmt]


def bytes_per_weight(fmt: Format) -> float:
    """Bytes of a packed weight, scales included."""
    rows, cols = 512, 3072
    raw, scale = random_matrix(fmt, rows, cols)
    return Linear(Team(1), fmt, raw, scale, rows=rows, cols=cols).nbytes / (rows * cols)


def modes(fmt: Format, *, both: bool) -> tuple[Mode, ...]:
    """The modes to measure: the format's default, or both where they differ."""
    return ("exact", "fast") if both and fmt in INTEGERS else (default_mode(fmt),)


def routing(experts: int, top: int, tokens: int, turn: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Random distinct experts; with one token each turn takes the next ones, whose weights have left the caches."""
    if tokens == 1:
        ids = (np.arange(top) + turn * top) % experts
    else:
        ids = np.argsort(np.random.default_rng(turn).random((tokens, experts)), axis=1)[:, :top]
    return torch.from_numpy(ids.reshape(tokens, top).astype(np.int32)), torch.full((tokens, top), 1 / top)


def expert_layer(
    team: Team, shape: Shape, fmt: Format, mode: Mode, memory: float, store: Store | None = None
) -> ExpertLayer:
    """As many experts as fit into `memory` bytes; their matrices are equal, which no kernel can notice."""
    gate, down = (
        random_matrix(fmt, shape.intermediate, shape.hidden),
        random_matrix(fmt, shape.hidden, shape.intermediate),
    )
    probe = ExpertLayer(team, fmt, 1, shape.hidden, shape.intermediate, mode=mode, store=store)
    probe.load(0, gate[0], gate[0], down[0], gate[1], gate[1], down[1])
    count = int(min(shape.experts, max(shape.top, memory // probe.nbytes)))
    layer = ExpertLayer(team, fmt, count, shape.hidden, shape.intermediate, mode=mode, store=store)
    for expert in range(count):
        layer.load(expert, gate[0], gate[0], down[0], gate[1], gate[1], down[1])
    return layer


def expert_cases(
    team: Team, shape: Shape, fmt: Format, mode: Mode, tokens: list[int], memory: float
) -> Iterator[Case]:
    """One layer, with different numbers of tokens."""
    layer = expert_layer(team, shape, fmt, mode, memory)
    for count in tokens:
        x = torch.randn(count, shape.hidden)
        routes = [
            routing(layer.experts, shape.top, count, turn)
            for turn in range(max(2, layer.experts // shape.top) if count == 1 else 8 if count <= 16 else 2)
        ]
        touched = float(np.mean([len(np.unique(ids.numpy())) for ids, _ in routes]))

        def call(turn: int, x: torch.Tensor = x, routes: list[tuple[torch.Tensor, ...]] = routes) -> object:
            return layer.forward(x, *routes[turn % len(routes)])

        yield Case(
            "experts",
            fmt,
            f"{shape.name} {shape.hidden}/{shape.intermediate}, {layer.experts} experts",
            mode,
            count,
            touched * layer.nbytes / layer.experts,
            6.0 * shape.hidden * shape.intermediate * shape.top * count,
            call,
        )


def linear_cases(team: Team, fmt: Format, mode: Mode, tokens: list[int], memory: float) -> Iterator[Case]:
    """One projection, in copies enough that they don't stay in the caches."""
    raw, scale = random_matrix(fmt, LINEAR_ROWS, LINEAR_COLS)

    def make() -> Linear:
        return Linear(team, fmt, raw, scale, rows=LINEAR_ROWS, cols=LINEAR_COLS, mode=mode)

    first = make()
    copies = [first, *(make() for _ in range(max(1, int(memory // first.nbytes) - 1)))]
    for count in tokens:
        x, out = torch.randn(count, LINEAR_COLS), torch.empty(count, LINEAR_ROWS)

        def call(turn: int, x: torch.Tensor = x, out: torch.Tensor = out) -> object:
            return copies[turn % len(copies)].into(out, x)

        yield Case(
            "linear",
            fmt,
            f"{LINEAR_ROWS} x {LINEAR_COLS}",
            mode,
            count,
            first.nbytes,
            2.0 * LINEAR_ROWS * LINEAR_COLS * count,
            call,
        )


def attention_cases(team: Team, contexts: list[int]) -> Iterator[Case]:
    """One new token over a long history: grouped (32 query and 8 key heads) and latent (128 heads)."""
    heads, kv_heads, dim, latent, value = 32, 8, 128, 576, 512
    for context in contexts:
        batch = make_batch([([0], context - 1, PageTable([(0, context)]), False)])
        cache, keys = torch.randn(2, kv_heads, context, dim), torch.randn(context, latent)
        qkv, new = torch.randn(1, (heads + 2 * kv_heads) * dim), torch.randn(1, latent)
        queries = torch.randn(1, 128 * latent)
        by_groups, by_latent = plan.Plan(team), plan.Plan(team)
        shape = plan.AttentionShape(heads, kv_heads, dim)
        plan.attend(shape, Rope(dim, 1e4, interleaved=False), by_groups.given(qkv.shape[1]), cache)
        wide, narrow = by_latent.given(128 * latent), by_latent.given(latent)
        plan.attend_latent(plan.LatentShape(128, value, 0.1), wide, narrow, keys)

        def grouped(_: int, a: tuple[plan.Plan, Batch, torch.Tensor] = (by_groups, batch, qkv)) -> object:
            a[0].run(a[1].step, a[2])
            return None

        def absorbed(
            _: int, a: tuple[plan.Plan, Batch, torch.Tensor, torch.Tensor] = (by_latent, batch, queries, new)
        ) -> object:
            a[0].run(a[1].step, a[2], a[3])
            return None

        yield Case(
            "attention",
            "f32",
            f"grouped {heads}/{kv_heads} x {dim}, {context} tokens",
            "exact",
            1,
            cache.nbytes,
            4.0 * heads * dim * context,
            grouped,
        )
        yield Case(
            "attention",
            "f32",
            f"latent 128 x {latent}/{value}, {context} tokens",
            "exact",
            1,
            keys.nbytes,
            2.0 * 128 * (latent + value) * context,
            absorbed,
        )


def fast_error(team: Team, fmt: Format) -> float:
    """Relative root-mean-square difference of the fast mode's outputs from the exact mode's."""
    rows, cols = 512, 2048
    raw, scale = random_matrix(fmt, rows, cols)
    x = torch.randn(64, cols)
    exact, fast = (
        Linear(team, fmt, raw, scale, rows=rows, cols=cols, mode=mode)(x) for mode in ("exact", "fast")
    )
    return float((fast - exact).norm() / exact.norm())
