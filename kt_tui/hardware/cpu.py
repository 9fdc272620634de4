"""The processors: sockets, physical cores, SMT siblings, and which of them this process may use."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from kt_tui.hardware.caches import efficient_cpus, read_caches
from kt_tui.hardware.files import SystemFiles, parse_cpu_list, whole_number
from kt_tui.hardware.isa import amx_permission, known_extensions
from kt_tui.hardware.machine import ControlGroup, Core, Cpu
from kt_tui.text import one_line

SYSFS = "/sys/devices/system/cpu"


@dataclass(frozen=True)
class CpuInfo:
    """``/proc/cpuinfo``: one mapping a logical CPU, by its number."""

    blocks: Mapping[int, Mapping[str, str]]
    common: Mapping[str, str]

    def first(self, *names: str) -> str | None:
        """The first non-empty value of any of these keys, in any block."""
        for fields in (*self.blocks.values(), self.common):
            for name in names:
                if fields.get(name):
                    return fields[name]
        return None

    @property
    def flags(self) -> frozenset[str]:
        """Extensions that every CPU lists (``flags`` on x86, ``Features`` on Arm)."""
        listed = [
            fields.get("flags") or fields.get("features") for fields in (*self.blocks.values(), self.common)
        ]
        sets = [frozenset(text.lower().split()) for text in listed if text]
        return frozenset.intersection(*sets) if sets else frozenset()


def parse_cpuinfo(text: str | None) -> CpuInfo:
    """Parse ``/proc/cpuinfo``; keys in lower case. Lines outside a CPU's block (Arm boards) go to ``common``."""
    blocks: dict[int, dict[str, str]] = {}
    common: dict[str, str] = {}
    current = common
    for line in (text or "").splitlines():
        name, separator, value = line.partition(":")
        key = name.strip().lower()
        if not line.strip():
            current = common
        elif separator and key == "processor" and (number := whole_number(value)) is not None:
            current = blocks.setdefault(number, {})
        elif separator and key:
            current.setdefault(key, value.strip())
    return CpuInfo(blocks, common)


def cores_from_sysfs(files: SystemFiles, info: CpuInfo, cpus: tuple[int, ...]) -> tuple[Core, ...] | None:
    """Physical cores by the kernel's topology files; ``None`` if they are missing for any CPU.

    Lists of siblings count first, since core numbers may repeat within a package; without them (package, core).
    """
    groups: dict[tuple[int, ...], list[int]] = {}
    packages: dict[tuple[int, ...], int] = {}
    for cpu in cpus:
        folder = f"{SYSFS}/cpu{cpu}/topology"
        listed = files.text(f"{folder}/core_cpus_list") or files.text(f"{folder}/thread_siblings_list")
        siblings, core = parse_cpu_list(listed), files.number(f"{folder}/core_id")
        package = files.number(f"{folder}/physical_package_id")
        if package is None:
            package = whole_number(info.blocks.get(cpu, {}).get("physical id"))
        package = max(0, package or 0)  # some Arm kernels write -1
        if siblings and cpu in siblings:
            key = siblings
        elif core is not None:
            key = (-1 - package, core)  # no list of siblings begins with a negative number
        else:
            return None
        groups.setdefault(key, []).append(cpu)
        packages.setdefault(key, package)
    cores = (Core(packages[key], tuple(members)) for key, members in groups.items())
    return tuple(sorted(cores, key=lambda core: core.cpus))


def cores_from_cpuinfo(info: CpuInfo, cpus: tuple[int, ...]) -> tuple[Core, ...] | None:
    """Physical cores keyed by (package, core id), since every socket numbers its cores from 0 again."""
    groups: dict[tuple[int, int], list[int]] = {}
    for cpu in cpus:
        fields = info.blocks.get(cpu, {})
        core = whole_number(fields.get("core id"))
        if core is None:
            return None
        package = whole_number(fields.get("physical id")) or 0
        groups.setdefault((package, core), []).append(cpu)
    return tuple(Core(package, tuple(members)) for (package, _), members in sorted(groups.items()))


def _online(files: SystemFiles, info: CpuInfo) -> tuple[int, ...]:
    listed = parse_cpu_list(files.text(f"{SYSFS}/online"))
    if listed:
        return listed
    if info.blocks:
        return tuple(sorted(info.blocks))
    folders = (name.removeprefix("cpu") for name in files.names(SYSFS) if name.startswith("cpu"))
    return tuple(sorted(number for text in folders if (number := whole_number(text)) is not None))


def _architecture(files: SystemFiles, info: CpuInfo) -> str | None:
    if text := (files.text("/proc/sys/kernel/arch") or "").strip():
        return text[:32]
    if files.live:
        return platform.machine() or None
    if info.first("vendor_id") and info.first("flags"):
        return "x86_64"
    return "aarch64" if info.first("features") and info.first("cpu implementer") else None


