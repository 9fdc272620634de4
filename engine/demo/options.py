"""What the demo checkpoint shall look like."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from engine.errors import EngineError

Store = Literal["fp8", "bf16", "fp32"]
ProgressFunction = Callable[[str, int, int], None]
"""Called with (phase, bytes done, bytes in all) of each step."""


class DemoError(EngineError):
    """The demo model cannot be built here."""


@dataclass(frozen=True)
class DemoOptions:
    """Choices of the recipe; the defaults make the checkpoint that users get.

    Attributes:
        store: How linear weights are stored: ``fp8`` (e4m3 with a float32 scale for each 128x128 block),
            ``bf16`` or ``fp32``.
        hidden: Hidden size after zero-padding (a multiple of 128 for FP8); 0 keeps the dense model's 576.
        shards: Pieces the feed-forward layer is cut into; each becomes two experts, and as many are active. A
            power of two keeps every scaling exact.
        decoys: Experts with random weights that win only if the router's correction bias is ignored.
        seed: Of the shuffles and router rows.
        shard_bytes: Largest safetensors file, in bytes.
    """

    store: Store = "fp8"
    hidden: int = 640
    shards: int = 4
    decoys: int = 0
    seed: int = 0
    shard_bytes: int = 200 << 20

    def __post_init__(self) -> None:
        if self.store not in ("fp8", "bf16", "fp32"):
            raise DemoError(f"store {self.store!r} is none of fp8, bf16, fp32")
        if self.shards < 1 or self.shards & (self.shards - 1):
            raise DemoError(f"shards is {self.shards}; it must be a power of two")
        if self.decoys < 0 or self.shard_bytes < 1 << 20:
            raise DemoError("decoys cannot be negative, and a shard is at least 1 MiB")
