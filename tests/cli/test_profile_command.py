from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kt_tui.paths import Paths
from kt_tui.profiles import load_profile

Kt = Callable[..., Any]


def test_save_show_apply_delete(kt: Kt, kt_paths: Paths) -> None:
    answer = kt(
        "profile", "save", "fast", "demo", "--cpu-threads", "4", "-p", "31000", "--engine", "embedded"
    )
    assert answer.out == "fast: saved; kt-tui run demo --profile fast starts it\n"
    profile = load_profile(kt_paths, "fast")
    assert (profile.model, profile.engine) == ("demo", "embedded")
    assert profile.options == {"cpu-threads": 4, "port": 31000}
    assert kt("profile", "show", "fast", "--json").json["options"] == {"cpu-threads": 4, "port": 31000}
    assert "--cpu-threads          4" in kt("profile", "show", "fast").out
    assert shlex.split(kt("profile", "apply", "fast").out) == ["kt-tui", "run", "demo", "--profile", "fast"]
    assert kt("profile", "apply", "fast", "--json").json["command"][0] == "kt-tui"
    assert kt("profile", "delete", "fast", "--json").json == {"name": "fast", "deleted": True}
    assert kt("profile", "show", "fast").code == 2


def test_list(kt: Kt) -> None:
    empty = kt("profile")
    assert (empty.code, empty.out) == (0, "")
    assert "no launch is saved yet" in empty.err
    assert kt("profile", "list", "--json").json == {"profiles": [], "notes": []}
    kt("profile", "save", "b", "demo")
    kt("profile", "save", "a", "smollm2", "--cpu-threads", "2", "--note", "mine")
    document = kt("profile", "--json").json
    assert [profile["name"] for profile in document["profiles"]] == ["a", "b"]
    assert document["profiles"][0]["note"] == "mine"
    assert kt("profile").out == "a  smollm2  --cpu-threads 2\nb  demo\n"


def test_options_of_the_engine_are_kept(kt: Kt, kt_paths: Paths) -> None:
    kt("profile", "save", "p", "demo", "--engine-flag", "--other=3")
    assert load_profile(kt_paths, "p").extra == ("--engine-flag", "--other=3")


def test_a_profile_can_start_from_another(kt: Kt, kt_paths: Paths) -> None:
    kt("profile", "save", "base", "demo", "--cpu-threads", "4", "-p", "31000")
    kt("profile", "save", "more", "--profile", "base", "--cpu-threads", "8")
    more = load_profile(kt_paths, "more")
    assert (more.model, dict(more.options)) == ("demo", {"cpu-threads": 8, "port": 31000})


def test_a_model_by_path_is_kept_by_its_full_path(
    kt: Kt, kt_paths: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    kt("profile", "save", "p", "./model")
    assert load_profile(kt_paths, "p").model == str(tmp_path / "model")


def test_saving_twice_needs_force(kt: Kt, kt_paths: Paths) -> None:
    kt("profile", "save", "p", "demo")
    answer = kt("profile", "save", "p", "smollm2")
    assert answer.code == 1
    assert "take another name or --force" in answer.err
    assert kt("profile", "save", "p", "smollm2", "--force").code == 0
    assert load_profile(kt_paths, "p").model == "smollm2"


def test_export_and_import(kt: Kt, kt_paths: Paths, tmp_path: Path) -> None:
    kt("profile", "save", "p", "demo", "--cpu-threads", "4", "--api-key", "hush")
    exported = kt("profile", "export", "p").out
    assert "hush" not in exported
    assert kt("profile", "export", "p", "--json").json == {"name": "p", "toml": exported}
    file = tmp_path / "shared.toml"
    file.write_text(exported)
    assert kt("profile", "import", file).code == 0
    assert load_profile(kt_paths, "shared").options == {"cpu-threads": 4}
    assert kt("profile", "import", file, "--name", "again", "--json").json["name"] == "again"
    assert kt("profile", "import", file).code == 1
    assert kt("profile", "import", file, "--force").code == 0


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("show", "nope"), 2, "there is no profile 'nope'"),
        (("show", "../x"), 1, "cannot name a profile"),
        (("save", "p"), 2, "a saved launch needs a model"),
        (("save", "p", "demo", "--cpu-threads", "x"), 2, "needs a whole number"),
        (("list", "--bogus"), 2, "unknown option --bogus"),
        (("import", "/nonexistent.toml"), 1, "there is no file /nonexistent.toml"),
        (("import", "-"), 2, "needs a name"),
        (("bogus",), 2, "invalid choice"),
        (("save", "p", "nope"), 2, "nope"),
    ],
)
def test_mistakes_are_sentences(
    arguments: tuple[str, ...],
    code: int,
    words: str,
    kt: Kt,
    kt_paths: Paths,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.stdin.read", lambda: "model = 'demo'", raising=False)
    answer = kt("profile", *arguments)
    assert (answer.code, answer.out) == (code, "")
    assert words in answer.err
    assert "Traceback" not in answer.err
    assert not kt_paths.profiles.exists() or not list(kt_paths.profiles.iterdir())


def test_secrets_are_not_shown(kt: Kt) -> None:
    kt("profile", "save", "p", "demo", "--api-key", "hush", "--hf-token", "hush")
    for arguments in (("list",), ("list", "--json"), ("show", "p"), ("show", "p", "--json"), ("export", "p")):
        assert "hush" not in kt("profile", *arguments).out
