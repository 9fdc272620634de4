"""CPU kernels for torch tensors: a pinned thread team, quantised linears and mixture-of-experts layers.

A thin layer over the native extension ``engine._csrc``. Weights are packed when a layer is made or an expert is
loaded, so the source bytes (often a memory-mapped checkpoint) are not needed afterwards. All calls release the
interpreter lock; calls that use the same team wait for each other.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from engine import _csrc

Format: TypeAlias = Literal[
    "f32",
    "bf16",
    "fp8_block128",
    "fp8_channel",
    "mxfp8",
    "mxfp4",
    "int8",
    "int4",
    "int4_g32",
    "int4_g128",
    "q4_0",
    "q4_1",
    "q8_0",
    "q4_k",
    "q5_k",
    "q6_k",
]
Mode: TypeAlias = Literal["exact", "fast"]
Store: TypeAlias = Literal["int8", "int8_g32", "int4", "int4_g32"]
"""Integer formats that are made at load, with one scale a row or (g32) one for 32 columns."""
Array: TypeAlias = torch.Tensor | NDArray[np.generic]

ISA_VARIABLE = "KT_CPU_ISA"


def available_isas() -> tuple[str, ...]:
    """Kernel variants that this machine can run, lowest first, out of scalar, avx2, avx512, avx512_bf16, amx."""
    return tuple(_csrc.available_isas())


def active_isa(environ: Mapping[str, str] | None = None) -> str:
    """The variant that new teams use: the highest available, or the one that ``KT_CPU_ISA`` names.

    Raises:
        ValueError: ``KT_CPU_ISA`` names a variant that does not exist or that this machine cannot run.
    """
    wanted = (os.environ if environ is None else environ).get(ISA_VARIABLE, "").strip().lower()
    offered = available_isas()
    if not wanted:
        return offered[-1]
    if wanted not in offered:
        raise ValueError(
            f"{ISA_VARIABLE}={wanted} is not available here; this machine offers {', '.join(offered)}"
        )
    return wanted


def choose_cores(threads: int, cores: Sequence[tuple[int, int]], quota: float) -> list[tuple[int, int]]:
    """Choose the (CPU, NUMA node) of each thread of a team.

    Args:
        threads: Wanted number of threads; 0 means one per usable physical core, but no more than the control
            group's CPU quota can feed.
        cores: Usable physical cores as (CPU, node).
        quota: CPUs' worth of time that the control group grants; 0 means no limit.

    Returns:
        One entry per thread. With fewer threads than cores the nodes get equal shares, since each node brings its
        own memory bandwidth; with more, CPUs repeat. Entries of one node are adjacent.
    """
    if threads < 0:
        raise ValueError(f"threads must be 0 (automatic) or positive, not {threads}")
    if threads == 0:
        threads = min(len(cores), max(1, int(quota))) if quota > 0 else len(cores)
    by_node: dict[int, list[tuple[int, int]]] = {}
    for core in cores:
        by_node.setdefault(core[1], []).append(core)
    in_turn: list[tuple[int, int]] = []
    for depth in range(max(len(members) for members in by_node.values())):
        in_turn += [members[depth] for members in by_node.values() if depth < len(members)]
    return sorted((in_turn[i % len(in_turn)] for i in range(threads)), key=lambda core: (core[1], core[0]))


def default_mode(fmt: Format | Store) -> Mode:
    """How a format is computed with unless asked otherwise: ggml's with int8 activations, as llama.cpp does."""
    return "fast" if fmt.startswith("q") else "exact"


def choose_mode(fmt: Format | Store, numerics: str) -> Mode:
    """The mode for a format when "auto", "exact" or "fast" is asked for."""
    return default_mode(fmt) if numerics == "auto" else "fast" if numerics == "fast" else "exact"


class Team:
    """A persistent team of pinned threads. The calling thread works as one of them."""

    def __init__(self, threads: int = 0, cpus: Sequence[int] | None = None, isa: str | None = None) -> None:
        """Start the team.

        Args:
            threads: Number of threads; 0 means one per usable physical core (affinity mask, SMT siblings and the
                control group's quota taken into account).
            cpus: Logical CPUs to use instead, one thread each.
            isa: Kernel variant; by default `active_isa()`.

        Raises:
            ValueError: A number is out of range or the variant is not available.
            RuntimeError: The system refused to start the threads.
        """
        if cpus is None:
            cores = choose_cores(threads, _csrc.usable_cores(), _csrc.cpu_quota())
        else:
            cores = sorted(((cpu, _csrc.node_of_cpu(cpu)) for cpu in cpus), key=lambda core: core[1])
            if threads not in (0, len(cores)):
                raise ValueError(f"{threads} threads were asked for, but {len(cores)} CPUs were given")
        self._native = _csrc.Team(cores, isa or active_isa())

    @property
    def native(self) -> _csrc.Team:
        """The extension's own object."""
        return self._native

    @property
    def threads(self) -> int:
        """Number of threads, the caller included."""
        return len(self._native.cores)

    @property
    def cpus(self) -> tuple[int, ...]:
        """The logical CPU of each thread."""
        return tuple(cpu for cpu, _ in self._native.cores)

    @property
    def isa(self) -> str:
        """The kernel variant that this team runs."""
        return self._native.isa

    @property
    def notes(self) -> tuple[str, ...]:
        """What the system refused or what slows the team down, one sentence each."""
        return tuple(self._native.notes)

    def read_bandwidth(self, size: int = 1 << 30, passes: int = 5) -> float:
        """Measured memory read bandwidth of the team in bytes per second, best of `passes` over `size` bytes."""
        return _csrc.read_bandwidth(self._native, size, passes)

    def fma_peak(self, *, bf16: bool = False, seconds: float = 0.1) -> float:
        """Measured multiply-add peak in operations per second; 0 if the variant has no bf16 dot product."""
        return _csrc.fma_peak(self._native, bf16, seconds)

    def int8_peak(self, *, seconds: float = 0.1) -> float:
        """Measured peak of signed-byte products in operations per second; 0 if the variant has no vectors."""
        return _csrc.int8_peak(self._native, seconds)

    def multiply_alone(self, fmt: Format, mode: Mode, depth: int, rows: int) -> float:
        """Measured operations per second of a kernel by itself; ValueError if there is none for this depth."""
        return _csrc.multiply_alone(self._native, fmt, mode, depth, rows, 0.05)


