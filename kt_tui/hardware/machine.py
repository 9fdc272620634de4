"""The Machine: what a computer is and what of it this process may use.

All sizes are bytes. A fact that could not be read is ``None`` and has a sentence in ``notes``; nothing here is
guessed. Attribute names are the keys of the JSON document that ``kt-tui hardware --json`` prints.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kt_tui.hardware.caches import Cache
from kt_tui.hardware.disks import Disk
from kt_tui.hardware.document import decode
from kt_tui.hardware.surroundings import Accelerator, Surroundings

NOWHERE = Surroundings()


@dataclass(frozen=True)
class Core:
    """One physical core: its package (socket) and the logical CPUs (SMT siblings) that share it.

    ``efficient`` marks the slower kind of a hybrid processor.
    """

    package: int
    cpus: tuple[int, ...]
    efficient: bool = False


@dataclass(frozen=True)
class Cpu:
    """The processors.

    Attributes:
        sockets: Packages with at least one CPU online.
        physical_cores: Cores online; keyed by package and core, so that equal core numbers of two sockets count
            twice.
        logical_cpus: CPUs online (with SMT, several a core).
        usable_cpus: Ids that affinity and cpuset leave to this process.
        usable_logical_cpus: How many CPUs' worth of time may be used: ``usable_cpus`` bounded by the quota.
        usable_physical_cores: Cores with a usable CPU, bounded by the quota; the default number of threads.
        quota: CPUs' worth of time granted by the control group; ``None`` without a limit.
        smt: Threads a core, at most.
        isa: Instruction-set extensions that matter to inference, in the kernel's spelling.
        amx_usable: Whether the kernel grants AMX tile state (probed, because hypervisors list AMX and refuse it).
        topology: Where the core count comes from: ``sysfs``, ``cpuinfo`` or ``assumed``.
        efficient_cores: How many of ``physical_cores`` are of the slower kind of a hybrid processor.
        usable_performance_cores: How many of ``usable_physical_cores`` are of the faster kind.
    """

    model: str | None = None
    vendor: str | None = None
    arch: str | None = None
    sockets: int | None = None
    physical_cores: int | None = None
    logical_cpus: int | None = None
    usable_physical_cores: int | None = None
    usable_logical_cpus: int | None = None
    usable_cpus: tuple[int, ...] = ()
    quota: float | None = None
    smt: int | None = None
    isa: tuple[str, ...] = ()
    amx_usable: bool | None = None
    topology: str | None = None
    cores: tuple[Core, ...] = ()
    efficient_cores: int | None = None
    usable_performance_cores: int | None = None
    caches: tuple[Cache, ...] = ()


@dataclass(frozen=True)
class NumaNode:
    """One NUMA node.

    Attributes:
        kind: ``cpu+memory``, ``cpu only``, ``memory only`` (CXL, persistent memory) or ``gpu memory`` (a GPU's own,
            which the kernel of a coherent machine shows as a node).
        usable: Whether this process may run on it (or, without CPUs, take memory from it).
        reason: Why it is not usable; ``None`` if it is.
        usable_cpus: Those of ``cpus`` that this process may run on.
        distances: Relative cost of reaching each online node, in the order of their ids.
    """

    id: int
    cpus: tuple[int, ...] = ()
    memory_total: int | None = None
    memory_free: int | None = None
    usable: bool = True
    reason: str | None = None
    kind: str = "cpu+memory"
    usable_cpus: tuple[int, ...] = ()
    distances: tuple[int, ...] = ()


@dataclass(frozen=True)
class Numa:
    """The NUMA nodes; a machine without them has one node, ``synthetic``, that holds everything.

    Attributes:
        balancing: Whether the kernel moves pages between nodes by itself.
        policy_allowed: Whether this process may bind memory to nodes (containers often refuse it); probed.
    """

    nodes: tuple[NumaNode, ...] = ()
    synthetic: bool = False
    balancing: bool | None = None
    policy_allowed: bool | None = None

    @property
    def pool_nodes(self) -> tuple[NumaNode, ...]:
        """Nodes that deserve a thread pool: usable, with CPUs and memory (with CPUs only, if none has both)."""
        with_cpus = tuple(node for node in self.nodes if node.usable and node.cpus)
        return tuple(node for node in with_cpus if node.memory_total != 0) or with_cpus


@dataclass(frozen=True)
class HugePages:
    """Preallocated huge pages of the default size (``size`` bytes each) and the transparent ones' mode.

    ``reserved_bytes`` is what huge pages of all sizes take away from everything else.
    """

    size: int | None = None
    total: int | None = None
    free: int | None = None
    transparent: str | None = None
    reserved_bytes: int | None = None


@dataclass(frozen=True)
class Memory:
    """Main memory in bytes.

    Attributes:
        total: Installed, as the kernel sees it.
        free: Not used at all.
        available: What a new process can take without swapping: the kernel's estimate, bounded by ``limit``.
        available_host: The kernel's estimate alone.
        limit: The smallest memory limit of the control groups above this process; ``None`` without one.
        used_in_limit: What counts against that limit now, reclaimable file pages left out.
        page_cache: File pages in memory; shared memory is not among them.
        shared: ``/dev/shm`` and other shared memory; it is given back only by its owners.
        used: What programs and the kernel hold: neither free, nor page cache, nor huge pages.
    """

    total: int | None = None
    free: int | None = None
    available: int | None = None
    available_host: int | None = None
    limit: int | None = None
    used_in_limit: int | None = None
    page_cache: int | None = None
    shared: int | None = None
    used: int | None = None
    swap_total: int | None = None
    swap_free: int | None = None
    hugepages: HugePages = HugePages()


@dataclass(frozen=True)
class Pcie:
    """The PCI Express link: generation and lanes now, and at best."""

    gen: int | None = None
    width: int | None = None
    max_gen: int | None = None
    max_width: int | None = None


@dataclass(frozen=True)
class GpuProcess:
    """A process on a GPU.

    ``local`` is ``False`` when no such process exists here: in a container the driver names the host's ids. Nobody
    may send a signal to a process on the strength of this list.
    """

    pid: int
    used: int | None = None
    local: bool | None = None


@dataclass(frozen=True)
class Gpu:
    """One GPU (or MIG instance) that a CUDA program started now would see.

    Attributes:
        index: Position by PCI address, as ``nvidia-smi`` numbers it.
        cuda_index: Position within ``CUDA_VISIBLE_DEVICES``: what the program calls it.
        memory_reserved: Taken by the driver; ``None`` where the driver counts it as used.
        mig_parent: UUID of the whole GPU, when this is an instance of it.
        unavailable: Field name -> the driver's own name of the error, for fields that it refused.
    """

    index: int
    uuid: str | None = None
    name: str | None = None
    pci_bus_id: str | None = None
    cuda_index: int | None = None
    memory_total: int | None = None
    memory_free: int | None = None
    memory_used: int | None = None
    memory_reserved: int | None = None
    compute_capability: tuple[int, ...] | None = None
    utilization_gpu: float | None = None
    utilization_memory: float | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    temperature_c: float | None = None
    numa_node: int | None = None
    pcie: Pcie = Pcie()
    mig_parent: str | None = None
    mig_profile: str | None = None
    processes: tuple[GpuProcess, ...] = ()
    unavailable: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class Driver:
    """The NVIDIA driver: version of its library, CUDA release that it does, or the error that the library gave.

    ``module`` is the version of the kernel module that is loaded.
    """

    version: str | None = None
    cuda: str | None = None
    error: str | None = None
    module: str | None = None


@dataclass(frozen=True)
class ResourceLimit:
    """A ulimit; ``None`` means unlimited."""

    soft: int | None = None
    hard: int | None = None


@dataclass(frozen=True)
class ControlGroup:
    """Limits of the control groups above this process, the tightest of each; ``None`` means no limit."""

    version: int | None = None
    cpu_quota: float | None = None
    memory_limit: int | None = None
    cpus: tuple[int, ...] | None = None
    memory_nodes: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Limits:
    """What the system lets this process have.

    Attributes:
        nofile: Open files.
        memlock: Bytes that may be locked in memory (pinned staging buffers need it).
        shm_size: Bytes that ``/dev/shm`` can hold.
        affinity: Logical CPUs that the scheduler may put this process on.
        memory_nodes: NUMA nodes that memory may come from.
        address_space: Bytes that may be mapped; a limit here refuses large models whatever memory is free.
    """

    nofile: ResourceLimit | None = None
    memlock: ResourceLimit | None = None
    address_space: ResourceLimit | None = None
    shm_size: int | None = None
    affinity: tuple[int, ...] | None = None
    memory_nodes: tuple[int, ...] | None = None
    cgroup: ControlGroup = ControlGroup()


@dataclass(frozen=True)
class Machine:
    """Everything that planning and the panel know of a computer."""

    cpu: Cpu = Cpu()
    numa: Numa = Numa()
    memory: Memory = Memory()
    gpus: tuple[Gpu, ...] = ()
    gpus_hidden: tuple[Gpu, ...] = ()
    driver: Driver = Driver()
    limits: Limits = Limits()
    accelerators: tuple[Accelerator, ...] = ()
    disks: tuple[Disk, ...] = ()
    system: Surroundings = NOWHERE
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The document of ``kt-tui hardware --json``: plain JSON types only."""
        document: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(self)))
        return document


def machine_from_json(document: object) -> Machine:
    """Read a document of :meth:`Machine.to_json` back, from this version or another.

    Unknown keys are ignored; a value of the wrong type becomes ``None`` (or is left out of a list) with a note.

    Raises:
        KtError: The document is not a JSON object with a machine in it.
    """
    from kt_tui.errors import KtError

    if not isinstance(document, Mapping) or not any(
        key in document for key in ("cpu", "memory", "numa", "gpus")
    ):
        raise KtError(
            "this is no machine document: it must be a JSON object as printed by `kt-tui hardware --json`, "
            "with `cpu`, `numa`, `memory` and `gpus`"
        )
    problems: list[str] = []
    machine = decode(Machine, document, "machine", problems)
    notes = tuple(dict.fromkeys((*machine.notes, *problems)))
    return dataclasses.replace(machine, notes=notes)
