"""What is around the processors: kernel, container, virtual machine, WSL, and accelerators that nothing here uses."""

from __future__ import annotations

import re
from dataclasses import dataclass

from kt_tui.hardware.files import SystemFiles
from kt_tui.hardware.pci import PCI
from kt_tui.text import one_line

VENDORS = {
    "0x1002": "AMD", "0x8086": "Intel", "0x10de": "NVIDIA", "0x1da3": "Habana", "0x1e52": "Tenstorrent",
    "0x19e5": "Huawei", "0x1ed5": "Moore Threads", "0x1d22": "Kunlun", "0x1ae0": "Google", "0x1d0f": "Amazon",
}  # fmt: skip
# PCI class codes (the PCI Code and ID Assignment Specification): 03 display controllers, 12 processing accelerators.
KINDS = {"0x03": "GPU", "0x12": "accelerator"}
RUNTIMES = ("docker", "kubepods", "libpod", "containerd", "lxc")


@dataclass(frozen=True)
class Accelerator:
    """A device on the PCI bus that could compute; ``reason`` says why it is not used."""

    kind: str
    vendor: str
    pci_bus_id: str
    reason: str


@dataclass(frozen=True)
class Surroundings:
    """Where this runs.

    Attributes:
        kernel: The kernel's release.
        container: Name of the container runtime; ``None`` outside of one, as far as one can see.
        wsl: Version of the Windows Subsystem for Linux; ``None`` outside of it.
        virtual: Whether a hypervisor is below; ``None`` where the processor does not tell.
    """

    kernel: str | None = None
    container: str | None = None
    wsl: int | None = None
    virtual: bool | None = None


def read_surroundings(files: SystemFiles, flags: frozenset[str], notes: list[str]) -> Surroundings:
    """Read them; what is missing is ``None`` with a note."""
    release = files.text("/proc/sys/kernel/osrelease")
    kernel = one_line(release) if release and release.strip() else None
    if kernel is None:
        notes.append("system: kernel release n/a, /proc/sys/kernel/osrelease is missing")
    wsl = None
    if kernel and "microsoft" in kernel.lower():
        wsl = 2 if re.search(r"wsl2|microsoft-standard", kernel.lower()) else 1
        notes.append(
            f"system: WSL {wsl}: memory is bounded by .wslconfig on the Windows side, and models read faster from "
            "the Linux disk than from /mnt/c"
        )
    return Surroundings(kernel, _container(files), wsl, "hypervisor" in flags if flags else None)


def _container(files: SystemFiles) -> str | None:
    named = files.text("/run/systemd/container")
    if named and named.strip():
        return one_line(named, 40)
    if files.text("/.dockerenv") is not None:
        return "docker"
    if files.text("/run/.containerenv") is not None:
        return "podman"
    groups = (files.text("/proc/self/cgroup") or "").lower()
    for runtime in RUNTIMES:
        if re.search(rf"[/:.-]{runtime}[/:.-]", groups):
            return {"kubepods": "kubernetes", "libpod": "podman"}.get(runtime, runtime)
    return None


def read_accelerators(
    files: SystemFiles, *, nvidia_answers: bool, notes: list[str]
) -> tuple[Accelerator, ...]:
    """Display controllers and accelerators on the PCI bus that no engine here uses, or that lack a driver."""
    found = []
    for address in files.names(PCI)[:4096]:
        kind = KINDS.get((files.text(f"{PCI}/{address}/class") or "").strip().lower()[:4])
        vendor = VENDORS.get((files.text(f"{PCI}/{address}/vendor") or "").strip().lower())
        if kind is None or vendor is None or (vendor == "NVIDIA" and nvidia_answers):
            continue
        reason = "the NVIDIA driver does not answer" if vendor == "NVIDIA" else "no engine here uses it"
        found.append(Accelerator(kind, vendor, one_line(address, 40), reason))
    counts: dict[tuple[str, str], int] = {}
    for device in found:
        counts[device.vendor, device.kind] = counts.get((device.vendor, device.kind), 0) + 1
    for (vendor, kind), count in sorted(counts.items()):
        if vendor == "NVIDIA":
            notes.append(f"gpus: {count} NVIDIA device(s) on the PCI bus, but the driver does not answer")
        elif not nvidia_answers:
            notes.append(f"gpus: {count} {vendor} {kind}(s) on the PCI bus; no engine here uses them")
    return tuple(found)
