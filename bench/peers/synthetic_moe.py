"""Writes a GGUF of a Qwen3-MoE with random weights: as large as wanted, with the shapes of the real models.

usage: python -m bench.peers.synthetic_moe OUT.gguf [--weights q4_0] [--shape qwen3-30b] [--layers 6]

The numbers mean nothing; their sizes, their spread and the choice of experts are like a trained model's, so that it
costs what one costs. Each tensor repeats a pool of a few thousand blocks in random order. Q8_0 and Q4_0 blocks are
quantised from normal numbers by the gguf package; it can only read K blocks, so those are random bits under scales
that bring them to the wanted mean and spread. The tokenizer is that of another GGUF (by default the demo's).
"""

from __future__ import annotations

import argparse
import logging
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type
from numpy.typing import NDArray

from engine.gguf_header import GgufHeader, read_gguf_header

POOL_BLOCKS = 1 << 13
PART_BYTES = 1 << 25
MIXES: Mapping[str, tuple[Type, Type, Type, gguf.LlamaFileType]] = {
    "q8_0": (Type.Q8_0, Type.Q8_0, Type.Q8_0, gguf.LlamaFileType.MOSTLY_Q8_0),
    "q4_0": (Type.Q4_0, Type.Q4_0, Type.Q6_K, gguf.LlamaFileType.MOSTLY_Q4_0),
    "q4_k": (Type.Q4_K, Type.Q4_K, Type.Q6_K, gguf.LlamaFileType.MOSTLY_Q4_K_S),
    "q4_k_m": (Type.Q4_K, Type.Q6_K, Type.Q6_K, gguf.LlamaFileType.MOSTLY_Q4_K_M),
}
"""Name -> types of all matrices, of the experts' down projections, of the output layer, and what the file calls it."""


@dataclass(frozen=True)
class Shape:
    """Sizes of a Qwen3-MoE; the fields are those of its configuration."""

    hidden: int
    intermediate: int
    experts: int
    top: int
    heads: int
    kv_heads: int
    head_dim: int = 128
    layers: int = 6


SHAPES: Mapping[str, Shape] = {
    "qwen3-30b": Shape(2048, 768, 128, 8, 32, 4),
    "minimax": Shape(3072, 1536, 64, 8, 48, 8, layers=4),
    "qwen3-235b": Shape(4096, 1536, 128, 8, 64, 4, layers=2),
}


@dataclass(frozen=True)
class Tensor:
    """One tensor to write; ``spread`` is the standard deviation of its values, 0 for all ones."""

    name: str
    shape: tuple[int, ...]
    type: Type
    spread: float

    @property
    def nbytes(self) -> int:
        block, size = gguf.GGML_QUANT_SIZES[self.type]
        return int(np.prod(self.shape)) // block * size


def tensors(shape: Shape, mix: str, vocabulary: int) -> list[Tensor]:
    """All tensors, in the order of the file.

    Raises:
        ValueError: A matrix has columns that are not whole blocks of its type.
    """
    all_type, down_type, head_type, _ = MIXES[mix]
    h, inner, experts = shape.hidden, shape.intermediate, shape.experts
    q, kv = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim

    def matrix(name: str, *size: int, kind: Type = all_type, gain: float = 1.0) -> Tensor:
        block = gguf.GGML_QUANT_SIZES[kind][0]
        if size[-1] % block:
            raise ValueError(f"{name} has {size[-1]} columns, but {kind.name} packs {block} at a time")
        return Tensor(name, size, kind, gain * size[-1] ** -0.5)

    found = [
        matrix("token_embd.weight", vocabulary, h, gain=h**0.5),
        Tensor("output_norm.weight", (h,), Type.F32, 0),
        matrix("output.weight", vocabulary, h, kind=head_type, gain=4),
    ]
    for layer in range(shape.layers):
        at = f"blk.{layer}."
        found += [
            Tensor(at + "attn_norm.weight", (h,), Type.F32, 0),
            Tensor(at + "ffn_norm.weight", (h,), Type.F32, 0),
            Tensor(at + "attn_q_norm.weight", (shape.head_dim,), Type.F32, 0),
            Tensor(at + "attn_k_norm.weight", (shape.head_dim,), Type.F32, 0),
            matrix(at + "attn_q.weight", q, h),
            matrix(at + "attn_k.weight", kv, h),
            matrix(at + "attn_v.weight", kv, h),
            matrix(at + "attn_output.weight", h, q),
            matrix(at + "ffn_gate_inp.weight", experts, h, kind=Type.F32),
            matrix(at + "ffn_gate_exps.weight", experts, inner, h),
            matrix(at + "ffn_up_exps.weight", experts, inner, h),
            matrix(at + "ffn_down_exps.weight", experts, h, inner, kind=down_type),
        ]
    return found


