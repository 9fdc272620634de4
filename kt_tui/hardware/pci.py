"""What sysfs and procfs tell of GPUs beside the driver: NUMA nodes and the kernel module."""

from __future__ import annotations

import re

from kt_tui.hardware.files import SystemFiles

PCI = "/sys/bus/pci/devices"


def pci_order(address: str | None) -> tuple[int, ...] | None:
    """A PCI address ``domain:bus:device.function`` as numbers to sort by."""
    match = re.fullmatch(
        r"(?:([0-9a-fA-F]{1,8}):)?([0-9a-fA-F]{1,2}):([0-9a-fA-F]{1,2})(?:\.([0-7]))?", address or ""
    )
    return tuple(int(part or "0", 16) for part in match.groups()) if match else None


def kernel_module_version(files: SystemFiles) -> str | None:
    """Version of the loaded NVIDIA kernel module, from ``/proc/driver/nvidia/version``."""
    match = re.search(r"Kernel Module.*?\s(\d+(?:\.\d+)+)\s", files.text("/proc/driver/nvidia/version") or "")
    return match[1] if match else None


def pci_numa_node(files: SystemFiles, address: str) -> int | None:
    """The NUMA node of a PCI address, from sysfs; the driver writes eight digits of domain, sysfs four."""
    order = pci_order(address)
    if order is None:
        return None
    domain, bus, device, function = order
    node = files.number(f"{PCI}/{domain:04x}:{bus:02x}:{device:02x}.{function}/numa_node")
    return node if node is not None and node >= 0 else None
