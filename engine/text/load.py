"""Reads the text side of a checkpoint: a directory in the Hugging Face layout, or a GGUF file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from engine.errors import CheckpointError
from engine.gguf_header import read_gguf_header
from engine.text.gguf_tokenizer import build_tokenizer
from engine.text.model import TextModel
from engine.text.template import ChatTemplate

_SPECIAL_NAMES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_SAMPLING_NAMES = ("temperature", "top_k", "top_p", "min_p")
_GGUF_TEMPERATURE = 0.7  # for a file that recommends nothing: small quantised models ramble at 1
# JSON files of a checkpoint other than the tokenizer are small; a larger one is not what its name says.
_LARGEST_JSON = 64 << 20


def load_text(model: Path) -> TextModel:
    """Read tokenizer, chat template, end tokens and default sampling.

    Args:
        model: A checkpoint directory or a GGUF file.

    Raises:
        CheckpointError: A file is missing or damaged; the message names it.
    """
    try:
        return _from_directory(model) if model.is_dir() else _from_gguf(model)
    except OSError as error:
        raise CheckpointError(
            f"{error.filename or model} cannot be read ({error.strerror or error})."
        ) from error


def _from_directory(directory: Path) -> TextModel:
    path = directory / "tokenizer.json"
    if not path.is_file():
        raise CheckpointError(
            f"{directory} has no tokenizer.json: the checkpoint is incomplete, fetch it again."
        )
    try:
        tokenizer: Tokenizer = Tokenizer.from_buffer(path.read_bytes())
    except OSError:
        raise
    except Exception as error:  # tokenizers raises bare Exception for whatever is wrong in the file
        raise CheckpointError(f"{path} is damaged ({_brief(error)}): fetch it again.") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    settings = _read_json(directory / "tokenizer_config.json")
    generation = _read_json(directory / "generation_config.json")
    config = _read_json(directory / "config.json")
    special = _special_tokens(settings)
    ends = set(_ids(generation.get("eos_token_id"))) | set(_ids(config.get("eos_token_id")))
    eos = tokenizer.token_to_id(special["eos_token"]) if "eos_token" in special else None
    if eos is not None:
        ends.add(eos)
    found = _template_source(directory, settings)
    template = ChatTemplate(found[0], found[1], special) if found else None
    return TextModel(tokenizer, template, frozenset(ends), _sampling(generation))


def _from_gguf(path: Path) -> TextModel:
    header = read_gguf_header(path)
    found = build_tokenizer(header)
    roles = {
        "bos_token": found.bos_id,
        "eos_token": found.eos_id,
        "unk_token": found.unknown_id,
        "pad_token": found.padding_id,
    }
    tokens = {name: found.tokenizer.id_to_token(i) for name, i in roles.items() if i is not None}
    special = {name: token for name, token in tokens.items() if token is not None}
    # A file may name an end of turn and an end of message besides its end of text.
    ends = {
        i
        for end in ("eos", "eot", "eom")
        for i in _ids(header.metadata.get(f"tokenizer.ggml.{end}_token_id"))
    }
    template = ChatTemplate(found.chat_template, str(path), special) if found.chat_template else None
    begin = found.bos_id if found.add_bos else None
    sampling = {"temperature": _GGUF_TEMPERATURE, **_gguf_sampling(header.metadata)}
    return TextModel(found.tokenizer, template, frozenset(ends), sampling, begin_id=begin)


def _template_source(directory: Path, settings: Mapping[str, Any]) -> tuple[str, str] | None:
    """The chat template and the name of its file; a file of its own goes before tokenizer_config.json."""
    path = directory / "chat_template.jinja"
    if path.is_file():
        return path.read_text("utf-8", errors="replace"), str(path)
    source = settings.get("chat_template")
    if isinstance(source, list):  # several named templates
        named = {t.get("name"): t.get("template") for t in source if isinstance(t, dict)}
        source = named.get("default")
    if isinstance(source, str) and source:
        return source, str(directory / "tokenizer_config.json")
    return None


def _special_tokens(settings: Mapping[str, Any]) -> dict[str, str]:
    """Special tokens by their role; each is written as a text or as an object with ``content``."""
    tokens = {}
    for name in _SPECIAL_NAMES:
        value = settings.get(name)
        if isinstance(value, dict):
            value = value.get("content")
        if isinstance(value, str):
            tokens[name] = value
    return tokens


def _gguf_sampling(metadata: Mapping[str, Any]) -> dict[str, float]:
    """``general.sampling.*`` as newer converters write it."""
    keys = {"temperature": "temp", "top_k": "top_k", "top_p": "top_p", "min_p": "min_p"}
    return _sampling({name: metadata.get(f"general.sampling.{key}") for name, key in keys.items()})


def _sampling(generation: Mapping[str, Any]) -> dict[str, float]:
    if generation.get("do_sample") is False:
        return {"temperature": 0.0}
    values = {name: generation.get(name) for name in _SAMPLING_NAMES}
    return {name: v for name, v in values.items() if isinstance(v, int | float) and not isinstance(v, bool)}


def _ids(value: object) -> list[int]:
    """Token ids given as one number, as a list, or not at all."""
    items = value if isinstance(value, list) else [value]
    return [i for i in items if isinstance(i, int) and not isinstance(i, bool) and i >= 0]


def _read_json(path: Path) -> dict[str, Any]:
    """A JSON object, or an empty one where there is no such file."""
    if not path.is_file():
        return {}
    if path.stat().st_size > _LARGEST_JSON:
        raise CheckpointError(
            f"{path} is larger than {_LARGEST_JSON} bytes, so it is not what its name says."
        )
    try:
        document = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is not valid JSON ({_brief(error)}): fetch it again.") from error
    if not isinstance(document, dict):
        raise CheckpointError(f"{path} must hold a JSON object: fetch it again.")
    return document


def _brief(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return "".join(c for c in text if c.isprintable())[:200] or type(error).__name__
