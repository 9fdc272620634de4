"""Whether a known model would fit on this machine under the sglang engine, before it is on disk."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kt_tui.catalog.shape import BITS, ModelShape
from kt_tui.hardware.machine import Machine
from kt_tui.launch.memory import MemoryPlan
from kt_tui.launch.schema import SGLANG
from kt_tui.launch.sglang_memory import Sizes, Stored, largest_gpu_experts, sglang_memory, ways_to_fit

if TYPE_CHECKING:
    from kt_tui.catalog import ModelEntry
    from kt_tui.launch.plan import LaunchPlan

GIB = 1 << 30


def with_sglang_memory(plan: LaunchPlan, entry: ModelEntry, machine: Machine) -> LaunchPlan:
    """A plan for the sglang engine with its memory by the catalogue's shape and what fits; others as they are."""
    if plan.engine != SGLANG:
        return plan
    found = sglang_outlook(entry.shape, entry.formats, {**entry.defaults, **_most(entry.limits)}, machine)
    if found is None:
        return plan
    memory, told = found
    return dataclasses.replace(plan, memory=memory, warnings=(*plan.warnings, *told))


def _most(limits: Mapping[str, int]) -> dict[str, int]:
    ranks = limits.get("tensor-parallel-size")
    return {} if ranks is None else {"tensor-parallel-size": ranks}


def sglang_outlook(
    shape: ModelShape | None, formats: Mapping[str, str], defaults: Mapping[str, object], machine: Machine
) -> tuple[MemoryPlan, tuple[str, ...]] | None:
    """The memory of a launch with the model's own defaults, and sentences about what fits; None for unknown shapes.

    The largest power of two of GPUs that the model allows is used, and as many copies of experts as fit.
    """
    experts, other = formats.get("experts", ""), formats.get("other", "")
    if shape is None or experts not in BITS or other not in BITS:
        return None
    model = Stored(shape, experts, other)
    sizes = _sizes(defaults, machine)
    most = largest_gpu_experts(model, sizes, machine)
    wanted = _integer(defaults, "gpu-experts")
    sizes = sizes.lowered("gpu-experts", most or 0 if wanted is None else wanted)
    memory = sglang_memory(model, sizes, machine)
    return memory, tuple(_sentences(model, sizes, most, memory, machine))


def _sentences(
    model: Stored, sizes: Sizes, most: int | None, memory: MemoryPlan, machine: Machine
) -> list[str]:
    told = []
    if not machine.gpus:
        told.append("the sglang engine needs an NVIDIA GPU, and there is none")
    elif most is not None:
        told.append(
            f"copies of up to {most} of {model.shape.experts} experts a layer fit on {_cards(sizes)}; "
            "kt-kernel keeps all experts in main memory as well"
        )
    elif ways := ways_to_fit(model, sizes, machine):
        lower = ", ".join(f"--{way.option} {way.value} (frees {way.frees / GIB:.1f} GiB)" for way in ways)
        told.append(
            f"it does not fit on {_cards(sizes)} with the model's defaults; lower, in this order: {lower}"
        )
    elif all(gpu.memory_free is not None for gpu in machine.gpus):
        told.append(
            f"it does not fit on {_cards(sizes)}, however small its chunk and cache are: use larger GPUs"
        )
    left = memory.host.free_after
    if left is not None and left < 0:
        told.append(
            f"main memory lacks {-left / GIB:.0f} GiB; a smaller --chunked-prefill-size frees scratch only, "
            "experts need weights of fewer bits"
        )
    return told


def _cards(sizes: Sizes) -> str:
    return "the GPU" if sizes.tensor_parallel == 1 else f"{sizes.tensor_parallel} GPUs"


def _sizes(defaults: Mapping[str, object], machine: Machine) -> Sizes:
    """The model's own defaults, or the engine's."""
    allowed = _integer(defaults, "tensor-parallel-size") or len(machine.gpus) or 1
    ranks = 1
    while ranks * 2 <= min(allowed, len(machine.gpus)):
        ranks *= 2
    fraction = defaults.get("mem-fraction-static")
    nodes = sum(1 for node in machine.numa.nodes if node.usable and node.cpus)
    return Sizes(
        tensor_parallel=ranks,
        total_tokens=_integer(defaults, "max-total-tokens") or 4096,
        chunk=_integer(defaults, "chunked-prefill-size") or 4096,
        running=_integer(defaults, "max-running-requests") or 1,
        kv_bytes=1 if "fp8" in str(defaults.get("kv-cache-dtype")) else 2,
        layerwise="kt-gpu-prefill-threshold" in defaults,
        method=str(defaults.get("kt-method", "")),
        pools=max(1, nodes),
        static_fraction=fraction if isinstance(fraction, float) and 0 < fraction <= 1 else None,
    )


def _integer(defaults: Mapping[str, object], name: str) -> int | None:
    value = defaults.get(name)
    return value if type(value) is int and value >= 0 else None
