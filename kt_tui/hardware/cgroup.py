"""The limits of the control groups that this process is in (version 1, 2 and hybrid, nested).

A limit may sit in any group between the process's own and the root, so all of them are read and the tightest
counts. Sources: the kernel's ``admin-guide/cgroup-v1`` and ``admin-guide/cgroup-v2.rst``; cgroups(7).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath

from kt_tui.hardware.files import SystemFiles, parse_cpu_list, whole_number
from kt_tui.hardware.machine import ControlGroup

MOUNT = "/sys/fs/cgroup"
MAXIMUM_DEPTH = 64
UNLIMITED_V1 = 1 << 62  # version 1 writes "no limit" as the largest multiple of the page size below 2**63


@dataclass(frozen=True)
class Hierarchy:
    """Where one controller's files are: ``folders`` from the process's own group up to the root."""

    version: int
    folders: tuple[str, ...]


@dataclass(frozen=True)
class CgroupUsage:
    """Bytes that the tightest memory group counts as used, reclaimable file pages left out."""

    limit: int | None = None
    used: int | None = None


def parse_membership(text: str | None) -> dict[str, str]:
    """Controller -> path in ``/proc/self/cgroup``; version 2's one entry has the name ``""``."""
    found: dict[str, str] = {}
    for line in (text or "").splitlines():
        _, first, rest = line.partition(":")
        controllers, second, path = rest.partition(":")
        if not first or not second or not path.startswith("/"):
            continue
        for controller in controllers.split(","):
            found.setdefault(controller, path.removesuffix(" (deleted)"))
    return found


def parse_mounts(text: str | None) -> dict[str, tuple[str, str]]:
    """Controller -> (root of the mount within the hierarchy, mount point) in ``/proc/self/mountinfo``."""
    found: dict[str, tuple[str, str]] = {}
    for line in (text or "").splitlines():
        before, separator, after = line.partition(" - ")
        fields, tail = before.split(), after.split()
        if not separator or len(fields) < 5 or len(tail) < 3:
            continue
        root, point = fields[3], fields[4]
        controllers = {"cgroup2": [""], "cgroup": tail[2].split(",")}.get(tail[0], [])
        for controller in controllers:
            # The usual place wins over a second mount elsewhere (a container with the host's tree mounted).
            if controller not in found or not found[controller][1].startswith(MOUNT):
                found[controller] = (root, point)
    return found


def find_hierarchies(files: SystemFiles) -> dict[str, Hierarchy]:
    """The folders to look in for ``cpu``, ``memory`` and ``cpuset``; version 1 first where it has the controller."""
    membership = parse_membership(files.text("/proc/self/cgroup"))
    if not membership:  # no /proc/self/cgroup: the mounts' roots are still worth a look
        old = [name for name in ("cpu", "memory", "cpuset") if files.exists(f"{MOUNT}/{name}")]
        membership = dict.fromkeys(old, "/") if old else {"": "/"}
    mounts = parse_mounts(files.text("/proc/self/mountinfo"))
    found: dict[str, Hierarchy] = {}
    for controller in ("cpu", "memory", "cpuset"):
        if controller in membership:
            mount = mounts.get(controller, ("/", f"{MOUNT}/{controller}"))
            found[controller] = Hierarchy(1, _folders(membership[controller], *mount))
        elif "" in membership:
            found[controller] = Hierarchy(2, _folders(membership[""], *mounts.get("", ("/", MOUNT))))
    return found


def _folders(path: str, root: str, point: str) -> tuple[str, ...]:
    # Inside a container the mount may begin at the container's own group, and then so must the path.
    if root not in ("/", "") and (path == root or path.startswith(root.rstrip("/") + "/")):
        path = path[len(root.rstrip("/")) :] or "/"
    parts = [part for part in PurePosixPath(path).parts if part not in ("/", "..")][:MAXIMUM_DEPTH]
    return tuple("/".join([point, *parts[:depth]]) for depth in range(len(parts), -1, -1))


