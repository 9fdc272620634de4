"""The thread team of the CPU kernels, and the choice of its cores and instruction set."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from engine import _csrc
from engine.cpu_arrays import Format, Mode

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
    def isa_detail(self) -> str:
        """How this variant multiplies many rows, and the measured rates by which that was chosen, as one line."""
        return self._native.isa_detail

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

    def tile_loop(self, *, seconds: float = 0.1) -> float:
        """Like `fma_peak` for tiles whose operands come from the first-level cache; 0 if the variant has no tiles."""
        return _csrc.tile_loop(self._native, seconds)

    def int8_peak(self, *, seconds: float = 0.1) -> float:
        """Measured peak of signed-byte products in operations per second; 0 if the variant has no vectors."""
        return _csrc.int8_peak(self._native, seconds)

    def multiply_alone(self, fmt: Format, mode: Mode, depth: int, rows: int) -> float:
        """Measured operations per second of a kernel by itself; ValueError if there is none for this depth."""
        return _csrc.multiply_alone(self._native, fmt, mode, depth, rows, 0.05)
