"""What a model costs a machine a token: bytes to read and operations to compute, whichever source tells its shape."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from engine.budget import ModelShape as EngineShape
from engine.budget import WeightBytes, bytes_read_per_token
from kt_tui.catalog.shape import ModelShape, weight_bytes

# Format of a checkpoint or of its experts -> the calibrated kernel that is nearest to it.
KERNELS: Mapping[str, str] = {
    "fp8": "fp8_block128",
    "fp8-channel": "fp8_block128",
    "mxfp8": "fp8_block128",
    "bf16": "bf16",
    "fp16": "bf16",
    "int4": "int4_g32",
    "gptq-int4": "int4_g32",
    "mxfp4": "mxfp4",
    "q4_0": "q4_1",
    "q4_1": "q4_1",
    "q4_k": "q4_k",
    "q4_k_m": "q4_k",
    "q5_k": "q4_k",
    "q6_k": "q4_k",
    "q8_0": "q8_0",
    "int8": "q8_0",
}


@dataclass(frozen=True)
class Work:
    """Costs of a model.

    Attributes:
        chosen_bytes: Routed experts that one token reads, all layers.
        other_bytes: Everything else that one token reads: attention, shared experts, routers, the output projection.
        expert_bytes: All routed experts.
        total_bytes: All weights that decoding reads sooner or later.
        chosen_ops: Operations a token in routed experts (two a weight).
        other_ops: Operations a prompt token in everything else; the output projection is computed once a prompt.
        attention_ops: Operations for each pair of tokens that look at one another.
        experts: Routed experts of a layer; 0 for a dense model.
        experts_per_token: Those that a token passes.
        kernel: Name of the calibrated kernel.
    """

    chosen_bytes: int
    other_bytes: int
    expert_bytes: int
    total_bytes: int
    chosen_ops: float
    other_ops: float
    attention_ops: float
    experts: int
    experts_per_token: int
    kernel: str = ""

    @property
    def bytes_per_token(self) -> int:
        """Bytes of weights that decoding one token reads."""
        return self.chosen_bytes + self.other_bytes

    def expert_bytes_touched(self, tokens: int) -> float:
        """Bytes of routed experts that so many tokens touch at least once, if each chooses evenly."""
        if not self.experts:
            return 0.0
        return self.expert_bytes * (1.0 - (1.0 - self.experts_per_token / self.experts) ** tokens)


def work_of_checkpoint(shape: EngineShape, weights: WeightBytes, fmt: str = "") -> Work:
    """The costs by a checkpoint's own headers."""
    read = bytes_read_per_token(shape, weights)
    chosen = weights.experts * shape.experts_per_token // shape.experts if shape.experts else 0
    feed_forward = 3 * shape.hidden * shape.intermediate
    attention = shape.hidden * shape.head_dim * (2 * shape.heads + 2 * shape.kv_heads)
    dense = 0 if shape.experts else feed_forward
    return Work(
        chosen_bytes=chosen,
        other_bytes=read - chosen,
        expert_bytes=weights.experts,
        total_bytes=weights.experts + weights.other + (weights.head or weights.embedding),
        chosen_ops=2.0 * shape.layers * shape.experts_per_token * feed_forward if shape.experts else 0.0,
        other_ops=2.0 * shape.layers * (attention + dense),
        attention_ops=4.0 * shape.layers * shape.heads * shape.head_dim,
        experts=shape.experts,
        experts_per_token=shape.experts_per_token,
        kernel=KERNELS.get(fmt.rpartition("-")[2], ""),
    )


def work_of_shape(shape: ModelShape, formats: Mapping[str, str]) -> Work | None:
    """The costs by the catalogue's shape, before any file is there; None without formats."""
    routed, other = formats.get("experts"), formats.get("other")
    if routed is None or other is None:
        return None
    groups = shape.groups()
    rest = sum(groups[name] for name in ("attention", "dense", "shared_experts"))
    plain = sum(groups[name] for name in ("router", "norms")) + (groups["head"] or groups["embedding"])
    experts = weight_bytes(groups["experts"], routed)
    chosen = experts * shape.experts_per_token // shape.experts if shape.experts else 0
    read_always = weight_bytes(rest, other) + weight_bytes(plain, "q4_k_m" if other == "q4_k_m" else "bf16")
    width = shape.kv_lora + shape.rope_dim if shape.attention == "mla" else shape.head_dim
    return Work(
        chosen_bytes=chosen,
        other_bytes=read_always,
        expert_bytes=experts,
        total_bytes=experts + read_always,
        chosen_ops=2.0 * shape.moe_layers * shape.experts_per_token * shape.expert_parameters()
        if shape.experts
        else 0.0,
        other_ops=2.0 * (rest + groups["router"]),
        attention_ops=4.0 * (shape.layers - shape.linear_layers) * shape.heads * width,
        experts=shape.experts,
        experts_per_token=shape.experts_per_token,
        kernel=KERNELS.get(routed, ""),
    )
