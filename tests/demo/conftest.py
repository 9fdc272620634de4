"""A dense model small enough to turn into experts in a moment."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

LAYERS, HIDDEN, FFN, HEADS, KV_HEADS, HEAD_DIM, VOCAB = 2, 96, 128, 3, 1, 32, 96


@pytest.fixture
def dense_gguf(write_gguf: Callable[..., Path]) -> Path:
    """A random two-layer Llama with a byte-pair tokenizer."""
    random = np.random.default_rng(7)

    def matrix(rows: int, columns: int, kind: str = "F32") -> tuple[Any, str]:
        return (random.standard_normal((rows, columns)) / np.sqrt(columns)).astype(np.float32), kind

    def norm() -> tuple[Any, str]:
        return (1 + 0.2 * random.standard_normal(HIDDEN)).astype(np.float32), "F32"

    tensors = {"token_embd.weight": matrix(VOCAB, HIDDEN, "Q8_0"), "output_norm.weight": norm()}
    for layer in range(LAYERS):
        block = f"blk.{layer}."
        tensors |= {
            block + "attn_q.weight": matrix(HEADS * HEAD_DIM, HIDDEN, "Q4_1"),
            block + "attn_k.weight": matrix(KV_HEADS * HEAD_DIM, HIDDEN),
            block + "attn_v.weight": matrix(KV_HEADS * HEAD_DIM, HIDDEN),
            block + "attn_output.weight": matrix(HIDDEN, HEADS * HEAD_DIM),
            block + "attn_norm.weight": norm(),
            block + "ffn_norm.weight": norm(),
            block + "ffn_gate.weight": matrix(FFN, HIDDEN, "Q4_1"),
            block + "ffn_up.weight": matrix(FFN, HIDDEN),
            block + "ffn_down.weight": matrix(HIDDEN, FFN),
        }
    tokens = ["<s>", "</s>", *map(chr, range(33, 33 + VOCAB - 3)), "ab"]
    metadata = {
        "llama.block_count": LAYERS,
        "llama.embedding_length": HIDDEN,
        "llama.feed_forward_length": FFN,
        "llama.attention.head_count": HEADS,
        "llama.attention.head_count_kv": KV_HEADS,
        "llama.rope.dimension_count": HEAD_DIM,
        "llama.rope.freq_base": 10000.0,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.context_length": 128,
        "llama.vocab_size": VOCAB,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3, 3] + [1] * (VOCAB - 2),
        "tokenizer.ggml.merges": ["a b"],
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": 1,
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.padding_token_id": 1,
        "tokenizer.chat_template": "{% for m in messages %}{{ m.content }}{% endfor %}",
    }
    return write_gguf("dense.gguf", metadata, tensors)
