from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kt_tui.paths import Paths

Kt = Callable[..., Any]
KEYS = {"name", "aliases", "path", "state", "format", "bytes", "family", "problems"}


def test_list(kt: Kt) -> None:
    document = kt("models", "list", "--json").json
    assert [model["name"] for model in document["models"]][:2] == ["demo", "smollm2"]
    assert all(set(model) >= KEYS for model in document["models"])
    assert document["models"][0]["state"] == "known"
    assert document["models"][0]["path"] is None
    assert kt("models", "--json").json == document
    lines = kt("models").out.splitlines()
    assert lines[0].split()[:3] == ["NAME", "STATE", "SIZE"]
    assert [line.split()[0] for line in lines[1:3]] == ["demo", "smollm2"]


def test_show(kt: Kt) -> None:
    assert kt("models", "show", "SMOL", "--json").json["name"] == "smollm2"
    text = kt("models", "show", "demo").out
    assert "minimax_m2" in text
    assert "known" in text


def test_a_published_model_is_shown_with_what_is_known_before_it_is_here(kt: Kt) -> None:
    text = kt("models", "show", "M2.1").out
    assert "MiniMaxAI/MiniMax-M2.1" in text
    assert "largest --tensor-parallel-size 4" in text
    document = kt("models", "show", "m2.1", "--json").json
    assert document["shape"]["layers"] == 62
    assert document["limits"] == {"tensor-parallel-size": 4}
    assert (document["state"], document["path"]) == ("known", None)


def test_names_and_texts_of_others_cannot_steer_the_terminal(kt: Kt, kt_paths: Paths) -> None:
    kt_paths.config.mkdir(parents=True)
    kt_paths.models_file.write_text(
        '[models.evil]\ndescription = "\\u001b[2J[red]x"\npath = "/nowhere/\\u001b[2J"\n'
    )
    for answer in (kt("models"), kt("models", "show", "evil")):
        assert "\x1b" not in answer.out + answer.err


def test_an_unknown_model_is_wrong_usage(kt: Kt) -> None:
    answer = kt("models", "show", "dmeo")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err == "kt-tui: there is no model 'dmeo'; did you mean demo?\n"


def test_mistakes_in_the_users_files_are_told_beside_the_list(kt: Kt, kt_paths: Paths) -> None:
    kt_paths.config.mkdir(parents=True)
    kt_paths.models_file.write_text("[models.x\n")
    answer = kt("models")
    assert answer.code == 0
    assert "your own models are not listed" in answer.err
    assert len(kt("models", "--json").json["notes"]) == 1


def test_verify(kt: Kt, smollm2_gguf: Path, tmp_path: Path) -> None:
    answer = kt("models", "verify", "smollm2")
    assert (answer.code, answer.out) == (0, "smollm2: sound\n")
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(smollm2_gguf.read_bytes()[:5_000_000])
    answer = kt("models", "verify", cut, "--json")
    assert answer.code == 1
    assert answer.json["ok"] is False
    assert "is cut short: 5000000 of 98362432 bytes" in answer.json["problems"][0]


def test_prepare_of_a_model_that_is_there(kt: Kt, smollm2_gguf: Path) -> None:
    assert kt("models", "prepare", "smollm2").out == f"{smollm2_gguf}\n"
    assert kt("models", "prepare", "smollm2", "--json").json == {
        "model": "smollm2",
        "path": str(smollm2_gguf),
        "state": "complete",
    }


@pytest.mark.slow
def test_prepare_of_a_made_model(kt: Kt, kt_paths: Paths, demo_model: Path) -> None:
    kt_paths.models.mkdir(parents=True)
    (kt_paths.models / "demo").symlink_to(demo_model)
    assert kt("models", "prepare", "demo").out == f"{kt_paths.models / 'demo'}\n"
    assert kt("models", "verify", "demo").out == "demo: sound\n"


def test_prepare_of_a_broken_model_is_a_sentence(kt: Kt, tmp_path: Path) -> None:
    answer = kt("models", "prepare", tmp_path)
    assert (answer.code, answer.out) == (1, "")
    assert "no weight files" in answer.err
