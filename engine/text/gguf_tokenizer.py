"""The tokenizer inside a GGUF file.

transformers' own conversion is wrong for some files: for SmolLM2 it loses the splitting of digits and most control
tokens. So the tokenizer is built here from the file's own fields, for the pre-tokenizers that are known to be right
(``smollm`` compared string by string with llama.cpp's, ``qwen2`` with transformers' class); any other is refused by
name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from engine.errors import EngineError
from engine.gguf_header import GgufHeader, read_gguf_header

_CONTROL = 3  # tokenizer.ggml.token_type of a token that is never text
_USER_DEFINED = 4  # of one that is text, but is never cut or merged, such as Qwen3's <think>


class TokenizerError(EngineError):
    """A GGUF tokenizer that is incomplete, or of a kind that is not known to be read right."""


@dataclass(frozen=True)
class GgufTokenizer:
    """A tokenizer and what else its file says about text.

    Attributes:
        tokenizer: Ready to encode and decode; control tokens in a text are recognised.
        chat_template: Jinja source; None when the file has none.
        bos_id: Token that begins a text; None when there is none.
        eos_id: Token that ends a turn; None when there is none.
        unknown_id: Token for what has none; None when there is none.
        padding_id: Token for padding; None when there is none.
        special_ids: All control tokens, ascending.
        add_bos: Whether plain text is to begin with ``bos_id``.
        context_length: Longest context in tokens; None when the file does not say.
    """

    tokenizer: Tokenizer
    chat_template: str | None
    bos_id: int | None
    eos_id: int | None
    unknown_id: int | None
    padding_id: int | None
    special_ids: tuple[int, ...]
    add_bos: bool
    context_length: int | None

    def token(self, number: int | None) -> str | None:
        """The text of a token; None for None."""
        return None if number is None else self.tokenizer.id_to_token(number)


def _smollm(tokenizer: Tokenizer) -> None:
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=True, use_regex=True),
        ]
    )


_QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""How Qwen2 and Qwen3 cut text, from the ``tokenizer.json`` of the models."""


def _qwen2(tokenizer: Tokenizer) -> None:
    # The models were trained on composed characters (NFC); GGUF files do not say so, their makers leave it out.
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_QWEN2), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


PRE_TOKENIZERS: Mapping[str, Callable[[Tokenizer], None]] = {"smollm": _smollm, "qwen2": _qwen2}
"""``tokenizer.ggml.pre`` -> sets how text is normalised and cut before byte-pair merging."""


def build_tokenizer(source: GgufHeader | Path) -> GgufTokenizer:
    """Build the tokenizer of a GGUF file.

    Args:
        source: The file, or its header if it was read already.

    Raises:
        TokenizerError: A field is missing or wrong, or the kind is not known here.
        GgufError: The file is cut short or damaged.
        OSError: The file cannot be opened.
    """
    header = read_gguf_header(source) if isinstance(source, Path) else source
    fields = header.metadata
    kind, pre = fields.get("tokenizer.ggml.model"), fields.get("tokenizer.ggml.pre")
    if kind != "gpt2":
        raise TokenizerError(
            f"{header.path}: tokenizer of kind {kind!r} is not supported; supported is 'gpt2'"
        )
    if not isinstance(pre, str) or pre not in PRE_TOKENIZERS:
        raise TokenizerError(
            f"{header.path}: pre-tokenizer {pre!r} is not supported; supported: {', '.join(PRE_TOKENIZERS)}"
        )
    tokens = _strings(header, "tokenizer.ggml.tokens")
    merges = [_pair(header, merge) for merge in _strings(header, "tokenizer.ggml.merges")]
    special, whole = (
        _ids_of_kind(header, _CONTROL, len(tokens)),
        _ids_of_kind(header, _USER_DEFINED, len(tokens)),
    )
    vocabulary = {token: number for number, token in enumerate(tokens)}
    if len(vocabulary) != len(tokens):
        raise TokenizerError(f"{header.path}: the vocabulary holds a token twice; the file is damaged")
    try:
        tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    except Exception as error:  # the library raises plain Exception for a merge of unknown tokens
        raise TokenizerError(f"{header.path}: the merges do not fit the vocabulary ({error})") from error
    PRE_TOKENIZERS[pre](tokenizer)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(tokens[i], normalized=False, special=True) for i in special])
    tokenizer.add_tokens([AddedToken(tokens[i], normalized=False, special=False) for i in whole])

    def token_id(name: str) -> int | None:
        number = fields.get(f"tokenizer.ggml.{name}_token_id")
        return number if isinstance(number, int) and 0 <= number < len(tokens) else None

    template = fields.get("tokenizer.chat_template")
    context = fields.get(f"{header.architecture}.context_length")
    return GgufTokenizer(
        tokenizer=tokenizer,
        chat_template=template if isinstance(template, str) else None,
        bos_id=token_id("bos"),
        eos_id=token_id("eos"),
        unknown_id=token_id("unknown"),
        padding_id=token_id("padding"),
        special_ids=special,
        add_bos=fields.get("tokenizer.ggml.add_bos_token") is True,
        context_length=context if isinstance(context, int) else None,
    )


def _strings(header: GgufHeader, key: str) -> list[str]:
    values: Any = header.metadata.get(key)
    if not isinstance(values, list) or not values or not all(isinstance(value, str) for value in values):
        raise TokenizerError(f"{header.path}: {key} is missing or no list of strings; the file is damaged")
    return values


def _pair(header: GgufHeader, merge: str) -> tuple[str, str]:
    left, _, right = merge.partition(" ")
    if not left or not right:
        raise TokenizerError(f"{header.path}: {merge!r} is no merge of two tokens; the file is damaged")
    return left, right


def _ids_of_kind(header: GgufHeader, wanted: int, count: int) -> tuple[int, ...]:
    kinds: Any = header.metadata.get("tokenizer.ggml.token_type")
    if not isinstance(kinds, list) or len(kinds) != count:
        raise TokenizerError(f"{header.path}: tokenizer.ggml.token_type does not fit the vocabulary")
    return tuple(number for number, kind in enumerate(kinds) if kind == wanted)
