"""The tokenizer of a GGUF file against ids that llama.cpp gave for the same prompts."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import pre_tokenizers
from transformers import Qwen2Tokenizer

from engine.errors import EngineError
from engine.gguf_header import read_gguf_header
from engine.text.gguf_tokenizer import GgufTokenizer, TokenizerError, build_tokenizer

PROMPTS = json.loads(
    (Path(__file__).parents[2] / "cases" / "smollm2_prompts.json").read_text(encoding="utf-8")
)
WriteGguf = Callable[..., Path]


@pytest.fixture(scope="module")
def smollm2(smollm2_gguf: Path) -> GgufTokenizer:
    return build_tokenizer(smollm2_gguf)


@pytest.mark.parametrize("case", PROMPTS, ids=lambda case: case["messages"][-1]["content"][:20])
def test_prompts_have_the_known_ids(smollm2: GgufTokenizer, case: dict[str, Any]) -> None:
    assert smollm2.tokenizer.encode(case["prompt"], add_special_tokens=False).ids == case["ids"]
    assert smollm2.tokenizer.decode(case["ids"], skip_special_tokens=False) == case["prompt"]


@pytest.mark.parametrize("case", PROMPTS, ids=lambda case: case["messages"][-1]["content"][:20])
def test_its_template_renders_the_known_prompts(smollm2: GgufTokenizer, case: dict[str, Any]) -> None:
    assert smollm2.chat_template is not None
    template = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True).from_string(
        smollm2.chat_template
    )
    assert template.render(messages=case["messages"], add_generation_prompt=True) == case["prompt"]


def test_facts_of_the_file(smollm2: GgufTokenizer) -> None:
    assert (smollm2.bos_id, smollm2.eos_id, smollm2.unknown_id, smollm2.padding_id) == (1, 2, 0, 2)
    assert smollm2.special_ids == tuple(range(17))
    assert (smollm2.token(1), smollm2.token(2), smollm2.token(None)) == ("<|im_start|>", "<|im_end|>", None)
    assert smollm2.context_length == 8192
    assert not smollm2.add_bos
    assert smollm2.tokenizer.get_vocab_size() == 49152


def test_digits_are_single_tokens(smollm2: GgufTokenizer) -> None:
    tokens = smollm2.tokenizer.encode("In 1984: 12345", add_special_tokens=False).tokens
    assert [token for token in tokens if any(letter.isdigit() for letter in token)] == list("198412345")


@pytest.fixture(scope="module")
def spellable(smollm2: GgufTokenizer) -> frozenset[int]:
    """Bytes that the vocabulary has a token for; it lacks some that hardly any text holds."""
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    known = set()
    for point in [*range(0x800), *range(0x800, 0xD800, 0x40), *range(0xE000, 0x110000, 0x400)]:
        letters = level.pre_tokenize_str(chr(point))[0][0]
        pairs = zip(chr(point).encode(), letters, strict=True)
        known |= {byte for byte, letter in pairs if smollm2.tokenizer.token_to_id(letter) is not None}
    return frozenset(known)


@settings(max_examples=200, deadline=None)
@given(text=st.text(max_size=80))
def test_any_text_of_known_bytes_comes_back(
    smollm2: GgufTokenizer, spellable: frozenset[int], text: str
) -> None:
    assume(spellable.issuperset(text.encode()))
    ids = smollm2.tokenizer.encode(text, add_special_tokens=False).ids
    assert smollm2.tokenizer.decode(ids, skip_special_tokens=False) == text


FIELDS: dict[str, Any] = {
    "llama.context_length": 64,
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "smollm",
    "tokenizer.ggml.tokens": ["<s>", "a", "b", "ab"],
    "tokenizer.ggml.token_type": [3, 1, 1, 1],
    "tokenizer.ggml.merges": ["a b"],
    "tokenizer.ggml.eos_token_id": 0,
}
TENSORS = {"token_embd.weight": (np.zeros((4, 32), np.float32), "F32")}


def test_a_small_tokenizer_merges_and_knows_control_tokens(write_gguf: WriteGguf) -> None:
    path = write_gguf("t.gguf", FIELDS, TENSORS)
    built = build_tokenizer(read_gguf_header(path))
    assert built.tokenizer.encode("abba<s>ab").ids == [3, 2, 1, 0, 3]
    assert (built.eos_id, built.bos_id, built.chat_template) == (0, None, None)


def test_user_defined_tokens_stay_whole_and_are_text(write_gguf: WriteGguf) -> None:
    kinds, tokens = [3, 1, 1, 1, 4], ["<s>", "a", "b", "ab", "<ab>"]
    change = {"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": kinds}
    built = build_tokenizer(write_gguf("t.gguf", FIELDS | change, TENSORS))
    assert built.tokenizer.encode("ab<ab>b<s>").ids == [3, 4, 2, 0]
    assert built.special_ids == (0,)
    assert built.tokenizer.decode([3, 4, 2, 0], skip_special_tokens=True) == "ab<ab>b"


@pytest.fixture(scope="module")
def qwen(smollm2_gguf: Path) -> tuple[GgufTokenizer, Any]:
    """A vocabulary under the name of Qwen's pre-tokenizer, and with it transformers' class for Qwen2 and Qwen3."""
    header = read_gguf_header(smollm2_gguf)
    ours = build_tokenizer(replace(header, metadata=header.metadata | {"tokenizer.ggml.pre": "qwen2"}))
    tokens, merges = (header.metadata[f"tokenizer.ggml.{name}"] for name in ("tokens", "merges"))
    vocabulary = {token: number for number, token in enumerate(tokens)}
    return ours, Qwen2Tokenizer(vocab=vocabulary, merges=[tuple(merge.split(" ")) for merge in merges])


PIECES = [
    "it's",
    "WE'LL",
    "  1984",
    "\r\n \n",
    "\tx",
    "e\u0301",
    "\u00e9t\u00e9",
    "\u4f60\u597d",
    "!?\n\n",
    " ",
    "\u0663",
    "a_b",
]


@settings(max_examples=300, deadline=None)
@given(text=st.lists(st.sampled_from(PIECES) | st.text(max_size=6), max_size=12).map("".join))
def test_qwen_ids_are_those_of_its_published_tokenizer(qwen: tuple[GgufTokenizer, Any], text: str) -> None:
    assume("<|" not in text)
    ours, published = qwen
    expected = published(text, add_special_tokens=False)["input_ids"]
    assert ours.tokenizer.encode(text, add_special_tokens=False).ids == expected


def test_qwen_composes_characters_and_cuts_unlike_smollm2(
    qwen: tuple[GgufTokenizer, Any], smollm2: GgufTokenizer
) -> None:
    def ids(of: GgufTokenizer, text: str) -> list[int]:
        return of.tokenizer.encode(text, add_special_tokens=False).ids

    assert ids(qwen[0], "e\u0301") == ids(qwen[0], "\u00e9") != ids(smollm2, "e\u0301")
    assert ids(qwen[0], "WE'LL\n\n\n!") != ids(smollm2, "WE'LL\n\n\n!")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"tokenizer.ggml.pre": "qwen9"}, "pre-tokenizer 'qwen9' is not supported"),
        ({"tokenizer.ggml.pre": None}, "pre-tokenizer None is not supported"),
        ({"tokenizer.ggml.model": "llama"}, "tokenizer of kind 'llama' is not supported"),
        ({"tokenizer.ggml.tokens": None}, r"tokenizer\.ggml\.tokens is missing"),
        (
            {"tokenizer.ggml.tokens": [1, 2, 3, 4]},
            r"tokenizer\.ggml\.tokens is missing or no list of strings",
        ),
        ({"tokenizer.ggml.tokens": ["<s>", "a", "a", "ab"]}, "a token twice"),
        ({"tokenizer.ggml.merges": ["a"]}, "'a' is no merge"),
        ({"tokenizer.ggml.merges": ["a z"]}, "do not fit the vocabulary"),
        ({"tokenizer.ggml.token_type": [3]}, "token_type does not fit"),
    ],
)
def test_what_cannot_be_read_right_is_refused_by_name(
    write_gguf: WriteGguf, change: dict[str, Any], named: str
) -> None:
    fields = {key: value for key, value in {**FIELDS, **change}.items() if value is not None}
    path = write_gguf("t.gguf", fields, TENSORS)
    with pytest.raises(TokenizerError, match=named) as caught:
        build_tokenizer(path)
    assert str(path) in str(caught.value)
    assert isinstance(caught.value, EngineError)


def test_ids_outside_the_vocabulary_are_no_tokens(write_gguf: WriteGguf) -> None:
    built = build_tokenizer(write_gguf("t.gguf", {**FIELDS, "tokenizer.ggml.eos_token_id": 99}, TENSORS))
    assert built.eos_id is None
