from __future__ import annotations

import io
import shlex
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from kt_tui.paths import Paths
from kt_tui.profiles import Profile, load_profile, save_profile

Kt = Callable[..., Any]


class Terminal(io.StringIO):
    """Standard error that is a terminal."""

    def __init__(self, real: Any) -> None:
        super().__init__()
        self.write = real.write  # type: ignore[method-assign]

    def isatty(self) -> bool:
        return True


class Typing(io.StringIO):
    """A user who types at a terminal."""

    def isatty(self) -> bool:
        return True


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
    assert kt("profile", "export", "p", "--json").json == {"name": "p", "toml": exported, "path": None}
    file = tmp_path / "shared.toml"
    file.write_text(exported)
    assert kt("profile", "import", file).code == 0
    assert load_profile(kt_paths, "shared").options == {"cpu-threads": 4}
    assert kt("profile", "import", file, "--name", "again", "--json").json["name"] == "again"
    assert kt("profile", "import", file).code == 1
    assert kt("profile", "import", file, "--force").code == 0


def test_a_colleague_gets_one_file_without_secrets(kt: Kt, kt_paths: Paths, tmp_path: Path) -> None:
    kt(
        "profile",
        "save",
        "p",
        "demo",
        "--cpu-threads",
        "4",
        "--api-key",
        "hush",
        "--hf-token=hush",
        "--x",
        "1",
    )
    file = tmp_path / "for you.toml"
    answer = kt("profile", "export", "p", file)
    assert answer.out == f"p: written to {file}; kt-tui profile import '{file}' saves it\n"
    assert file.read_text().startswith("# left out, since they hold secrets: --api-key, --hf-token\n")
    assert "hush" not in file.read_text()
    answer = kt("profile", "export", "p", file)
    assert (answer.code, answer.err) == (
        1,
        f"kt-tui: {file} is there already; name another file, or --force\n",
    )
    assert kt("profile", "export", "p", file, "--force").code == 0
    assert kt("profile", "export", "p", "/proc/x.toml").code == 1
    assert kt("profile", "import", file, "--name", "q").code == 0
    imported = load_profile(kt_paths, "q")
    assert (dict(imported.options), imported.extra) == ({"cpu-threads": 4}, ("--x", "1"))


def test_a_profile_of_another_machine_says_what_is_missing_here(kt: Kt, tmp_path: Path) -> None:
    file = tmp_path / "theirs.toml"
    file.write_text("schema_version = 1\nmodel = '/their/disk/model'\n[options]\nkt-amx-method = 'FP8'\n")
    answer = kt("profile", "import", file, "--json")
    assert answer.code == 0
    assert answer.json["notes"] == [
        "option kt-amx-method is now kt-method",
        "its model is not known here: there is nothing at /their/disk/model; a model is a folder with "
        "safetensors files or a GGUF file",
    ]


@pytest.mark.parametrize(
    ("typed", "code", "model"), [("y\n", 0, "smollm2"), ("\n", 1, "demo"), ("", 1, "demo")]
)
def test_at_a_terminal_a_conflict_is_asked_about(
    typed: str,
    code: int,
    model: str,
    kt: Kt,
    kt_paths: Paths,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kt("profile", "save", "p", "demo")
    file = tmp_path / "p.toml"
    file.write_text("model = 'smollm2'")
    assert kt("profile", "import", file).code == 1
    monkeypatch.setattr("sys.stdin", Typing(typed))
    monkeypatch.setattr("sys.stderr", Terminal(sys.stderr))
    answer = kt("profile", "import", file)
    assert answer.code == code
    assert load_profile(kt_paths, "p").model == model


KT_MODELS = "models:\n- {name: own, path: /data/own, id: i1, colour: red}\n"
KT_RUNS = "configs:\n  i1:\n  - {config_name: fast, cpu_threads: 8, model_path: /data/own}\n"


def test_what_the_kt_command_line_keeps_is_taken_over(
    kt: Kt, kt_paths: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / ".ktransformers"
    folder.mkdir()
    (folder / "user_models.yaml").write_text(KT_MODELS)
    (folder / "run_configs.yaml").write_text(KT_RUNS)
    dry = kt("profile", "import", "--from-kt", "--dry-run")
    assert (dry.code, dry.out) == (0, "would take over 1 model (own) and 1 saved launch (fast)\n")
    assert dry.err == 'kt-tui: user_models.yaml, "own": colour has no meaning here, and was left out\n'
    assert not kt_paths.config.exists()
    answer = kt("profile", "import", "--from-kt")
    assert (answer.code, answer.out) == (0, "took over 1 model (own) and 1 saved launch (fast)\n")
    assert load_profile(kt_paths, "fast").model == "own"
    assert kt("models", "show", "own", "--json").json["path"] == "/data/own"
    # Edited here since; a script never replaces that unasked.
    kt("profile", "save", "fast", "demo", "--force")
    answer = kt("profile", "import", "--from-kt", folder, "--json")
    assert answer.code == 1
    assert answer.json["profiles"] == {"saved": [], "kept": ["fast"]}
    assert answer.json["models"] == {"saved": [], "kept": []}
    assert "left as they are here: fast; --force replaces them" in answer.err
    assert kt("profile", "import", "--from-kt", folder, "--force").code == 0
    assert load_profile(kt_paths, "fast").model == "own"


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ((), 2, "name a FILE to import, or --from-kt"),
        (("x.toml", "--from-kt", "/d"), 2, "name a FILE to import, or --from-kt"),
        (("x.toml", "--dry-run"), 2, "--dry-run goes with --from-kt"),
        (("--from-kt", "/nonexistent"), 1, "there is none of user_models.yaml"),
        (("--from-kt", "/nonexistent", "--name", "x"), 2, "--name is for one FILE"),
    ],
)
def test_mistakes_of_an_import(arguments: tuple[str, ...], code: int, words: str, kt: Kt) -> None:
    answer = kt("profile", "import", *arguments)
    assert (answer.code, answer.out) == (code, "")
    assert words in answer.err


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
    monkeypatch.setattr("sys.stdin.read", lambda _most: "model = 'demo'", raising=False)
    answer = kt("profile", *arguments)
    assert (answer.code, answer.out) == (code, "")
    assert words in answer.err
    assert "Traceback" not in answer.err
    assert not kt_paths.profiles.exists() or not list(kt_paths.profiles.iterdir())


