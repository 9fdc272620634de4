"""What the sglang engine with kt-kernel needs of a machine, in bytes, from a model's shape alone.

Facts of the engine that decide the sizes:

- kt-kernel keeps all experts of all layers in main memory, also those that have a copy on a GPU.
- Its scratch for prefill grows with the chunk: for each pool, rows of routed tokens in and out of both products.
- Layerwise prefill holds one whole mixture-of-experts layer on every GPU.
- With tensor parallelism heads, dense and expert widths are divided; the latent cache of MLA is not.

Processes, CUDA context and scratch are estimates; weights and cache follow from the shape.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass

from kt_tui.catalog.shape import ModelShape, weight_bytes
from kt_tui.hardware.machine import Machine
from kt_tui.launch.memory import GIB, DeviceMemory, MemoryPlan, host_memory

MIB = 1 << 20
CONVERTED_BITS: Mapping[str, float] = {"AMXINT4": 4.0, "AMXINT8": 8.0}
"""Bits of a weight for the methods that keep experts in another format than the checkpoint's (scales: one a row)."""
CONTEXT = 512 * MIB
RANK_CONTEXT = 128 * MIB
PROCESS = 4 * GIB
"""Main memory of one rank's process beside weights: Python, torch, CUDA. An estimate."""
GRAPH = 2 * MIB
"""Captured graphs, for each request at once."""
HEADROOM = 512 * MIB
"""What stays free on a GPU in a solved plan, for fragmentation."""
EXPERT_STEP = 32
"""Rows to which kt-kernel rounds each expert's share of a chunk."""


@dataclass(frozen=True)
class Stored:
    """A model as its files hold it.

    Attributes:
        shape: Its dimensions.
        experts: Format of routed experts, by the names of `kt_tui.catalog.shape.BITS`.
        other: Format of attention, dense layers and shared experts; embeddings, norms and routers are 16 bits.
    """

    shape: ModelShape
    experts: str
    other: str

    @property
    def layer_bytes(self) -> int:
        """Bytes of all routed experts of one layer."""
        return weight_bytes(self.shape.expert_parameters_per_layer(), self.experts)


@dataclass(frozen=True)
class Sizes:
    """The parameters of a launch that decide its memory.

    Attributes:
        tensor_parallel: GPUs over which each layer is divided, on all machines together.
        gpu_experts: Experts of each layer that have a copy on the GPUs.
        total_tokens: Tokens of the cache.
        chunk: Tokens of one step of prefill.
        running: Requests at once.
        kv_bytes: Bytes of an element of the cache: 2, or 1 for FP8.
        layerwise: Whether long prompts are computed layer by layer on the GPU.
        method: kt-kernel's method, such as ``FP8``.
        pools: Thread pools, one for each NUMA node used.
        static_fraction: Share of a GPU that weights and cache may take; None for all of it.
    """

    tensor_parallel: int = 1
    gpu_experts: int = 0
    total_tokens: int = 0
    chunk: int = 2048
    running: int = 1
    kv_bytes: int = 2
    layerwise: bool = False
    method: str = ""
    pools: int = 1
    static_fraction: float | None = None

    def lowered(self, option: str, value: int) -> Sizes:
        """With one of `LOWERED` at another value."""
        if option == "gpu-experts":
            return dataclasses.replace(self, gpu_experts=value)
        if option == "chunked-prefill-size":
            return dataclasses.replace(self, chunk=value)
        return dataclasses.replace(self, total_tokens=value)

    def value(self, option: str) -> int:
        """One of `LOWERED`."""
        return {"gpu-experts": self.gpu_experts, "chunked-prefill-size": self.chunk}.get(
            option, self.total_tokens
        )


LOWERED: Mapping[str, int] = {"gpu-experts": 0, "chunked-prefill-size": 2048, "max-total-tokens": 4096}
"""What is lowered so that a launch fits, in this order, and how far: copies of experts cost only speed."""


