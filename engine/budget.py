"""The bytes that an engine configuration needs, worked out from headers before anything is loaded.

The panel plans with these functions and the engine allocates by them. Needs neither torch nor a weight: shapes
come from ``config.json`` or the GGUF metadata, sizes from the tensor tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.errors import CheckpointError

if TYPE_CHECKING:
    from engine.weights.index import Checkpoint

ARCHITECTURES = (
    "LlamaForCausalLM",
    "MiniMaxM2ForCausalLM",
    "MixtralForCausalLM",
    "Qwen3ForCausalLM",
    "Qwen3MoeForCausalLM",
)
"""The architectures that the engine runs and these formulas hold for (the keys of `engine.models.registry`)."""

PAGE_TOKENS = 64
"""Tokens of a page of the key-value cache."""

KV_ITEM_BYTES = 4
"""Bytes of a key's or value's element: float32, because attention computes in it on the CPU."""

KV_MEMORY_SHARE = 0.25
"""Part of the memory left beside the weights that a key-value cache nobody chose may take."""

RUNTIME_BYTES = 256 << 20
"""Python, torch and the server without a model: about 230 MiB resident measured (torch 2.13 for CPUs, 2 threads)."""

PACKED_BLOCKS = {
    "Q4_K": (144, 148), "Q5_K": (176, 180), "F16": (2, 4), "F64": (8, 4), "Q5_0": (22, 34), "Q5_1": (24, 34),
    "Q2_K": (84, 272), "Q3_K": (110, 210), "IQ1_S": (50, 210), "IQ1_M": (56, 210), "IQ2_XXS": (66, 272),
    "IQ2_XS": (74, 272), "IQ2_S": (82, 272), "IQ3_XXS": (98, 272), "IQ3_S": (110, 210), "IQ4_NL": (18, 34),
    "IQ4_XS": (136, 272), "TQ1_0": (54, 144), "TQ2_0": (66, 144),
}  # fmt: skip
"""Bytes of a block in a GGUF file and in memory, where these differ: what no kernel multiplies with is converted
(`engine.weights.formats`), and blocks of some formats are larger when packed (``csrc/kernels.h``)."""

_CHECKED_ONLY = ("qzeros", "g_idx", "weight_shape")
"""Tensors beside 4-bit weights that are looked at, but not kept."""

_EMBEDDINGS = ("embed_tokens", "lm_head", "token_embd")
_MOST = 1 << 31


@dataclass(frozen=True, slots=True)
class ModelShape:
    """The dimensions of a model that decide its size.

    Attributes:
        architecture: As the configuration names it (``MiniMaxM2ForCausalLM``).
        layers: Transformer layers.
        hidden: Width of the residual stream.
        heads: Query heads.
        kv_heads: Key and value heads.
        head_dim: Width of a head.
        intermediate: Inner width of a feed-forward layer, or of one expert.
        vocab: Tokens in the vocabulary.
        context_length: Tokens of a sequence that the model was made for.
        experts: Routed experts of a layer; 0 for a dense model.
        experts_per_token: Routed experts that a token passes through.
    """

    architecture: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    context_length: int
    experts: int = 0
    experts_per_token: int = 0


STORES = {"int8": (1.0, 4), "int8_g32": (34 / 32, 0), "int4": (0.5, 4), "int4_g32": (18 / 32, 0)}
"""Integer formats made at load: bytes of a number, and of a row beside its numbers (``csrc/kernels.h``)."""

_FLOATS = ("BF16", "F16", "F32", "F8_E4M3")
_SCALES = ("weight_scale", "weight_scale_inv")
_GPTQ_SCALES = ".scales"


@dataclass(frozen=True, slots=True)
class Floats:
    """Matrices in float formats, which can be stored as integers.

    Attributes:
        numbers: Their elements.
        rows: Their rows.
        nbytes: Their bytes as they are, scales included.
    """

    numbers: int = 0
    rows: int = 0
    nbytes: int = 0


@dataclass(frozen=True, slots=True)
class WeightBytes:
    """Bytes of a checkpoint's weights by what they are for.

    Attributes:
        experts: Routed experts with their scales.
        embedding: The input embedding.
        head: The output projection; 0 when it shares the embedding.
        other: Everything else: attention, norms, routers, dense feed-forward layers.
        floats: What of each kind can be stored as integers.
    """

    experts: int
    embedding: int
    head: int
    other: int
    floats: Mapping[str, Floats] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """All of them."""
        return self.experts + self.embedding + self.head + self.other

    def stored(self, store: str) -> WeightBytes:
        """The bytes with matrices in float formats stored as ``store``, one of `STORES` or ``keep``."""
        if store not in STORES:
            return self
        number, row = STORES[store]
        sizes = {kind: getattr(self, kind) for kind in ("experts", "embedding", "head", "other")}
        for kind, now in self.floats.items():
            sizes[kind] += int(now.numbers * number) + now.rows * row - now.nbytes
        return WeightBytes(**sizes)


@dataclass(frozen=True, slots=True)
class Budget:
    """What an engine process takes of main memory, in bytes.

    Attributes:
        weights_experts: Routed experts.
        weights_other: All other weights.
        kv_cache: The key-value cache when it is full.
        activations: Scratch of the largest step.
        runtime: The process without a model.
    """

    weights_experts: int
    weights_other: int
    kv_cache: int
    activations: int
    runtime: int

    @property
    def parts(self) -> dict[str, int]:
        """Part -> bytes."""
        return {name: getattr(self, name) for name in self.__slots__}

    @property
    def total(self) -> int:
        """The sum of the parts."""
        return sum(self.parts.values())


def model_shape(config: Mapping[str, Any]) -> ModelShape:
    """Read the dimensions from a ``config.json`` (or GGUF metadata in its words).

    Raises:
        CheckpointError: A dimension is missing or makes no sense; the message names its key.
    """
    heads = _dimension(config, "num_attention_heads")
    hidden = _dimension(config, "hidden_size")
    experts = _dimension(config, "num_local_experts", "num_experts", "n_routed_experts", default=0)
    width_keys = ("moe_intermediate_size", "intermediate_size") if experts else ("intermediate_size",)
    architectures = config.get("architectures")
    named = isinstance(architectures, list) and architectures and isinstance(architectures[0], str)
    return ModelShape(
        architecture=architectures[0] if named and isinstance(architectures, list) else "unknown",
        layers=_dimension(config, "num_hidden_layers"),
        hidden=hidden,
        heads=heads,
        kv_heads=_dimension(config, "num_key_value_heads", default=heads),
        head_dim=_dimension(config, "head_dim", default=hidden // heads),
        intermediate=_dimension(config, *width_keys),
        vocab=_dimension(config, "vocab_size"),
        context_length=_dimension(config, "max_position_embeddings"),
        experts=experts,
        experts_per_token=_dimension(config, "num_experts_per_tok") if experts else 0,
    )


def _dimension(config: Mapping[str, Any], *keys: str, default: int | None = None) -> int:
    for key in keys:
        value = config.get(key)
        if value is None:
            continue
        if type(value) is not int or not 0 < value < _MOST:
            raise CheckpointError(
                f"the model's configuration says {key}={str(value)[:40]}, which makes no sense"
            )
        return value
    if default is None:
        raise CheckpointError(
            f"the model's configuration lacks {keys[0]}; its files are of another kind or damaged"
        )
    return default


def tensor_kind(name: str) -> str:
    """What a tensor is for, by its hub name: ``experts``, ``embedding``, ``head`` or ``other``."""
    parts = name.split(".")
    if "experts" in parts and any(part.isdigit() for part in parts[parts.index("experts") :]):
        return "experts"
    if "lm_head" in parts:
        return "head"
    return "embedding" if any(part in _EMBEDDINGS for part in parts) else "other"


def read_budget_inputs(path: Path) -> tuple[ModelShape, WeightBytes]:
    """Read a checkpoint's headers; weights count as the kernels keep them.

    Raises:
        CheckpointError: It is missing, cut short, damaged or of a kind that the engine does not load.
    """
    from engine.weights.index import open_checkpoint

    checkpoint = open_checkpoint(path)
    return model_shape(checkpoint.config), checkpoint_weight_bytes(checkpoint)


def checkpoint_weight_bytes(checkpoint: Checkpoint) -> WeightBytes:
    """The weights of a checkpoint as the kernels keep them."""
    floats = {kind: [0, 0, 0] for kind in ("experts", "embedding", "head", "other")}
    sizes = dict.fromkeys(("experts", "embedding", "head", "other"), 0)
    has_head = any(tensor_kind(name) == "head" for name in checkpoint.tensors)
    for name, tensor in checkpoint.tensors.items():
        if name.endswith(_CHECKED_ONLY):
            continue
        kind = tensor_kind(name)
        # An embedding stays in the mapped file, but as an output projection it is packed like any other matrix.
        mapped = kind == "embedding" and has_head
        as_is = mapped or name.endswith(_GPTQ_SCALES)
        stored, packed = (1, 1) if as_is else PACKED_BLOCKS.get(tensor.dtype, (1, 1))
        size = tensor.raw.size // stored * packed
        sizes[kind] += size
        scale = name.endswith(_SCALES)
        matrix = len(tensor.shape) == 2 and tensor.dtype in _FLOATS and not name.endswith(".gate.weight")
        if scale or (matrix and not as_is):
            rows, columns = (0, 0) if scale else tensor.shape
            floats[kind] = [a + b for a, b in zip(floats[kind], (rows * columns, rows, size), strict=True)]
    kinds = {kind: Floats(*found) for kind, found in floats.items() if found[0]}
    return WeightBytes(**sizes, floats=kinds)


def config_weight_bytes(config: Mapping[str, Any]) -> WeightBytes:
    """The weights of a MiniMax-M2 model by its configuration alone, as its published checkpoints store them.

    Linear maps in FP8 (one byte, and a float32 scale for each 128x128 block) or else in the configuration's dtype;
    routers and their correction bias in float32; embeddings and norms in the configuration's dtype.

    Raises:
        CheckpointError: Another architecture, or a dimension is missing.
    """
    shape = model_shape(config)
    if shape.architecture != "MiniMaxM2ForCausalLM":
        raise CheckpointError(f"the size of {shape.architecture} cannot be worked out without its files")
    item = 4 if config.get("torch_dtype") == "float32" else 2
    quantized = config.get("quantization_config")
    fp8 = isinstance(quantized, Mapping) and quantized.get("quant_method") == "fp8"

    def linear(rows: int, columns: int) -> int:
        return rows * columns + -(-rows // 128) * -(-columns // 128) * 4 if fp8 else rows * columns * item

    query, key = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    hidden, inner = shape.hidden, shape.intermediate
    attention = linear(query, hidden) + 2 * linear(key, hidden) + linear(hidden, query)
    norms = (2 * hidden + (query + key if config.get("use_qk_norm") else 0)) * item
    router = shape.experts * (hidden + (1 if config.get("use_routing_bias") else 0)) * 4
    embedding = shape.vocab * hidden * item
    tied, layers = bool(config.get("tie_word_embeddings")), shape.layers
    each = shape.experts * layers
    experts = each * (2 * linear(inner, hidden) + linear(hidden, inner))
    floats = {
        "experts": Floats(each * 3 * inner * hidden, each * (2 * inner + hidden), experts),
        "embedding" if tied else "head": Floats(shape.vocab * hidden, shape.vocab, embedding),
        "other": Floats(
            layers * 2 * (query + key) * hidden, layers * (query + 2 * key + hidden), layers * attention
        ),
    }
    return WeightBytes(
        experts=experts,
        embedding=embedding,
        head=0 if tied else embedding,
        other=layers * (attention + norms + router) + hidden * item,
        floats=floats,
    )


def kv_bytes_per_token(shape: ModelShape) -> int:
    """Bytes that one token takes in the key-value cache: a key and a value for each head of each layer."""
    return shape.layers * 2 * shape.kv_heads * shape.head_dim * KV_ITEM_BYTES


def whole_pages(tokens: int) -> int:
    """Tokens rounded up to whole pages."""
    return -(-tokens // PAGE_TOKENS) * PAGE_TOKENS


def kv_bytes(shape: ModelShape, max_total_tokens: int) -> int:
    """Bytes of a key-value cache of that many tokens, rounded up to whole pages."""
    return whole_pages(max_total_tokens) * kv_bytes_per_token(shape)


def activation_bytes(shape: ModelShape, chunk: int, max_running_requests: int) -> int:
    """An upper estimate of the scratch that a step needs, in bytes; all of it is float32.

    A layer holds at once, for each of the step's tokens: the stream, its norm, the layer's output and a copy that
    a kernel may make (4 hidden); queries, keys and values, attention's output, and rotated copies; and for each
    expert that it passes through the inner vector, gate and up. Attention reads a history that lies in several
    pieces through a copy of one layer's keys and values. Logits exist for one token a request.

    Args:
        shape: The model.
        chunk: Prompt tokens that one step computes.
        max_running_requests: Requests that take part in a step, each with at least one token.
    """
    tokens = chunk + max_running_requests
    attention = shape.head_dim * (3 * shape.heads + 4 * shape.kv_heads)
    inner = 3 * shape.intermediate * max(1, shape.experts_per_token)
    step = tokens * (4 * shape.hidden + attention + inner)
    history = 2 * shape.kv_heads * shape.head_dim * shape.context_length
    mask = min(chunk, shape.context_length) * shape.context_length
    logits = max_running_requests * shape.vocab
    return 4 * (step + history + mask + logits)


def default_total_tokens(shape: ModelShape, free_bytes: int | None) -> int:
    """Size of a key-value cache that nobody chose: one full context, as far as memory allows.

    Args:
        shape: The model, with the context length in force.
        free_bytes: Memory left beside the weights; None if unknown.

    Returns:
        Tokens in whole pages; 0 if not even one page fits into `KV_MEMORY_SHARE` of the memory.
    """
    wanted = whole_pages(shape.context_length)
    if free_bytes is None:
        return wanted
    fits = int(max(0, free_bytes) * KV_MEMORY_SHARE) // kv_bytes_per_token(shape)
    return min(wanted, fits // PAGE_TOKENS * PAGE_TOKENS)


def engine_budget(
    shape: ModelShape, weights: WeightBytes, *, max_total_tokens: int, chunk: int, max_running_requests: int
) -> Budget:
    """All of an engine process's memory on a machine without a GPU."""
    return Budget(
        weights_experts=weights.experts,
        weights_other=weights.total - weights.experts,
        kv_cache=kv_bytes(shape, max_total_tokens),
        activations=activation_bytes(shape, chunk, max_running_requests),
        runtime=RUNTIME_BYTES,
    )


def bytes_read_per_token(shape: ModelShape, weights: WeightBytes) -> int:
    """Weight bytes that decoding one token reads: chosen experts, the output projection and all else but embedding.

    A shared embedding is read whole as the output projection.
    """
    chosen = weights.experts * shape.experts_per_token // shape.experts if shape.experts else 0
    return chosen + (weights.head or weights.embedding) + weights.other
