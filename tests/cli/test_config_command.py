from __future__ import annotations

import stat
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kt_tui.paths import Paths
from kt_tui.settings import KEYS

Kt = Callable[..., Any]


def test_show_names_every_setting_and_its_origin(
    kt: Kt, kt_paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KT_TUI_THEME", "paper")
    kt("config", "set", "server.port", "31000")
    document = kt("config", "show", "--json").json
    assert set(document) == {"path", "values", "notes", "read_only"}
    assert document["read_only"] is None
    assert document["path"] == str(kt_paths.config_file)
    assert set(document["values"]) == {key.name for key in KEYS}
    assert document["values"]["server.port"] == {"value": 31000, "origin": "config"}
    assert document["values"]["ui.theme"] == {"value": "paper", "origin": "environment"}
    assert document["values"]["paths.models"] == {"value": [], "origin": "default"}
    assert document["notes"] == []
    lines = kt("config").out.splitlines()
    assert len(lines) == len(KEYS)
    assert "31000  (config)" in kt("config").out


@pytest.mark.parametrize(
    "arguments", [("config", "--json"), ("config", "--json", "show"), ("config", "show", "--json")]
)
def test_json_goes_before_or_after_the_action(arguments: tuple[str, ...], kt: Kt) -> None:
    assert "values" in kt(*arguments).json


def test_get_set_unset(kt: Kt, kt_paths: Paths) -> None:
    assert kt("config", "get", "server.port").out == "30000\n"
    assert kt("config", "set", "server.port", "31000").out == "server.port = 31000\n"
    assert kt("config", "get", "server.port", "--json").json == {
        "key": "server.port",
        "value": 31000,
        "origin": "config",
    }
    assert kt("config", "unset", "server.port", "--json").json["removed"] is True
    assert kt("config", "unset", "server.port").out == "server.port: was not set\n"
    assert kt("config", "path").out == f"{kt_paths.config_file}\n"
    assert kt("config", "path", "--json").json == {"path": str(kt_paths.config_file), "exists": True}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("get", "server.prt"), "no setting is called 'server.prt'; did you mean server.port?"),
        (("set", "server.port", "abc"), 'server.port must be a whole number from 1 to 65535, not "abc"'),
        (
            ("set", "launch.cpu-threds", "1"),
            "there is no launch option --cpu-threds; did you mean launch.cpu-threads?",
        ),
        (("set", "launch.cpu-threads", "many"), "launch.cpu-threads: needs a whole number, not 'many'"),
        (("set", "launch.cpu-threads", "0"), "cpu-threads is 0; it must be at least 1"),
        (("set", "launch.device", "tpu"), "launch.device: must be one of auto, cpu, cuda"),
        (("set", "launch.port", "1"), "--port is set by server.port, not by launch.port"),
        (("set", "server.port"), "required: VALUE"),
        (("set", "ui.theme", "kt-drak"), "there is no theme 'kt-drak'; did you mean kt-dark?"),
        (("set", "ui.theme", "zzz"), "there is no theme 'zzz'; there are kt-dark, kt-light"),
        (("set", "paths.models", "/nonexistent/a"), "there is no folder /nonexistent/a; make it first"),
        (("set", "paths.models", f"/, {__file__}"), "test_config_command.py is no folder; name the folder"),
        (("set", "launch.temperature", "1"), "there is no launch option --temperature"),
        (("bogus",), "invalid choice: 'bogus'"),
    ],
)
def test_wrong_usage_is_two_and_changes_nothing(
    arguments: tuple[str, ...], words: str, kt: Kt, kt_paths: Paths
) -> None:
    answer = kt("config", *arguments)
    assert (answer.code, answer.out) == (2, "")
    assert words in answer.err
    assert "Traceback" not in answer.err
    assert not kt_paths.config_file.exists()


def test_launch_options_are_kept_in_their_type(kt: Kt, kt_paths: Paths) -> None:
    kt("config", "set", "launch.cpu-threads", "4")
    kt("config", "set", "launch.device", "cpu")
    assert tomllib.loads(kt_paths.config_file.read_text())["launch"] == {"cpu-threads": 4, "device": "cpu"}
    assert kt("config", "get", "launch.cpu-threads").out == "4\n"
    assert kt("config", "get", "launch.max-total-tokens").code == 1


