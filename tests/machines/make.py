"""Writes the documents of this folder, as ``kt-tui hardware --json`` prints them on such machines.

Run ``python -m tests.machines.make`` after a change to what a Machine says; a test holds the documents to it.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from kt_tui.hardware import read_machine
from tests.machines.describe import (
    AMX,
    AVX512,
    GIB,
    NEOVERSE_V2,
    X86,
    Described,
    gpu_document,
    gpu_row,
    machine_files,
    write_files,
)

FOLDER = Path(__file__).parent
NO_DRIVER: dict[str, Any] = {"driver": {"error": "LIBRARY_NOT_FOUND"}, "env": {}, "gpus": []}

EPYC = Described(
    "AMD EPYC 9355 32-Core Processor",
    AVX512,
    2,
    32,
    2,
    1007 * GIB,
    985 * GIB,
    vendor="AuthenticAMD",
    l3_cores=4,
)
XEON = Described(
    "Intel(R) Xeon(R) Gold 6454S", AMX, 2, 32, 2, 1007 * GIB, 990 * GIB, l2=2 << 20, l3=60 << 20, l3_cores=32
)
DESKTOP = Described(
    "AMD Ryzen 9 9950X 16-Core Processor",
    AVX512,
    1,
    16,
    2,
    251 * GIB,
    236 * GIB,
    vendor="AuthenticAMD",
    swap=8 * GIB,
)
CONTAINER = Described(
    "AMD EPYC 7763 64-Core Processor", X86, 1, 64, 2, 503 * GIB, 300 * GIB, vendor="AuthenticAMD", shm="size=65536k",
    extra={
        "/proc/self/status": "Name:\tpython\nCpus_allowed_list:\t0-127\nMems_allowed_list:\t0\nSeccomp:\t2\n",
        "/proc/self/cgroup": "0::/\n",
        "/proc/self/mountinfo": "740 739 0:29 / /sys/fs/cgroup ro,nosuid - cgroup2 cgroup rw\n"
        "742 736 0:120 / /dev/shm rw,nosuid,nodev - tmpfs shm rw,size=65536k\n"
        "735 600 0:101 / / rw,relatime - overlay overlay rw\n",
        "/sys/fs/cgroup/cpu.max": "200000 100000\n",
        "/sys/fs/cgroup/memory.max": f"{8 * GIB}\n",
        "/sys/fs/cgroup/memory.current": f"{3 * GIB}\n",
        "/sys/fs/cgroup/memory.stat": f"anon {GIB}\nfile {2 * GIB}\ninactive_file {2 * GIB}\n",
    },
)  # fmt: skip
GRACE = Described(
    "Neoverse-V2", NEOVERSE_V2, 1, 72, 1, 480 * GIB, 462 * GIB, arch="aarch64", memory_nodes=(96 * GIB,), l3=114 << 20,
    l3_cores=72,
)  # fmt: skip


def _rtx_5090(index: int) -> dict[str, Any]:
    return gpu_row(index, "NVIDIA GeForce RTX 5090", 32607 << 20, (12, 0), index, power_limit_w=575.0)


_RTX_4090D = gpu_row(
    0, "NVIDIA GeForce RTX 4090 D", 24564 << 20, (8, 9), 1, power_limit_w=425.0,
    pcie={"gen": 4, "width": 16, "max_gen": 4, "max_width": 16},
)  # fmt: skip
_GH200 = gpu_row(0, "NVIDIA GH200 480GB", 97871 << 20, (9, 0), 0, power_limit_w=900.0)

# name -> the machine, its GPUs, and whether the machine itself found that it may use AMX
MACHINES: Mapping[str, tuple[Described, dict[str, Any], bool | None]] = {
    "epyc-9355-1x5090": (EPYC, gpu_document(_rtx_5090(0)), None),
    "epyc-9355-2x5090": (EPYC, gpu_document(_rtx_5090(0), _rtx_5090(1)), None),
    "xeon-6454s-4090d-382gb": (
        replace(XEON, memory=382 * GIB, free=372 * GIB),
        gpu_document(_RTX_4090D),
        True,
    ),
    "xeon-6454s-4090d-1tb": (XEON, gpu_document(_RTX_4090D), True),
    "desktop-5090-256gb": (DESKTOP, gpu_document(_rtx_5090(0)), None),
    "container-2-cores": (CONTAINER, NO_DRIVER, None),
    "grace-gh200": (GRACE, gpu_document(_GH200), None),
}


def document(name: str) -> dict[str, Any]:
    """What the machine prints of itself."""
    described, gpus, amx = MACHINES[name]
    with tempfile.TemporaryDirectory() as folder:
        root = write_files(Path(folder), machine_files(described))
        (root / "gpus.json").write_text(json.dumps(gpus), "utf-8")
        machine = read_machine(root, root / "gpus.json", environ={})
    # What files cannot tell, but the machine could.
    cpu = machine.cpu if amx is None else replace(machine.cpu, amx_usable=amx)
    notes = tuple(note for note in machine.notes if "only be asked on the machine" not in note)
    machine = replace(
        machine, cpu=cpu, numa=replace(machine.numa, policy_allowed=name != "container-2-cores"), notes=notes
    )
    return machine.to_json()


def main() -> None:
    """Write them all."""
    for name in MACHINES:
        (FOLDER / f"{name}.json").write_text(json.dumps(document(name)) + "\n", "utf-8")


if __name__ == "__main__":
    main()
