"""Memory, swap, huge pages, NUMA nodes and what containers permit of them, limits."""

from __future__ import annotations

from kt_tui.hardware.checks.verdict import GIB, Check, error, gib, ok, skipped, warning
from kt_tui.hardware.machine import Machine

SMALL_MEMORY = 32 * GIB  # below, no large mixture of experts fits
TINY_MEMORY = 2 * GIB
SMALL_SHM = GIB
FEW_FILES = 1024


def check_memory(machine: Machine) -> list[Check]:
    """All of them."""
    return [
        _nodes(machine),
        _policy(machine),
        _balancing(machine),
        _memory(machine),
        _swap(machine),
        _huge_pages(machine),
        _limits(machine),
        _shared(machine),
    ]


def _nodes(machine: Machine) -> Check:
    nodes, pools = machine.numa.nodes, machine.numa.pool_nodes
    if not nodes:
        return skipped("numa", "no nodes are known")
    facts = f"{len(nodes)} node(s), {len(pools)} for thread pools"
    closed = [node for node in nodes if not node.usable]
    if closed:
        reasons = "; ".join(f"node {node.id}: {node.reason}" for node in closed[:8])
        return warning(
            "numa",
            f"{facts}; {reasons}",
            "docker run --cpuset-cpus=... --cpuset-mems=... with those nodes in, if they may be used",
        )
    if bare := [node for node in nodes if node.cpus and node.memory_total == 0]:
        ids = ", ".join(str(node.id) for node in bare)
        return warning(
            "numa", f"{facts}; node {ids} has CPUs but no memory", "put memory modules into that socket"
        )
    return ok("numa", facts)


def _policy(machine: Machine) -> Check:
    allowed = machine.numa.policy_allowed
    if len(machine.numa.nodes) < 2:
        return skipped("numa-binding", "a single node, so there is nothing to bind to")
    if allowed is None:
        return skipped(
            "numa-binding", "whether set_mempolicy and mbind are permitted can only be asked on the machine"
        )
    if allowed:
        return ok("numa-binding", "set_mempolicy and mbind are permitted")
    return warning(
        "numa-binding",
        "set_mempolicy and mbind are refused, so experts cannot be placed beside the cores that compute them",
        "docker run --cap-add SYS_NICE ... (or --security-opt seccomp=unconfined)",
    )


def _balancing(machine: Machine) -> Check:
    balancing = machine.numa.balancing
    if balancing is None or len(machine.numa.nodes) < 2:
        return skipped("numa-balancing", "of no concern here" if balancing is not None else "not known")
    if balancing:
        return warning(
            "numa-balancing",
            "on: the kernel unmaps pages to see who uses them, and moves those that engines have placed",
            "sudo sysctl kernel.numa_balancing=0",
        )
    return ok("numa-balancing", "off")


def _memory(machine: Machine) -> Check:
    memory = machine.memory
    if memory.available is None or memory.total is None:
        return skipped("memory", "not known")
    facts = f"{gib(memory.available)} available of {gib(memory.total)}"
    if memory.limit is not None:
        facts += f", limited by a control group to {gib(memory.limit)}"
    if memory.available < TINY_MEMORY:
        return error(
            "memory", f"{facts}: not enough for any model", "close other programs, or raise the limit"
        )
    if memory.available < SMALL_MEMORY:
        return warning(
            "memory", f"{facts}: enough for small models only", "free memory, raise the limit or add memory"
        )
    return ok("memory", facts)


def _swap(machine: Machine) -> Check:
    total, free = machine.memory.swap_total, machine.memory.swap_free
    if total is None or free is None:
        return skipped("swap", "not known")
    used = max(0, total - free)
    if total and used > max(GIB, total // 2):
        return warning(
            "swap",
            f"{gib(used)} of {gib(total)} in use: memory was short, and what comes back from there is slow",
            "close what is not needed, then: sudo swapoff -a && sudo swapon -a",
        )
    return ok(
        "swap",
        f"{gib(used)} of {gib(total)} in use" if total else "none, so a shortage ends a process at once",
    )


def _huge_pages(machine: Machine) -> Check:
    huge, total = machine.memory.hugepages, machine.memory.total
    idle = (huge.free or 0) * (huge.size or 0)
    if total and idle > total // 50:
        return warning(
            "huge-pages",
            f"{gib(idle)} are set aside as huge pages and unused; engines cannot have them",
            "sudo sysctl vm.nr_hugepages=0",
        )
    if huge.transparent == "never":
        return warning(
            "huge-pages",
            "transparent huge pages are off: weights are reached through many more page table entries",
            "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled",
        )
    if huge.transparent is None:
        return skipped("huge-pages", "not known")
    return ok("huge-pages", f"transparent: {huge.transparent}; {gib(idle)} set aside and unused")


def _limits(machine: Machine) -> Check:
    limits = machine.limits
    space, files = limits.address_space, limits.nofile
    if space is not None and space.soft is not None:
        return error(
            "limits",
            f"this process may map {gib(space.soft)} of addresses; larger models are refused whatever memory is free",
            "ulimit -v unlimited",
        )
    if files is not None and files.soft is not None and files.soft < FEW_FILES:
        raised = f"ulimit -n {min(files.hard or 65536, 65536)}"
        return warning("limits", f"{files.soft} open files: checkpoints with many shards need more", raised)
    if files is None:
        return skipped("limits", "not known")
    locked = limits.memlock
    words = "n/a" if locked is None else "unlimited" if locked.soft is None else gib(locked.soft)
    return ok(
        "limits", f"open files {'unlimited' if files.soft is None else files.soft}, locked memory {words}"
    )


def _shared(machine: Machine) -> Check:
    size = machine.limits.shm_size
    if size is None:
        return skipped("shared-memory", "the size of /dev/shm is not known")
    facts = f"/dev/shm holds {gib(size)}"  # noqa: S108 (a name in a sentence)
    if size >= SMALL_SHM:
        return ok("shared-memory", facts)
    if len(machine.gpus) > 1:
        return error(
            "shared-memory", f"{facts}: too small for NCCL between GPUs", "docker run --shm-size=16g ..."
        )
    return warning("shared-memory", f"{facts}: too small for several GPUs", "docker run --shm-size=16g ...")
