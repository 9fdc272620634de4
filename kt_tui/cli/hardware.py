"""``kt-tui hardware``: what this machine is, and what of it may be used."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from kt_tui.cli.render import Section, known, sentences, show, size
from kt_tui.errors import UsageError
from kt_tui.hardware.caches import Cache
from kt_tui.hardware.disks import NETWORK
from kt_tui.hardware.files import format_cpu_list
from kt_tui.hardware.machine import Gpu, Machine

if TYPE_CHECKING:
    from kt_tui.hardware.calibration import Calibration


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument("--json", action="store_true", help="one JSON document on standard output")
    parser.add_argument(
        "--sysroot", type=Path, metavar="DIR", help="read DIR/proc and DIR/sys in place of /proc and /sys"
    )
    parser.add_argument(
        "--gpus", type=Path, metavar="FILE", help="read the GPUs from a JSON file in place of the driver"
    )
    parser.add_argument(
        "--disk-speed",
        nargs="?",
        const="",
        metavar="DIR",
        help="measure how fast the largest files in DIR read, past the page cache (default: the folder of models)",
    )
    parser.add_argument(
        "--calibrate",
        action="store_true",
        help="measure memory, kernels and GPU links within ten seconds, and keep the result for predictions",
    )
    parser.add_argument(
        "--capture",
        type=Path,
        metavar="DIR",
        help="save what was read to a new folder, for --sysroot and --gpus elsewhere",
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the machine."""
    from kt_tui.hardware import capture_machine, read_machine
    from kt_tui.hardware.disks import with_speed

    given = arguments.sysroot or arguments.gpus
    if arguments.capture and given:
        raise UsageError("--capture saves the machine that it runs on; it cannot go with --sysroot or --gpus")
    if arguments.disk_speed is not None and (arguments.sysroot or arguments.capture):
        raise UsageError(
            "--disk-speed measures a disk of this machine; it cannot go with --sysroot or --capture"
        )
    if arguments.calibrate and (given or arguments.capture):
        raise UsageError(
            "--calibrate measures this machine; it cannot go with --sysroot, --gpus or --capture"
        )
    folders = model_folders(os.environ)
    if arguments.capture:
        machine = capture_machine(arguments.capture, os.environ)
    else:
        chosen = [Path(arguments.disk_speed).absolute()] if arguments.disk_speed else []
        machine = read_machine(arguments.sysroot, arguments.gpus, os.environ, [*chosen, *folders])
        if arguments.disk_speed is not None:
            machine = replace(machine, disks=with_speed(machine.disks, (chosen or folders)[0]))
    calibration = _calibration(machine, measure=arguments.calibrate)
    if arguments.json:
        measured = calibration.to_json() if calibration else None
        print(json.dumps(machine.to_json() | {"calibration": measured}))
    else:
        show([*sections(machine), *calibration_sections(calibration)])
        if arguments.capture:
            folder = shlex.quote(str(arguments.capture))
            print(f"\nSaved; read it with: kt-tui hardware --sysroot {folder} --gpus {folder}/gpus.json")
    return 0


def _calibration(machine: Machine, *, measure: bool) -> Calibration | None:
    from kt_tui.hardware.calibration import load_calibration
    from kt_tui.hardware.fingerprint import fingerprint
    from kt_tui.paths import user_paths

    paths = user_paths(os.environ)
    if measure:
        from kt_tui.tune.calibrate import calibrate

        return calibrate(machine, paths)
    return load_calibration(paths, fingerprint(machine))


def model_folders(environ: Mapping[str, str]) -> list[Path]:
    """Where models are: the folders of the settings, then our own."""
    from kt_tui.config import load_config
    from kt_tui.paths import user_paths

    paths = user_paths(environ)
    configured = load_config(paths, environ).get("paths.models")
    listed = configured if isinstance(configured, list | tuple) else ()
    return [*(Path(str(folder)).expanduser().absolute() for folder in listed), paths.data]