@dataclass(frozen=True)
class Way:
    """One change that makes a launch need less.

    Attributes:
        option: The launch option.
        value: What to set it to.
        frees: Bytes that it frees on each GPU.
    """

    option: str
    value: int
    frees: int


def gpu_parts(model: Stored, sizes: Sizes) -> dict[str, int]:
    """Bytes on each GPU by what they are for.

    Raises:
        ShapeError: A format is not known.
    """
    shape, ranks, groups = model.shape, max(1, sizes.tensor_parallel), model.shape.groups()
    divided = weight_bytes(groups["attention"] + groups["dense"] + groups["shared_experts"], model.other)
    divided += weight_bytes(groups["embedding"] + groups["head"], "bf16")
    whole = weight_bytes(groups["norms"] + groups["router"], "bf16")
    copies = shape.moe_layers * min(sizes.gpu_experts, shape.experts)
    parts = {
        "weights": math.ceil(divided / ranks) + whole,
        "experts": math.ceil(copies * model.layer_bytes / max(1, shape.experts) / ranks),
        "kv cache": cache_bytes(shape, sizes),
        "prefill": sizes.chunk * _activation_bytes(shape, ranks),
        "context and graphs": CONTEXT + RANK_CONTEXT * ranks + GRAPH * sizes.running,
    }
    if sizes.layerwise and shape.moe_layers:
        parts["layerwise prefill"] = model.layer_bytes
    return parts


def cache_bytes(shape: ModelShape, sizes: Sizes) -> int:
    """Bytes of the cache on each GPU: full layers by tokens, windowed ones by their window, linear by requests."""
    ranks = max(1, sizes.tensor_parallel)
    token = shape.kv_elements_per_layer() * sizes.kv_bytes
    if shape.attention == "gqa" and shape.kv_heads:
        token = token // shape.kv_heads * math.ceil(shape.kv_heads / ranks)
    full = shape.layers - shape.linear_layers - shape.sliding_layers
    windowed = min(sizes.total_tokens, max(1, sizes.running) * shape.sliding_window)
    keys = shape.linear_key_heads * shape.linear_key_dim
    values = shape.linear_value_heads * shape.linear_value_dim
    state = 4 * values * shape.linear_key_dim + 2 * shape.linear_conv * (2 * keys + values)
    linear = shape.linear_layers * sizes.running * math.ceil(state / ranks)
    return full * token * sizes.total_tokens + shape.sliding_layers * token * windowed + linear


def host_parts(model: Stored, sizes: Sizes, local_ranks: int) -> dict[str, int]:
    """Bytes of main memory by what they are for; ``local_ranks`` processes run on this machine.

    Raises:
        ShapeError: A format is not known.
    """
    shape, experts = model.shape, model.shape.groups()["experts"]
    bits = CONVERTED_BITS.get(sizes.method)
    parts = {
        "experts": int(experts * bits / 8) if bits else weight_bytes(experts, model.experts),
        "processes": PROCESS * max(1, local_ranks),
    }
    if shape.moe_layers:
        pools = max(1, sizes.pools)
        inner = math.ceil(shape.moe_intermediate / pools)
        routed = sizes.chunk * shape.experts_per_token
        rows = routed + shape.experts * EXPERT_STEP
        pool = 2 * routed * (2 * shape.hidden + 2 * inner)
        pool += rows * (2 * (shape.hidden + inner) + 4 * (2 * inner + shape.hidden))
        parts["prefill scratch"] = pools * pool
        if sizes.layerwise:
            parts["layerwise copies"] = model.layer_bytes
    return parts


def sglang_memory(model: Stored, sizes: Sizes, machine: Machine) -> MemoryPlan:
    """Lay a launch over a machine's GPUs, in their order, and its main memory.

    Raises:
        ShapeError: A format is not known.
    """
    used = min(max(1, sizes.tensor_parallel), len(machine.gpus))
    total, available = host_memory(machine)
    needs = gpu_parts(model, sizes)
    gpus = tuple(
        DeviceMemory(gpu.memory_total, gpu.memory_free, needs if number < used else {}, gpu.index, gpu.name)
        for number, gpu in enumerate(machine.gpus)
    )
    return MemoryPlan(DeviceMemory(total, available, host_parts(model, sizes, used)), gpus)


