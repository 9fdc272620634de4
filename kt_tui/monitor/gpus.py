"""Live figures of the GPUs, by the reader that the machine report uses too."""

from __future__ import annotations

import os
from collections.abc import Mapping

from kt_tui.errors import KtError
from kt_tui.hardware.gpu import DRIVER_ERRORS, gpus_from_document
from kt_tui.hardware.machine import Gpu
from kt_tui.hardware.nvml import gpu_document
from kt_tui.monitor.snapshot import GpuSample


class NoGpuError(KtError):
    """There is no GPU to read, with the reason; a normal state, not a fault."""


def read_gpus(environ: Mapping[str, str] | None = None) -> tuple[GpuSample, ...]:
    """The GPUs that a program with ``environ`` would see.

    Raises:
        NoGpuError: No driver, or no GPU that may be used.
    """
    found = gpus_from_document(gpu_document(os.environ if environ is None else environ))
    if found.driver.error is not None:
        raise NoGpuError(
            DRIVER_ERRORS.get(found.driver.error, f"the NVIDIA driver says {found.driver.error}")
        )
    if not found.gpus:
        raise NoGpuError(found.notes[0] if found.notes else "no NVIDIA GPU")
    return tuple(_sample(gpu) for gpu in found.gpus)


def _sample(gpu: Gpu) -> GpuSample:
    used = gpu.memory_used
    if used is None and gpu.memory_total is not None and gpu.memory_free is not None:
        used = gpu.memory_total - gpu.memory_free
    return GpuSample(
        index=gpu.index,
        name=gpu.name or f"GPU {gpu.index}",
        memory_total=gpu.memory_total,
        memory_used=used,
        utilization=gpu.utilization_gpu,
        power_w=gpu.power_w,
        temperature_c=gpu.temperature_c,
    )