def six_bit_pairs(scales: NDArray[np.uint8], minima: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The 12 bytes in which Q4_K and Q5_K hold 8 scales and 8 minima of 6 bits, ``[blocks, 8]`` each."""
    low = scales[:, :4] | (scales[:, 4:] >> 4) << 6, minima[:, :4] | (minima[:, 4:] >> 4) << 6
    return np.concatenate([*low, scales[:, 4:] & 15 | (minima[:, 4:] & 15) << 4], axis=1)


def block_pool(kind: Type, spread: float, dice: np.random.Generator) -> NDArray[np.uint8]:
    """Random blocks ``[POOL_BLOCKS, bytes]`` whose values have mean 0 and the wanted standard deviation."""
    columns, size = gguf.GGML_QUANT_SIZES[kind]
    if kind in {Type.F32, Type.Q8_0, Type.Q4_0}:
        values = dice.standard_normal((POOL_BLOCKS, columns), dtype=np.float32) * np.float32(spread)
        return gguf.quantize(values, kind).view(np.uint8).reshape(POOL_BLOCKS, size)
    blocks = dice.integers(0, 256, (POOL_BLOCKS, size), dtype=np.uint8)
    scales = dice.integers(24, 40, (POOL_BLOCKS, 8), dtype=np.uint8)

    def put(at: int, value: float) -> None:
        blocks[:, at : at + 2] = np.full(1, value, np.float16).view(np.uint8)

    if kind is Type.Q4_K:
        blocks[:, 4:16] = six_bit_pairs(scales, scales)
        unit = spread / (32 * (15 * 17 / 12) ** 0.5)  # of a uniform choice of 16 numbers, under a scale of 32
        put(0, unit)
        put(2, 7.5 * unit)
    elif kind is Type.Q6_K:
        blocks[:, 192:208] = dice.integers(24, 40, (POOL_BLOCKS, 16), dtype=np.uint8)
        put(208, spread / (32 * (63 * 65 / 12) ** 0.5))
    else:
        raise ValueError(f"random blocks of {kind.name} cannot be made")
    return blocks


def parts(tensor: Tensor, pool: NDArray[np.uint8], dice: np.random.Generator) -> Iterator[NDArray[np.uint8]]:
    """The tensor's bytes, a part at a time."""
    left = tensor.nbytes // pool.shape[1]
    while left:
        count = min(left, max(1, PART_BYTES // pool.shape[1]))
        yield pool[dice.integers(0, len(pool), count)]
        left -= count


def write(out: Path, shape: Shape, mix: str, vocabulary: GgufHeader, seed: int = 7) -> int:
    """Write the file and return its size in bytes. Equal arguments give equal files.

    Args:
        out: Where to.
        shape: The model's sizes.
        mix: A name in `MIXES`.
        vocabulary: Of a GGUF whose tokenizer is copied.
        seed: Of the weights.

    Raises:
        ValueError: Sizes do not fit the type's blocks, or the vocabulary has none.
        OSError: The disk has too little room, or cannot be written.
    """
    tokens = vocabulary.metadata.get("tokenizer.ggml.tokens")
    if not isinstance(tokens, list) or not tokens:
        raise ValueError(f"{vocabulary.path} holds no vocabulary (tokenizer.ggml.tokens)")
    rows = tensors(shape, mix, len(tokens))
    need = sum(row.nbytes for row in rows) + (1 << 24)
    free = shutil.disk_usage(out.parent).free
    if need > free:
        raise OSError(
            f"{out} needs {need / 1e9:.1f} GB, but {free / 1e9:.1f} GB are free there; choose another folder "
            "or fewer --layers"
        )
    writer = gguf.GGUFWriter(out, "qwen3moe")
    writer.add_name(f"synthetic {mix}")
    writer.add_block_count(shape.layers)
    writer.add_context_length(32768)
    writer.add_embedding_length(shape.hidden)
    writer.add_feed_forward_length(shape.intermediate * shape.top)
    writer.add_expert_feed_forward_length(shape.intermediate)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_key_length(shape.head_dim)
    writer.add_value_length(shape.head_dim)
    writer.add_rope_freq_base(1e6)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_expert_count(shape.experts)
    writer.add_expert_used_count(shape.top)
    writer.add_file_type(MIXES[mix][3])
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    copy_tokenizer(vocabulary, writer)
    for row in rows:
        writer.add_tensor_info(row.name, row.shape, np.dtype(np.float32), row.nbytes, raw_dtype=row.type)
    dice = np.random.default_rng(seed)
    pools: dict[tuple[Type, float], NDArray[np.uint8]] = {}
    try:
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        assert writer.fout
        (file,) = writer.fout
        writer.write_padding(file, file.tell())
        for row in rows:
            if row.spread:
                key = row.type, row.spread
                if key not in pools:
                    pools[key] = block_pool(*key, dice)
                for part in parts(row, pools[key], dice):
                    file.write(part.data)
            else:
                file.write(np.ones(row.shape, np.float32).data)
            writer.write_padding(file, row.nbytes)
    except BaseException:
        writer.close()
        out.unlink(missing_ok=True)  # half a model is worth nothing
        raise
    writer.close()
    return out.stat().st_size


def copy_tokenizer(source: GgufHeader, writer: gguf.GGUFWriter) -> None:
    """Copy the tokenizer and the chat template."""
    found = source.metadata
    kinds = {bool: writer.add_bool, int: writer.add_uint32, str: writer.add_string, list: writer.add_array}
    for key, value in found.items():
        if key.startswith("tokenizer.") and type(value) in kinds:
            kinds[type(value)](key, value)  # type: ignore[operator]


def demo_vocabulary() -> GgufHeader:
    """That of the dense model of the catalog, which comes with the development packages."""
    from engine.demo.source import find_gguf

    return read_gguf_header(find_gguf())


def main(argv: list[str] | None = None) -> int:
    """Write one file."""
    parser = argparse.ArgumentParser(description="a Qwen3-MoE GGUF with random weights")
    parser.add_argument("out", type=Path)
    parser.add_argument("--weights", choices=MIXES, default="q4_0", help="types of the matrices")
    parser.add_argument("--shape", choices=SHAPES, default="qwen3-30b")
    parser.add_argument("--layers", type=int, help="instead of the shape's own number")
    parser.add_argument("--experts", type=int, help="instead of the shape's own number")
    parser.add_argument("--vocabulary", type=Path, metavar="GGUF", help="whose tokenizer is copied")
    arguments = parser.parse_args(argv)
    shape = SHAPES[arguments.shape]
    shape = replace(
        shape, layers=arguments.layers or shape.layers, experts=arguments.experts or shape.experts
    )
    logging.disable(logging.INFO)
    vocabulary = read_gguf_header(arguments.vocabulary) if arguments.vocabulary else demo_vocabulary()
    try:
        size = write(arguments.out, shape, arguments.weights, vocabulary)
    except (ValueError, OSError) as reason:
        print(f"error: {reason}", file=sys.stderr)
        return 1
    print(f"{arguments.out}: {size / 1e9:.2f} GB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