def sections(machine: Machine) -> list[Section]:
    """The machine in words."""
    return [
        Section("Processor", _cpu(machine)),
        Section("NUMA nodes", _numa(machine)),
        Section("Memory", _memory(machine)),
        Section("GPUs", _gpus(machine)),
        Section("Limits", _limits(machine)),
        Section("Disks", _disks(machine)),
        Section("System", _system(machine)),
        Section("Notes", sentences(machine.notes), style="yellow"),
    ]


def calibration_sections(calibration: Calibration | None) -> list[Section]:
    """What was measured, in words; nothing without a measurement."""
    if calibration is None:
        return []
    day = time.strftime("%Y-%m-%d %H:%M", time.localtime(calibration.measured_at))
    rows = [("measured", f"{day}, {calibration.threads} threads, {calibration.isa} kernels")]
    if calibration.memory_bytes_per_s:
        rows.append(("memory reads", f"{calibration.memory_bytes_per_s / 1e9:.1f} GB/s"))
    caches = [f"{size(count)} {rate / 1e9:.1f}" for count, rate in calibration.read[:-1]]
    if caches:
        rows.append(("by size, GB/s", ", ".join(caches)))
    for label, rates in (("peaks", calibration.peaks), ("kernels", calibration.kernels)):
        if rates:
            shown = ", ".join(f"{name} {rate / 1e9:.0f}" for name, rate in rates.items())
            rows.append((f"{label}, GFLOP/s", shown))
    for index, gpu in enumerate(calibration.gpus):
        parts = [gpu.name or "GPU"]
        parts += [f"{gpu.to_device / 1e9:.1f} GB/s from main memory"] if gpu.to_device else []
        parts += [f"{gpu.bf16 / 1e12:.0f} TFLOP/s in bf16"] if gpu.bf16 else []
        parts += [f"{gpu.read / 1e9:.0f} GB/s of its own memory"] if gpu.read else []
        rows.append((f"GPU {index}", "; ".join(parts)))
    rows.extend(("", note) for note in calibration.notes)
    return [Section("Calibration", rows)]


def _cpu(machine: Machine) -> list[tuple[str, str]]:
    cpu = machine.cpu
    cores = f"{known(cpu.physical_cores)} on {known(cpu.sockets)} socket(s), {known(cpu.logical_cpus)} logical CPUs"
    usable = f"{known(cpu.usable_physical_cores)} cores, {known(cpu.usable_logical_cpus)} logical CPUs"
    if cpu.usable_cpus:
        usable += f" ({format_cpu_list(cpu.usable_cpus)})"
    if cpu.efficient_cores:
        cores += f"; {cpu.efficient_cores} of the cores are efficient ones"
        usable += f"; {known(cpu.usable_performance_cores)} performance cores"
    rows = [
        ("model", f"{known(cpu.model)} ({known(cpu.arch)})"),
        ("cores", cores),
        ("usable here", usable),
        ("extensions", " ".join(cpu.isa) or "n/a"),
    ]
    if any(name.startswith("amx") for name in cpu.isa):
        rows.append(("AMX usable", known(cpu.amx_usable)))
    if cpu.caches:
        rows.append(("caches", ", ".join(_cache(cache) for cache in cpu.caches)))
    return rows


def _cache(cache: Cache) -> str:
    name = f"L{cache.level}" + ("d" if cache.kind == "data" else "")
    return f"{name} {cache.count} x {size(cache.size)}"


def _numa(machine: Machine) -> list[tuple[str, str]]:
    rows = []
    for node in machine.numa.nodes:
        parts = [
            f"CPUs {format_cpu_list(node.cpus) or 'none'}",
            f"{size(node.memory_total)}, {size(node.memory_free)} free",
        ]
        if node.kind != "cpu+memory":
            parts.append(node.kind)
        if node.reason:
            parts.append(f"not usable: {node.reason}")
        if len(node.distances) > 1:
            parts.append("distances " + " ".join(map(str, node.distances)))
        rows.append((f"node {node.id}", "; ".join(parts)))
    if len(machine.numa.nodes) > 1:
        rows.append(("automatic balancing", known(machine.numa.balancing)))
        rows.append(("binding allowed", known(machine.numa.policy_allowed)))
    return rows


