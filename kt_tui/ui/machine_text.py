"""A machine in a few rows of words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.content import Content

from kt_tui.ui.figures import UNKNOWN, plural, size
from kt_tui.ui.widgets.bars import Part, bar_content

if TYPE_CHECKING:
    from kt_tui.hardware import Machine
    from kt_tui.monitor import MemorySample, Snapshot

BAR_WIDTH = 24


def short_name(machine: Machine) -> str:
    """The machine in one phrase: processor, sockets, GPUs."""
    name = (machine.cpu.model or "unknown processor").replace("(R)", "").replace("(TM)", "")
    name = name.split(" @ ")[0].split(" with ")[0].removesuffix(" Processor").removesuffix(" CPU").strip()
    sockets = f" x{machine.cpu.sockets}" if (machine.cpu.sockets or 1) > 1 else ""
    gpus = [gpu.name or "GPU" for gpu in machine.gpus]
    gpu = f" + {len(gpus)}x {gpus[0]}" if len(gpus) > 1 else f" + {gpus[0]}" if gpus else ""
    return f"{name}{sockets}{gpu}"


def memory_parts(memory: MemorySample) -> list[Part]:
    """Used and page cache; what is left is free."""
    cache = min(memory.page_cache or 0, max(memory.total - memory.used, 0))
    return [Part("used", memory.used, "█", "$cpu"), Part("page cache", cache, "▒", "$cache")]


def memory_words(memory: MemorySample) -> str:
    """The parts in words."""
    cache = "" if memory.page_cache is None else f", {size(memory.page_cache)} page cache"
    return f"{size(memory.used)} used of {size(memory.total)}{cache}"


def machine_rows(machine: Machine, snapshot: Snapshot | None) -> list[tuple[str, str | Content]]:
    """Rows for Home: processor, cores, instructions, memory, NUMA, GPUs."""
    cpu = machine.cpu
    rows: list[tuple[str, str | Content]] = [("Processor", cpu.model or UNKNOWN)]
    rows.append(("Cores", _cores(machine)))
    rows.append(("Instructions", _instructions(machine)))
    rows.extend(_memory(machine, snapshot))
    nodes = machine.numa.nodes
    if len(nodes) > 1:
        usable = sum(1 for node in nodes if node.usable)
        rows.append(("NUMA", f"{plural(len(nodes), 'node')}, {usable} usable"))
    else:
        rows.append(("NUMA", "one node: all memory is equally near"))
    rows.extend(_gpus(machine))
    rows.extend(_findings(machine))
    return rows


def _findings(machine: Machine) -> list[tuple[str, str | Content]]:
    """How much the doctor has to say, if anything."""
    from kt_tui.hardware.checks import count_findings

    errors, warnings = count_findings(machine)
    counts = [plural(count, word) for count, word in ((errors, "error"), (warnings, "warning")) if count]
    return [("Doctor", f"{', '.join(counts)}: see kt-tui doctor")] if counts else []


def _cores(machine: Machine) -> str:
    cpu = machine.cpu
    if cpu.usable_physical_cores is None:
        return UNKNOWN
    words = f"{cpu.usable_physical_cores} usable"
    if cpu.physical_cores is not None and cpu.physical_cores != cpu.usable_physical_cores:
        words += f" of {cpu.physical_cores}"
    words += " physical"
    if cpu.logical_cpus is not None:
        words += f", {plural(cpu.logical_cpus, 'logical CPU')}"
    if cpu.sockets is not None and cpu.sockets > 1:
        words += f", {plural(cpu.sockets, 'socket')}"
    return words


_SHOWN_ISA = (
    ("amx_tile", "AMX"),
    ("avx512_bf16", "AVX-512 BF16"),
    ("avx512_vnni", "VNNI"),
    ("avx512f", "AVX-512"),
    ("avx2", "AVX2"),
)


def _instructions(machine: Machine) -> str:
    isa = set(machine.cpu.isa)
    found = [name for flag, name in _SHOWN_ISA if flag in isa]
    if "AMX" in found and machine.cpu.amx_usable is False:
        found[found.index("AMX")] = "AMX (refused by the kernel)"
    return ", ".join(found) or "no vector extension that helps"


def _memory(machine: Machine, snapshot: Snapshot | None) -> list[tuple[str, str | Content]]:
    memory = machine.memory
    rows: list[tuple[str, str | Content]] = []
    if snapshot is not None and snapshot.memory is not None:
        live = snapshot.memory
        rows.append(("Memory", Content.assemble(bar_content(memory_parts(live), live.total, BAR_WIDTH))))
        rows.append(("", memory_words(live)))
    else:
        rows.append(("Memory", f"{size(memory.available)} available of {size(memory.total)}"))
    if memory.limit is not None:
        rows.append(("", f"limited to {size(memory.limit)} by the control group"))
    return rows


def _gpus(machine: Machine) -> list[tuple[str, str | Content]]:
    if not machine.gpus:
        return [("GPU", "none (no NVIDIA driver): everything runs on the CPU")]
    return [(f"GPU {gpu.index}", f"{gpu.name or UNKNOWN}, {size(gpu.memory_total)}") for gpu in machine.gpus]