def parse_cpu_max(text: str | None) -> float | None:
    """CPUs granted by version 2's ``cpu.max`` (``QUOTA PERIOD``); ``None`` for ``max`` or nonsense."""
    fields = (text or "").split()
    quota = whole_number(fields[0]) if fields else None
    period = whole_number(fields[1]) if len(fields) > 1 else 100_000
    return quota / period if quota and period and quota > 0 and period > 0 else None


def _cpu_quota(files: SystemFiles, hierarchy: Hierarchy) -> float | None:
    quotas = []
    for folder in hierarchy.folders:
        if hierarchy.version == 2:
            quotas.append(parse_cpu_max(files.text(f"{folder}/cpu.max")))
        else:
            quota = files.number(f"{folder}/cpu.cfs_quota_us")
            period = files.number(f"{folder}/cpu.cfs_period_us")
            quotas.append(quota / period if quota and period and quota > 0 and period > 0 else None)
    return min((quota for quota in quotas if quota is not None), default=None)


def _memory(files: SystemFiles, hierarchy: Hierarchy) -> CgroupUsage:
    limit_name, used_name = (
        ("memory.max", "memory.current")
        if hierarchy.version == 2
        else ("memory.limit_in_bytes", "memory.usage_in_bytes")
    )
    tightest = CgroupUsage()
    for folder in hierarchy.folders:
        limit = files.number(f"{folder}/{limit_name}")
        if hierarchy.version == 2:
            # Above memory.high a group is slowed to a crawl, which is as good as a limit.
            slowed = files.number(f"{folder}/memory.high")
            limit = min((value for value in (limit, slowed) if value is not None), default=None)
        else:
            # What an ancestor outside this container's view leaves.
            outer = _stat(files.text(f"{folder}/memory.stat"), "hierarchical_memory_limit")
            limit = min((value for value in (limit, outer or None) if value is not None), default=None)
        if (
            limit is None
            or not 0 <= limit < UNLIMITED_V1
            or (tightest.limit is not None and limit >= tightest.limit)
        ):
            continue
        used = files.number(f"{folder}/{used_name}")
        if used is not None:
            reclaimable = _stat(files.text(f"{folder}/memory.stat"), "inactive_file", "total_inactive_file")
            used = max(0, used - reclaimable)
        tightest = CgroupUsage(limit, used)
    return tightest


def _stat(text: str | None, *names: str) -> int:
    values = dict(line.split(" ", 1) for line in (text or "").splitlines() if " " in line)
    return max((whole_number(values.get(name)) or 0 for name in names), default=0)


def _cpuset(files: SystemFiles, hierarchy: Hierarchy, kind: str) -> tuple[int, ...] | None:
    names = (
        [f"cpuset.{kind}.effective"]
        if hierarchy.version == 2
        else [f"cpuset.effective_{kind}", f"cpuset.{kind}"]
    )
    for (
        folder
    ) in hierarchy.folders:  # the own group's effective set already is what its ancestors leave to it
        for name in names:
            if ids := parse_cpu_list(files.text(f"{folder}/{name}")):
                return ids
    return None


def read_control_group(files: SystemFiles) -> tuple[ControlGroup, CgroupUsage]:
    """The tightest limits above this process, and what counts against the memory limit."""
    hierarchies = find_hierarchies(files)
    if not hierarchies:
        return ControlGroup(), CgroupUsage()
    usage = _memory(files, hierarchies["memory"]) if "memory" in hierarchies else CgroupUsage()
    cpuset = hierarchies.get("cpuset")
    group = ControlGroup(
        version=min(hierarchy.version for hierarchy in hierarchies.values()),
        cpu_quota=_cpu_quota(files, hierarchies["cpu"]) if "cpu" in hierarchies else None,
        memory_limit=usage.limit,
        cpus=_cpuset(files, cpuset, "cpus") if cpuset else None,
        memory_nodes=_cpuset(files, cpuset, "mems") if cpuset else None,
    )
    return group, usage
