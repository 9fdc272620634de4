"""What of a machine a measurement depends on, as a few facts and as one short text.

Load, free memory, clocks and driver versions are left out: they change from minute to minute, or change the speed by
little.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping

from kt_tui.hardware.machine import Gpu, Machine

_GIB = 1 << 30
_DIGITS = 16

_WORDS = {
    "cpu": "processor",
    "sockets": "sockets",
    "cores": "usable cores",
    "isa": "instruction sets",
    "memory_gib": "GiB of memory",
    "numa_nodes": "NUMA nodes to use",
    "gpus": "GPUs",
}


def machine_facts(machine: Machine) -> dict[str, str | int]:
    """The facts, by name; one that is not known is left out.

    Memory is the smaller of what is installed and what may be used, in GiB: rounded to 4 above 64, since kernels
    differ in how much of it they keep for themselves.
    """
    cpu, memory = machine.cpu, machine.memory
    sizes = [size for size in (memory.total, memory.limit) if size]
    facts: dict[str, str | int | None] = {
        "cpu": cpu.model or cpu.arch,
        "sockets": cpu.sockets,
        "cores": cpu.usable_physical_cores,
        "isa": " ".join(sorted(cpu.isa)) or None,
        "memory_gib": _rounded(min(sizes)) if sizes else None,
        "numa_nodes": len(machine.numa.pool_nodes) or None,
        "gpus": _gpus(machine.gpus),
    }
    return {name: value for name, value in facts.items() if value is not None}


def fingerprint(machine: Machine) -> str:
    """16 hexadecimal digits that are equal for machines on which a measurement means the same."""
    return fingerprint_of_facts(machine_facts(machine))


def fingerprint_of_facts(facts: Mapping[str, object]) -> str:
    """The fingerprint of the facts of a machine."""
    text = json.dumps(dict(sorted(facts.items())), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]


def differences(before: Mapping[str, object], now: Mapping[str, object]) -> list[str]:
    """What differs between the facts of two machines, in words: ``16 usable cores, now 64``; nothing without facts."""
    found = []
    if not before or not now:
        return []
    for name, words in _WORDS.items():
        if before.get(name) == now.get(name):
            continue
        if name == "isa":
            found.append(_isa_difference(str(before.get(name, "")), str(now.get(name, ""))))
        else:
            old, new = before.get(name, "unknown"), now.get(name, "unknown")
            found.append(f"{words} {old}, now {new}" if isinstance(old, str) else f"{old} {words}, now {new}")
    return found


def _isa_difference(before: str, now: str) -> str:
    gone = sorted(set(before.split()) - set(now.split()))
    new = sorted(set(now.split()) - set(before.split()))
    parts = [f"without {', '.join(gone)}"] if gone else []
    parts += [f"with {', '.join(new)}"] if new else []
    return f"instruction sets now {' and '.join(parts)}"


def _rounded(size: int) -> int:
    gib = size / _GIB
    return round(gib) if gib < 64 else 4 * round(gib / 4)


def _gpus(gpus: tuple[Gpu, ...]) -> str:
    """``2x NVIDIA GeForce RTX 5090 (32 GiB)``; ``none`` without any."""
    kinds = Counter(
        f"{gpu.name or 'GPU'} ({round(gpu.memory_total / _GIB)} GiB)"
        if gpu.memory_total
        else gpu.name or "GPU"
        for gpu in gpus
    )
    return ", ".join(f"{count}x {kind}" for kind, count in sorted(kinds.items())) or "none"