class Linear:
    """``y = x @ W.T`` for one weight matrix in a checkpoint's own format.

    Numeric modes:
        exact: Weights keep their value. Activations stay float32; the ``avx512_bf16`` and ``amx`` variants may round
            them to bfloat16 for bf16, FP8 and mxfp8. Sums are float32. For few rows the formats of
            integers take activations as 16-bit integers with one scale per 32, an error of 1.6e-5 of the largest.
        fast: The formats of integers take activations as 8-bit integers with one scale per 32; bench/kernels.py
            measures the error. Other formats compute as in exact mode.
    """

    def __init__(
        self,
        team: Team,
        fmt: Format,
        weight: Array,
        scale: Array | None = None,
        *,
        rows: int,
        cols: int,
        mode: Mode = "exact",
        store: Store | None = None,
    ) -> None:
        """Pack a weight matrix.

        Args:
            team: Threads that pack and compute.
            fmt: Format of `weight`.
            weight: Raw row-major source bytes, uint8, `rows` x `cols` weights.
            scale: As the format has it: fp8_block128 float32 [ceil(rows/128), ceil(cols/128)], fp8_channel float32
                [rows], mxfp8 and mxfp4 uint8 [rows, cols/32], int4_g32 bfloat16 [rows, cols/32], int4_g128 float16
                [cols/128, rows]; the others have none apart.
            rows: Output features.
            cols: Input features; whole blocks of the format.
            mode: "exact" or "fast".
            store: Integer format to make of f32, bf16, fp8_block128 or fp8_channel weights; approximate, see
                `relative_error`.

        Raises:
            ValueError: Sizes, types or the format don't fit, or an FP8 weight or scale is not a finite number.
        """
        self.team, self.format, self.rows, self.cols, self.mode = team, fmt, rows, cols, mode
        self.native = _csrc.Linear(
            team.native, fmt, _bytes_of(weight), _scale_of(fmt, scale), rows, cols, mode, _stored(store)
        )

    @property
    def nbytes(self) -> int:
        """Bytes of the packed weights."""
        return self.native.nbytes

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply float32 activations [T, cols] to float32 [T, rows]."""
        out = torch.empty(x.shape[0], self.rows)
        self.into(out, x.contiguous())
        return out

    def into(self, out: torch.Tensor, x: torch.Tensor) -> None:
        """Multiply float32 activations [T, cols] and store the result in `out` [T, rows].

        Raises:
            ValueError: Shapes don't fit, or a tensor is not contiguous float32.
        """
        rows = x.shape[0]
        for tensor, width, name in ((x, self.cols, "x"), (out, self.rows, "out")):
            if (
                tensor.dtype is not torch.float32
                or not tensor.is_contiguous()
                or tensor.shape != (rows, width)
            ):
                raise ValueError(
                    f"{name} must be contiguous float32 [{rows}, {width}], not {tensor.dtype} {list(tensor.shape)}"
                )
        _csrc.linear_into(self.native, x.data_ptr(), rows, out.data_ptr())


class ExpertLayer:
    """The routed experts of one layer: ``y[t] = sum_j w[t,j] * down(silu(gate(x[t])) * up(x[t]))``.

    Numeric modes as for `Linear`. Equal inputs give equal bits, whatever the number of threads.
    """

    def __init__(
        self,
        team: Team,
        fmt: Format,
        experts: int,
        hidden: int,
        intermediate: int,
        *,
        mode: Mode = "exact",
        store: Store | None = None,
    ) -> None:
        """Reserve a layer; memory is taken by the experts that are loaded.

        Raises:
            ValueError: The format is unknown, cannot be stored as asked, or a size is out of range.
        """
        self.team, self.format = team, fmt
        self.experts, self.hidden, self.intermediate = experts, hidden, intermediate
        self.native = _csrc.Experts(team.native, fmt, experts, hidden, intermediate, mode, _stored(store))

    @property
    def nbytes(self) -> int:
        """Bytes of the experts loaded so far."""
        return self.native.nbytes

    def load(  # noqa: PLR0917 (three matrices and their scales, in the order of the checkpoint)
        self,
        expert: int,
        gate: Array,
        up: Array,
        down: Array,
        gate_scale: Array | None = None,
        up_scale: Array | None = None,
        down_scale: Array | None = None,
    ) -> None:
        """Pack one expert; loading it again replaces it.

        Args:
            expert: Its index.
            gate: Raw row-major bytes [intermediate, hidden], uint8.
            up: As `gate`.
            down: Raw row-major bytes [hidden, intermediate], uint8.
            gate_scale: As for `Linear`.
            up_scale: As `gate_scale`.
            down_scale: As `gate_scale`.

        Raises:
            ValueError: Sizes or types don't fit, or an FP8 weight or scale is not a finite number.
        """
        self.native.load(
            expert,
            _bytes_of(gate),
            _bytes_of(up),
            _bytes_of(down),
            _scale_of(self.format, gate_scale),
            _scale_of(self.format, up_scale),
            _scale_of(self.format, down_scale),
        )

    def forward(self, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """Run the routed experts.

        Args:
            x: float32 [T, hidden].
            ids: int32 [T, k] expert of each token's choices; negative means computed elsewhere.
            weights: float32 [T, k] weight of each choice.

        Returns:
            float32 [T, hidden], zero for a token with no expert here.

        Raises:
            ValueError: Shapes or types don't fit, or an id names an expert that is not loaded.
        """
        tokens, k = ids.shape
        x, ids, weights = x.contiguous(), ids.contiguous(), weights.contiguous()
        for tensor, kind, shape, name in (
            (x, torch.float32, (tokens, self.hidden), "x"),
            (ids, torch.int32, (tokens, k), "ids"),
            (weights, torch.float32, (tokens, k), "weights"),
        ):
            if tensor.dtype is not kind or not tensor.is_contiguous() or tensor.shape != shape:
                raise ValueError(
                    f"{name} must be contiguous {kind} {list(shape)}, not {tensor.dtype} {list(tensor.shape)}"
                )
        out = torch.empty(tokens, self.hidden)
        _csrc.experts_into(
            self.native, x.data_ptr(), tokens, ids.data_ptr(), weights.data_ptr(), k, out.data_ptr()
        )
        return out


def relative_error(linear: Linear, values: torch.Tensor) -> float:
    """Root-mean-square error of the stored weights over the root-mean-square of the true ones.

    Args:
        linear: A matrix, perhaps made with ``store``.
        values: What it stands for, float32 [rows, cols].
    """
    miss = 0.0
    for begin in range(0, linear.cols, 256):
        # Unit vectors read the weights out; they are exact as 8-bit activations, too. Few at a time: many rows may
        # go through bfloat16.
        unit = torch.zeros(min(256, linear.cols - begin), linear.cols)
        unit[:, begin:].fill_diagonal_(1)
        read = torch.cat([linear(unit[at : at + 4]) for at in range(0, len(unit), 4)])
        miss += float((read.T - values[:, begin : begin + 256]).double().square().sum())
    return math.sqrt(miss / max(float(values.double().square().sum()), 1e-300))


def _stored(store: Store | None) -> str | None:
    return "q8_0" if store == "int8_g32" else store


def _bytes_of(weight: Array) -> NDArray[np.uint8]:
    if isinstance(weight, torch.Tensor):
        flat = weight.detach().contiguous()
        # numpy has no bfloat16 or float8: any element type is passed on as its bytes.
        array: NDArray[np.uint8] = flat.reshape(-1).view(torch.uint8).numpy()
        return array
    return np.ascontiguousarray(weight).reshape(-1).view(np.uint8)


def _scale_of(fmt: Format, scale: Array | None) -> NDArray[np.generic] | None:
    """Scales as the extension wants them: float32, or the bits of bfloat16, float16 (uint16) and E8M0 (uint8).

    Raises:
        ValueError: A tensor's type is not the one whose bits the format holds; they would be read as other numbers.
    """
    if scale is None:
        return None
    if isinstance(scale, torch.Tensor):
        flat = scale.detach().contiguous()
        wanted = {"int4_g32": torch.bfloat16, "int4_g128": torch.float16}.get(fmt)
        if wanted is not None:
            if flat.dtype not in {wanted, torch.uint16}:
                raise ValueError(f"scales of {fmt} must be {wanted}, not {flat.dtype}")
            return flat.view(torch.int16).numpy().view(np.uint16)
        if fmt in {"mxfp4", "mxfp8"}:
            return flat.view(torch.uint8).numpy()
        return flat.float().numpy()
    array = np.ascontiguousarray(scale)
    if array.dtype == np.float16 and fmt != "int4_g128":
        raise ValueError(f"scales of {fmt} cannot be float16")
    if array.dtype.itemsize == 2:
        return array.view(np.uint16)
    return array if array.dtype == np.uint8 else array.astype(np.float32, copy=False)