def _model(info: CpuInfo) -> str | None:
    name = info.first("model name", "hardware", "cpu model", "model")
    if name is None and (part := info.first("cpu part")):
        return f"Arm implementer {info.first('cpu implementer') or '?'} part {part}"
    return one_line(name) if name else None


def read_cpu(
    files: SystemFiles,
    group: ControlGroup,
    affinity: tuple[int, ...] | None,
    notes: list[str],
    ask_amx: Callable[[], bool | None] = amx_permission,
) -> Cpu:
    """Read the processors.

    Args:
        files: Where from.
        group: The control groups' limits.
        affinity: CPUs of the process's affinity mask; ``None`` if unknown.
        notes: Receives a sentence per fact that is missing or assumed.
        ask_amx: Probes the permission; only called on the running machine, when the CPU lists AMX.
    """
    info = parse_cpuinfo(files.text("/proc/cpuinfo"))
    online = _online(files, info)
    if not online:
        notes.append("cpu: n/a, neither /proc/cpuinfo nor /sys/devices/system/cpu lists a CPU")
    cores, topology = cores_from_sysfs(files, info, online), "sysfs"
    if cores is None:
        cores, topology = cores_from_cpuinfo(info, online), "cpuinfo"
    if cores is None:
        cores, topology = tuple(Core(0, (cpu,)) for cpu in online), "assumed"
        notes.append("cpu: no topology known; every logical CPU is assumed to be a physical core")
    sockets = len({core.package for core in cores}) or None
    if sockets and sockets > 1 and all(len(core.cpus) == 1 for core in cores) and len(cores) == sockets:
        notes.append(f"cpu: {sockets} sockets of one core each are a virtual topology, not real packages")

    slow = efficient_cpus(files, online)
    if slow is not None:
        cores = tuple(replace(core, efficient=slow.issuperset(core.cpus)) for core in cores)
        notes.append(
            f"cpu: a hybrid processor; {sum(core.efficient for core in cores)} of its {len(cores)} cores are of the "
            "slower, efficient kind"
        )
    usable = _usable(online, affinity, group, notes)
    ours = [core for core in cores if not usable.isdisjoint(core.cpus)]
    usable_cores = len(ours)
    quota = group.cpu_quota
    granted = len(usable) if quota is None else max(1, min(len(usable), int(quota)))
    if quota is not None and granted < len(usable):
        notes.append(f"cpu: a control group grants {quota:g} CPUs' worth of time")
    isa = known_extensions(info.flags)
    if online and not isa:
        notes.append("cpu: instruction-set extensions n/a, /proc/cpuinfo lists none that we know")
    return Cpu(
        model=_model(info),
        vendor=info.first("vendor_id", "cpu implementer"),
        arch=_architecture(files, info),
        sockets=sockets,
        physical_cores=len(cores) or None,
        logical_cpus=len(online) or None,
        usable_physical_cores=min(usable_cores, granted) if online else None,
        usable_logical_cpus=granted if online else None,
        usable_cpus=tuple(sorted(usable)),
        quota=quota,
        smt=max((len(core.cpus) for core in cores), default=None),
        isa=isa,
        amx_usable=_amx_usable(files, isa, bool(info.flags), ask_amx, notes),
        topology=topology if online else None,
        cores=cores,
        efficient_cores=sum(core.efficient for core in cores) if online else None,
        usable_performance_cores=min(sum(not core.efficient for core in ours), granted) if online else None,
        caches=read_caches(files, online, notes),
    )


def _usable(
    online: tuple[int, ...], affinity: tuple[int, ...] | None, group: ControlGroup, notes: list[str]
) -> frozenset[int]:
    usable = frozenset(online)
    for name, allowed in (("affinity mask", affinity), ("cpuset", group.cpus)):
        if allowed is None:
            continue
        narrowed = usable.intersection(allowed)
        if usable and not narrowed:
            notes.append(f"cpu: the {name} names no CPU that is online; ignored")
        elif narrowed != usable:
            notes.append(f"cpu: the {name} leaves {len(narrowed)} of {len(online)} logical CPUs")
            usable = narrowed
    return usable


def _amx_usable(
    files: SystemFiles, isa: tuple[str, ...], listed: bool, ask: Callable[[], bool | None], notes: list[str]
) -> bool | None:
    if "amx_tile" not in isa:
        return False if listed else None
    if not files.live:
        notes.append(
            "cpu: whether the kernel grants AMX is not known from files; it can only be asked on the machine"
        )
        return None
    granted = ask()
    if granted is False:
        notes.append(
            "cpu: AMX is present but not usable: the kernel or hypervisor refuses the permission for tile data"
        )
    elif granted is None:
        notes.append("cpu: AMX permission could not be probed")
    return granted