def gpu_excess(model: Stored, sizes: Sizes, machine: Machine) -> int | None:
    """Bytes that the smallest of the GPUs used lacks; negative is room, None when a size or a GPU is missing.

    Weights and cache also have to lie within the static fraction, as the engine asks.
    """
    ranks = max(1, sizes.tensor_parallel)
    free = [gpu.memory_free for gpu in machine.gpus[:ranks] if gpu.memory_free is not None]
    if len(free) < ranks:
        return None
    parts = gpu_parts(model, sizes)
    excess = sum(parts.values()) + HEADROOM - min(free)
    if sizes.static_fraction is None:
        return excess
    static = parts["weights"] + parts["experts"] + parts["kv cache"]
    return max(excess, static - int(min(free) * sizes.static_fraction))


def largest_gpu_experts(model: Stored, sizes: Sizes, machine: Machine) -> int | None:
    """The most experts a layer whose copies fit on the GPUs; None if not even none do, or nothing is known."""
    most = model.shape.experts if model.shape.moe_layers else 0
    return _largest(model, sizes.lowered("gpu-experts", most), machine, "gpu-experts")


def ways_to_fit(model: Stored, sizes: Sizes, machine: Machine) -> tuple[Way, ...]:
    """What to lower until a launch fits on its GPUs, in `LOWERED`'s order; empty if it does or nothing suffices."""
    excess = gpu_excess(model, sizes, machine)
    if excess is None or excess <= 0:
        return ()
    changed = sizes
    for option, least in LOWERED.items():
        value = _largest(model, changed, machine, option)
        changed = changed.lowered(option, min(least, sizes.value(option)) if value is None else value)
        if value is not None:
            break
    else:
        return ()
    # What was lowered before the last may go up again as far as the last has made room.
    for option in LOWERED:
        again = _largest(model, changed.lowered(option, sizes.value(option)), machine, option)
        changed = changed.lowered(option, changed.value(option) if again is None else again)
    ways, before = [], sizes
    for option in LOWERED:
        if changed.value(option) == sizes.value(option):
            continue
        after = before.lowered(option, changed.value(option))
        frees = sum(gpu_parts(model, before).values()) - sum(gpu_parts(model, after).values())
        ways.append(Way(option, changed.value(option), frees))
        before = after
    return tuple(ways)


def _largest(model: Stored, sizes: Sizes, machine: Machine, option: str) -> int | None:
    """The largest value of an option, no more than in ``sizes``, with which the launch fits; None without any."""

    def fits(value: int) -> bool:
        excess = gpu_excess(model, sizes.lowered(option, value), machine)
        return excess is not None and excess <= 0

    high = sizes.value(option)
    low = min(LOWERED[option], high)
    if not fits(low):
        return None
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def _activation_bytes(shape: ModelShape, ranks: int) -> int:
    """Bytes of a prefill token in the widest moment: attention's projections, or both products of its experts.

    The second is what sglang's fused kernel allocates: gate and up, their product, and every chosen expert's output.
    """
    heads = math.ceil(shape.heads / ranks)
    if shape.attention == "mla":
        attention = heads * (2 * (shape.nope_dim + shape.rope_dim) + 2 * shape.v_dim)
    else:
        attention = 2 * (heads + math.ceil(shape.kv_heads / ranks)) * shape.head_dim
    inner = math.ceil((shape.moe_intermediate or shape.dense_intermediate) / ranks)
    chosen = shape.experts_per_token if shape.experts else 1
    return 2 * (3 * shape.hidden + max(attention, chosen * (3 * inner + shape.hidden)))
