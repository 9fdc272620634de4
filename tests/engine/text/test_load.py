"""What a checkpoint says about text, in each of the places where it may say it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine.errors import CheckpointError, EngineError
from engine.text.load import load_text
from tests.engine.fakes import CHATML, END, START, byte_tokenizer

HELLO = [{"role": "user", "content": "hi"}]


def write(folder: Path, **documents: Any) -> Path:
    folder.mkdir(exist_ok=True)
    byte_tokenizer().save(str(folder / "tokenizer.json"))
    for name, document in documents.items():
        (folder / f"{name}.json").write_text(json.dumps(document))
    return folder


def test_the_dense_gguf_gives_the_golden_prompt(smollm2_gguf: Path) -> None:
    model = load_text(smollm2_gguf)
    assert model.template is not None
    text = model.template.render([{"role": "user", "content": "What is the capital of France?"}])
    ids = model.encode(text, add_special_tokens=False)
    # llama.cpp's own ids for this prompt.
    assert ids[:8] == [1, 9690, 198, 2683, 359, 253, 5356, 5646]
    assert ids[-9:] == [282, 4649, 47, 2, 198, 1, 520, 9531, 198]
    assert len(ids) == 37
    assert model.end_ids == {2}
    decoder = model.new_decoder()
    assert "".join(map(decoder.push, [60, 23, 39614, 1141, 552, 28])) == "L'Étoile,"


@pytest.mark.parametrize(
    ("generation", "config", "settings", "ends"),
    [
        ({"eos_token_id": 5}, {}, {}, {5}),
        ({"eos_token_id": [5, 6]}, {"eos_token_id": 7}, {}, {5, 6, 7}),
        ({}, {"eos_token_id": [8]}, {"eos_token": "<|im_end|>"}, {8, END}),
        ({}, {}, {"eos_token": {"content": "<|im_end|>"}}, {END}),
        ({"eos_token_id": None}, {"eos_token_id": True}, {"eos_token": "absent"}, set()),
    ],
)
def test_end_tokens_come_from_all_places(
    tmp_path: Path, generation: Any, config: Any, settings: Any, ends: set[int]
) -> None:
    model = load_text(write(tmp_path, generation_config=generation, config=config, tokenizer_config=settings))
    assert model.end_ids == ends


def test_a_template_file_goes_before_the_settings(tmp_path: Path) -> None:
    write(tmp_path, tokenizer_config={"chat_template": "settings", "bos_token": "<|im_start|>"})
    template = load_text(tmp_path).template
    assert template is not None
    assert template.render(HELLO) == "settings"
    (tmp_path / "chat_template.jinja").write_text("{{ bos_token }}file")
    template = load_text(tmp_path).template
    assert template is not None
    assert template.render(HELLO) == "<|im_start|>file"


def test_of_named_templates_the_default_is_taken(tmp_path: Path) -> None:
    named = [{"name": "tool_use", "template": "tools"}, {"name": "default", "template": "plain"}]
    template = load_text(write(tmp_path, tokenizer_config={"chat_template": named})).template
    assert template is not None
    assert template.render(HELLO) == "plain"


def test_a_checkpoint_without_a_template_loads(tmp_path: Path) -> None:
    assert load_text(write(tmp_path)).template is None


def test_default_sampling(tmp_path: Path) -> None:
    advice = {"temperature": 0.6, "top_p": 0.95, "top_k": 20, "max_length": 5, "min_p": True}
    assert load_text(write(tmp_path, generation_config=advice)).sampling_defaults == {
        "temperature": 0.6,
        "top_p": 0.95,
        "top_k": 20,
    }
    write(tmp_path, generation_config={**advice, "do_sample": False})
    assert load_text(tmp_path).sampling_defaults == {"temperature": 0.0}


def test_control_tokens_in_a_prompt_are_recognised(tmp_path: Path) -> None:
    model = load_text(write(tmp_path, tokenizer_config={"chat_template": CHATML}))
    assert model.encode("<|im_start|>a", add_special_tokens=False) == [START, ord("a")]


def broken(folder: Path, name: str, content: bytes | None) -> Path:
    write(folder, tokenizer_config={}, config={})
    path = folder / name
    path.unlink(missing_ok=True)
    if content is not None:
        path.write_bytes(content)
    return folder


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("tokenizer.json", None),
        ("tokenizer.json", b"{"),
        ("tokenizer.json", b'{"version": "1.0"}'),
        ("tokenizer_config.json", b"{'single': 1}"),
        ("tokenizer_config.json", b"[]"),
        ("config.json", b"\xff\xfe"),
        ("generation_config.json", b"[" * 100_000),
        ("chat_template.jinja", b"{% if %}"),
    ],
)
def test_a_damaged_file_is_named_in_one_line(tmp_path: Path, name: str, content: bytes | None) -> None:
    with pytest.raises(CheckpointError, match=name.replace(".", r"\.")) as caught:
        load_text(broken(tmp_path, name, content))
    assert "\n" not in str(caught.value)


def test_no_such_gguf(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"none\.gguf"):
        load_text(tmp_path / "none.gguf")
    (tmp_path / "short.gguf").write_bytes(b"GGUF\x03")
    with pytest.raises(EngineError, match=r"short\.gguf"):
        load_text(tmp_path / "short.gguf")


def test_a_text_that_cannot_fit_is_known_without_encoding_it(smollm2_gguf: Path) -> None:
    text = load_text(smollm2_gguf)
    longest = max(text.tokenizer.get_vocab(), key=len)
    assert text.longest_token == len(longest)
    assert not text.exceeds("x" * 10 * len(longest), 10)
    assert text.exceeds("x" * (10 * len(longest) + 1), 10)