def test_secrets_are_not_shown(kt: Kt) -> None:
    kt("profile", "save", "p", "demo", "--api-key", "hush", "--hf-token", "hush")
    for arguments in (("list",), ("list", "--json"), ("show", "p"), ("show", "p", "--json"), ("export", "p")):
        assert "hush" not in kt("profile", *arguments).out


@pytest.fixture
def small_model(tmp_path: Path) -> Path:
    """A checkpoint that is no model, but has weights that can be told from others."""
    folder = tmp_path / "small"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"\2\0\0\0\0\0\0\0{}")
    return folder


MEASURED = '{"metrics": {"ttft_s": 0.5, "tokens_per_s": 41.53, "tpot_s": 0.1}}'


def test_a_measurement_is_kept_with_its_machine_and_files(
    kt: Kt, kt_paths: Paths, small_model: Path, tmp_path: Path
) -> None:
    file = tmp_path / "measured.json"
    file.write_text(MEASURED)
    kt("profile", "save", "p", small_model, "--cpu-threads", "1", "--measured", file)
    saved = load_profile(kt_paths, "p")
    assert (saved.measured["tokens_per_s"], saved.measured["ttft_s"]) == (41.53, 0.5)
    assert datetime.fromisoformat(str(saved.measured["at"])).tzinfo is not None
    document = kt("profile", "show", "p", "--json").json
    assert len(document["conditions"]["hardware"]) == 16
    assert len(document["conditions"]["model"]) == 32
    assert document["warnings"] == []
    shown = kt("profile", "show", "p").out
    assert "decode                 41.5 tokens/s" in shown
    assert "first token after      0.50 s" in shown
    assert f"model files            {document['conditions']['model']}" in shown


def test_where_hardware_or_files_differ_every_use_says_so(
    kt: Kt, kt_paths: Paths, small_model: Path, tmp_path: Path
) -> None:
    file = tmp_path / "measured.json"
    file.write_text(MEASURED)
    kt("profile", "save", "p", small_model, "--measured", file)
    path = kt_paths.profiles / "p.toml"
    saved = load_profile(kt_paths, "p")
    text = path.read_text().replace(saved.conditions.hardware, "0" * 16)
    path.write_text(text.replace(f"cores = {saved.conditions.machine['cores']}", "cores = 9999"))
    (small_model / "config.json").write_text('{"other": 1}')
    expected = [
        "profile p was measured on other hardware "
        f"(9999 usable cores, now {saved.conditions.machine['cores']}): its speed and memory may differ here",
        f"profile p was measured with another version of {small_model}: the files have changed since",
    ]
    assert kt("profile", "show", "p", "--json").json["warnings"] == expected
    assert "the files have changed since" in kt("profile", "show", "p").out
    assert kt("plan", "--profile", "p", "--json").json["warnings"][:2] == expected
    assert kt("run", "--profile", "p", "--dry-run", "--json").json["warnings"][:2] == expected
    # For another model its files say nothing.
    other = kt("plan", "demo", "--profile", "p", "--json").json["warnings"]
    assert expected[0] in other
    assert expected[1] not in other
    exported = tmp_path / "e.toml"
    kt("profile", "export", "p", exported)
    assert [
        note.replace("profile e", "profile p")
        for note in kt("profile", "import", exported, "--json").json["notes"]
    ] == (expected)


def test_a_profile_without_conditions_warns_of_nothing(kt: Kt, kt_paths: Paths, small_model: Path) -> None:
    save_profile(kt_paths, Profile("p", str(small_model)))
    assert kt("profile", "show", "p", "--json").json["warnings"] == []
    assert not [w for w in kt("plan", "--profile", "p", "--json").json["warnings"] if "profile p" in w]


@pytest.mark.parametrize(("text", "words"), [("{}", "holds none of"), ("[", "no valid JSON")])
def test_what_is_no_measurement_saves_nothing(
    text: str, words: str, kt: Kt, kt_paths: Paths, tmp_path: Path
) -> None:
    (tmp_path / "m.json").write_text(text)
    for name in ("m.json", "gone.json"):
        answer = kt("profile", "save", "p", "demo", "--measured", tmp_path / name)
        assert answer.code == 1
        assert (words if name == "m.json" else "there is no file") in answer.err
    assert not kt_paths.profiles.exists()