def test_folders_count_from_where_they_were_typed(
    kt: Kt, kt_paths: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("models", "more, models"):
        (tmp_path / name).mkdir()
    assert kt("config", "set", "paths.models", "models, ~/models", "--json").json["value"] == [
        str(tmp_path / "models"),
        "~/models",
    ]
    assert kt("config", "get", "paths.models").out == f"{tmp_path}/models, ~/models\n"
    kt("config", "set", "paths.models", '["more, models"]')
    kept = tomllib.loads(kt_paths.config_file.read_text())["paths"]["models"]
    assert kept == [str(tmp_path / "more, models")]


def test_a_theme_of_the_user_s_own_can_be_set_and_a_broken_one_is_told(kt: Kt, kt_paths: Paths) -> None:
    folder = kt_paths.config / "themes"
    folder.mkdir(parents=True)
    (folder / "mine.toml").write_text('name = "mine"\nprimary = "#112233"\n')
    (folder / "bad.toml").write_text('name = "bad"\nprimary = "no colour"\n')
    for name in ("mine", "kt-light", "nord"):
        assert kt("config", "set", "ui.theme", name).out == f"ui.theme = {name}\n"
    answer = kt("config", "set", "ui.theme", "bad")
    assert answer.code == 2
    assert "theme bad.toml left out: 'primary'" in answer.err
    assert kt("config", "get", "ui.theme").out == "nord\n"


def test_launch_options_written_by_hand_are_checked_by_the_launch_schema(kt: Kt, kt_paths: Paths) -> None:
    kt_paths.config.mkdir(parents=True)
    kt_paths.config_file.write_text(
        "[launch]\ncpu-threads = 4\ncpu-threds = 4\nport = 1\nmax-running-requests = 0\ndevice = 'tpu'\n"
    )
    notes = kt("config", "show", "--json").json["notes"]
    assert notes == [
        f"{kt_paths.config_file}:{line}:1: {words}"
        for line, words in (
            (3, "there is no launch option --cpu-threds; did you mean launch.cpu-threads?"),
            (4, "--port is set by server.port, not by launch.port"),
            (5, "max-running-requests is 0; it must be at least 1"),
            (6, "launch.device: must be one of auto, cpu, cuda, not 'tpu'"),
        )
    ]


def test_an_invalid_file_is_told_and_kept(kt: Kt, kt_paths: Paths) -> None:
    kt_paths.config.mkdir(parents=True)
    kt_paths.config_file.write_text("[profiles.big\n")
    answer = kt("config", "show")
    assert answer.code == 0
    assert f"{kt_paths.config_file}:1:14: expected ']'" in answer.err
    assert kt("config", "show", "--json").json["notes"]
    answer = kt("config", "set", "server.port", "31000")
    assert answer.code == 1
    assert answer.err.count("\n") == 1
    assert kt_paths.config_file.read_text() == "[profiles.big\n"


def test_a_saved_setting_that_a_variable_hides_is_told(kt: Kt, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KT_TUI_PORT", "32000")
    answer = kt("config", "set", "server.port", "31000")
    assert answer.code == 0
    assert "KT_TUI_PORT is set and goes before it" in answer.err


def test_a_read_only_file_is_told(kt: Kt, kt_paths: Paths) -> None:
    kt("config", "set", "server.port", "31000")
    kt_paths.config_file.chmod(0o444)
    assert kt("config", "show", "--json").json["read_only"] == f"{kt_paths.config_file} is read-only"
    answer = kt("config", "show")
    assert answer.code == 0
    assert answer.err == f"kt-tui: changes cannot be saved: {kt_paths.config_file} is read-only\n"


def test_secrets_are_not_shown(kt: Kt, kt_paths: Paths) -> None:
    kt_paths.config.mkdir(parents=True)
    kt_paths.config_file.write_text("[launch]\napi-key = 'hush'\n")
    for answer in (kt("config"), kt("config", "--json"), kt("config", "get", "launch.api-key")):
        assert "hush" not in answer.out
        assert "(hidden)" in answer.out


def script(path: Path, text: str) -> Path:
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_edit_opens_the_commented_file_and_checks_it(
    kt: Kt, kt_paths: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VISUAL", raising=False)
    good = script(tmp_path / "an editor", 'grep -q "# port = 30000" "$2" && echo "[mine]" >> "$2"')
    monkeypatch.setenv("EDITOR", f"'{good}' --wait")
    assert kt("config", "edit").code == 0
    assert kt_paths.config_file.read_text().endswith("[mine]\n")
    monkeypatch.setenv("EDITOR", str(script(tmp_path / "bad", 'echo "[broken" >> "$1"')))
    answer = kt("config", "edit")
    assert answer.code == 1
    assert "expected ']'" in answer.err


@pytest.mark.parametrize(
    ("editor", "code", "words"),
    [
        ("", 2, "no editor is set; set EDITOR"),
        ("/nonexistent/vi", 1, "cannot start the editor"),
        ("'", 1, "cannot start"),
    ],
)
def test_without_an_editor(
    editor: str, code: int, words: str, kt: Kt, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", editor)
    answer = kt("config", "edit")
    assert answer.code == code
    assert words in answer.err
