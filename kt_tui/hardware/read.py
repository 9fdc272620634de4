"""Reads the whole Machine, from the running system or from a capture, and makes captures."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kt_tui.errors import KtError
from kt_tui.hardware.cgroup import read_control_group
from kt_tui.hardware.cpu import parse_cpuinfo, read_cpu
from kt_tui.hardware.disks import read_disks
from kt_tui.hardware.files import SystemFiles
from kt_tui.hardware.gpu import NO_SYSTEM, Gpus, System, gpus_from_document, load_gpu_document
from kt_tui.hardware.limits import read_limits
from kt_tui.hardware.machine import Machine
from kt_tui.hardware.memory import read_memory
from kt_tui.hardware.numa import mark_gpu_memory, read_numa, without_gpu_memory
from kt_tui.hardware.nvml import ENVIRONMENT, gpu_document
from kt_tui.hardware.pci import kernel_module_version, pci_numa_node
from kt_tui.hardware.surroundings import read_accelerators, read_surroundings


def read_machine(
    sysroot: Path | None = None,
    gpus_file: Path | None = None,
    environ: Mapping[str, str] | None = None,
    folders: Sequence[Path] = (),
) -> Machine:
    """Read a machine.

    Args:
        sysroot: A folder with ``proc`` and ``sys`` of some machine; ``None`` reads this one.
        gpus_file: A GPU document; ``None`` asks the driver (of this machine only: never together with ``sysroot``).
        environ: Environment that a CUDA program would have; ``None`` is this process's. The ``env`` of a
            GPU document, if it has one, is taken instead.
        folders: Folders whose disks are of interest.

    Raises:
        KtError: ``sysroot`` is no such folder, or ``gpus_file`` is no GPU document. Missing facts raise nothing.
    """
    if sysroot is not None and not ((sysroot / "proc").is_dir() or (sysroot / "sys").is_dir()):
        raise KtError(f"{sysroot} is no captured machine: it has neither a proc nor a sys folder")
    document: Mapping[str, Any] | None = None
    if gpus_file is not None:
        env = os.environ if environ is None else environ
        own = {name: env[name] for name in ENVIRONMENT if name in env}
        document = {"env": own, **load_gpu_document(gpus_file)}
    elif sysroot is None:
        document = gpu_document(os.environ if environ is None else environ)
    return machine_from_files(SystemFiles(sysroot), document, ours=gpus_file is None, folders=folders)


def refresh_memory(machine: Machine) -> Machine:
    """The same machine with its memory read anew: what is available changes by the second, the rest does not."""
    files, notes = SystemFiles(), list[str]()
    _, usage = read_control_group(files)
    return replace(machine, memory=without_gpu_memory(files, read_memory(files, usage, notes), machine.numa))


def machine_from_files(
    files: SystemFiles, gpus: Mapping[str, Any] | None, *, ours: bool = True, folders: Sequence[Path] = ()
) -> Machine:
    """Read a machine from its files and GPU document.

    Args:
        files: Where from.
        gpus: The GPU document; ``None`` when nobody asked the driver.
        ours: Whether the document is what this machine's own driver answered.
        folders: Folders whose disks are of interest.
    """
    notes: list[str] = []
    group, usage = read_control_group(files)
    memory = read_memory(files, usage, notes)
    limits = read_limits(files, group, memory.total, notes)
    cpu = read_cpu(files, group, limits.affinity, notes)
    numa = read_numa(files, cpu, memory, limits, notes)
    system = read_surroundings(files, parse_cpuinfo(files.text("/proc/cpuinfo")).flags, notes)
    same = ours or not files.live
    if gpus is None:
        found = Gpus(notes=("gpus: n/a, a captured machine's GPUs come from a GPU document (--gpus FILE)",))
    else:
        # The document may be of another machine than the files: then they have nothing to say of its GPUs.
        found = gpus_from_document(gpus, _system(files) if same else NO_SYSTEM)
    if same:
        numa = mark_gpu_memory(numa, (*found.gpus, *found.hidden), notes)
        memory = without_gpu_memory(files, memory, numa)
    answers = bool(found.gpus or found.hidden)
    asked = gpus is not None and same
    devices = read_accelerators(files, nvidia_answers=answers, notes=notes) if asked else ()
    return Machine(
        cpu=cpu,
        numa=numa,
        memory=memory,
        gpus=found.gpus,
        gpus_hidden=found.hidden,
        driver=found.driver,
        limits=limits,
        accelerators=devices,
        disks=read_disks(files, folders, notes) if folders else (),
        system=system,
        notes=(*notes, *found.notes),
    )


def _system(files: SystemFiles) -> System:
    return System(
        exists=(lambda pid: files.exists(f"/proc/{pid}")) if files.live else None,
        numa_node=lambda address: pci_numa_node(files, address),
        module_version=kernel_module_version(files),
    )
