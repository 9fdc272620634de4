"""Bandwidths that makers state, for machines on which nothing was measured. Estimates, and always called so.

Memory: channels and transfer rate of a processor family with every channel filled, times `SUSTAINED`. GPUs: memory
bandwidth of the card's data sheet. Links: PCI Express lanes by generation after encoding, times `LINK_SHARE`.
"""

from __future__ import annotations

import re

from kt_tui.hardware.machine import Gpu, Machine

SUSTAINED = 0.8
"""What programs read of the theoretical peak; 0.80 to 0.88 is typical of DDR5 servers."""

LINK_SHARE = 0.85
_LANE_BYTES_PER_S = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.563e9}

# Model name -> (channels a socket, million transfers a second of 8 bytes). The first that matches counts.
_PROCESSORS: tuple[tuple[str, int, int], ...] = (
    (r"EPYC 9\d\d5", 12, 6000),
    (r"EPYC 9\d\d4", 12, 4800),
    (r"EPYC 8\d\d4", 6, 4800),
    (r"EPYC 7\d\d[23]", 8, 3200),
    (r"Xeon.* 69\d\d", 12, 6400),
    (r"Xeon.* 67\d\d", 8, 6400),
    (r"Xeon.* [4-8]5\d\d", 8, 5600),
    (r"Xeon.* [4-8]4\d\d", 8, 4800),
    (r"Xeon.* [4-8]3\d\d", 8, 3200),
    (r"Threadripper PRO [79]\d\d\d", 8, 5200),
    (r"Threadripper PRO [35]\d\d\d", 8, 3200),
    (r"Ryzen.* [79]\d\d\d", 2, 5600),
    (r"Core.*(Ultra|1[34]\d\d\d)", 2, 5600),
)

# Name -> bytes a second of its own memory, by its data sheet.
_CARDS: tuple[tuple[str, float], ...] = (
    (r"RTX 5090|RTX PRO 6000", 1792e9),
    (r"RTX 5080", 960e9),
    (r"RTX 4090", 1008e9),
    (r"RTX 3090", 936e9),
    (r"RTX 6000 Ada", 960e9),
    (r"L40", 864e9),
    (r"L20", 864e9),
    (r"H200", 4800e9),
    (r"H100", 3350e9),
    (r"A100", 2039e9),
)


def memory_estimate(machine: Machine) -> tuple[float, str] | None:
    """Bytes per second that the usable sockets should read, and on what that rests; None for an unknown processor."""
    cpu = machine.cpu
    sockets = cpu.sockets or 1
    if machine.numa.nodes and len(machine.numa.nodes) > 1:
        # A node that may not be used takes its channels with it.
        with_cpus = [node for node in machine.numa.nodes if node.cpus]
        share = len(machine.numa.pool_nodes) / max(1, len(with_cpus))
    else:
        share = 1.0
    for pattern, channels, rate in _PROCESSORS:
        if re.search(pattern, cpu.model or ""):
            peak = channels * rate * 1e6 * 8 * sockets * share
            told = f"{channels} channels of {rate} MT/s a socket, all filled, {SUSTAINED:.0%} of their peak"
            return peak * SUSTAINED, told
    return None


def gpu_memory_estimate(gpu: Gpu) -> float | None:
    """Bytes per second of a card's own memory; None for an unknown card."""
    return next((rate for pattern, rate in _CARDS if re.search(pattern, gpu.name or "")), None)


def link_estimate(gpu: Gpu) -> float | None:
    """Bytes per second from main memory to a GPU, by its link at best; None when the driver does not tell it."""
    gen, width = gpu.pcie.max_gen or gpu.pcie.gen, gpu.pcie.max_width or gpu.pcie.width
    lane = _LANE_BYTES_PER_S.get(gen or 0)
    return lane * width * LINK_SHARE if lane and width else None