def _memory(machine: Machine) -> list[tuple[str, str]]:
    memory, huge = machine.memory, machine.memory.hugepages
    rows = [
        ("total", size(memory.total)),
        ("available", size(memory.available)),
        ("free", size(memory.free)),
        ("page cache", size(memory.page_cache)),
        ("used by others", size(memory.used)),
    ]
    if memory.shared:
        rows.append(("shared memory", f"{size(memory.shared)} of what others use"))
    if memory.limit is not None:
        rows.insert(1, ("limit", f"{size(memory.limit)}, {size(memory.used_in_limit)} used"))
    if memory.swap_total:
        rows.append(("swap", f"{size(memory.swap_total)}, {size(memory.swap_free)} free"))
    if huge.total:
        rows.append(("huge pages", f"{huge.total} of {size(huge.size)}, {known(huge.free)} free"))
    rows.append(("transparent huge pages", known(huge.transparent)))
    return rows


def _gpus(machine: Machine) -> list[tuple[str, str]]:
    rows = [(f"GPU {gpu.index}", _gpu(gpu)) for gpu in machine.gpus]
    rows.extend((f"GPU {gpu.index} (hidden)", known(gpu.name)) for gpu in machine.gpus_hidden)
    if machine.driver.version:
        rows.append(("driver", f"{machine.driver.version}, CUDA {known(machine.driver.cuda)}"))
    rows.extend(
        (device.pci_bus_id, f"{device.vendor} {device.kind}; unused: {device.reason}")
        for device in machine.accelerators
    )
    return rows or [("", "none")]


def _gpu(gpu: Gpu) -> str:
    parts = [known(gpu.name), f"{size(gpu.memory_total)}, {size(gpu.memory_free)} free"]
    if gpu.compute_capability:
        parts.append("compute capability " + ".".join(map(str, gpu.compute_capability)))
    if gpu.pcie.gen and gpu.pcie.width:
        parts.append(
            f"PCIe {gpu.pcie.gen} x{gpu.pcie.width} (at best {known(gpu.pcie.max_gen)} x{known(gpu.pcie.max_width)})"
        )
    if gpu.numa_node is not None:
        parts.append(f"NUMA node {gpu.numa_node}")
    if gpu.cuda_index is not None and gpu.cuda_index != gpu.index:
        parts.append(f"CUDA calls it {gpu.cuda_index}")
    if gpu.processes:
        parts.append(f"{len(gpu.processes)} process(es)")
    return "; ".join(parts)


def _limits(machine: Machine) -> list[tuple[str, str]]:
    limits = machine.limits
    rows = []
    for name, limit, in_bytes in (
        ("open files", limits.nofile, False),
        ("locked memory", limits.memlock, True),
    ):
        if limit is not None:
            shown = "unlimited" if limit.soft is None else size(limit.soft) if in_bytes else str(limit.soft)
            rows.append((name, shown))
    if limits.address_space is not None and limits.address_space.soft is not None:
        rows.append(("address space", size(limits.address_space.soft)))
    rows.append(("shared memory files", size(limits.shm_size)))
    if limits.cgroup.cpu_quota is not None:
        rows.append(("CPU quota", f"{limits.cgroup.cpu_quota:g} CPUs"))
    return rows


def _disks(machine: Machine) -> list[tuple[str, str]]:
    rows = []
    for disk in machine.disks:
        parts = [f"{size(disk.free)} free of {size(disk.total)}", known(disk.filesystem)]
        if disk.filesystem in NETWORK:
            parts.append("over the network")
        elif disk.rotational:
            parts.append("a turning disk, or one that says so")
        if disk.read_bytes_per_s is not None:
            parts.append(f"reads {size(disk.read_bytes_per_s)}/s")
        rows.append((disk.mount or "n/a", f"{'; '.join(parts)} ({disk.path})"))
    return rows


def _system(machine: Machine) -> list[tuple[str, str]]:
    system = machine.system
    rows = [("kernel", known(system.kernel))]
    if system.container:
        rows.append(("container", system.container))
    if system.wsl:
        rows.append(("WSL", str(system.wsl)))
    if system.virtual is not None:
        rows.append(("virtual machine", known(system.virtual)))
    return rows
