from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path

import pytest

from kt_tui.config import Config, default_text, load_config, set_value, unset_value
from kt_tui.errors import KtError, UsageError
from kt_tui.paths import Paths, user_paths
from kt_tui.secret import is_secret
from kt_tui.settings import BY_NAME, KEYS, parse_text, problem_of
from kt_tui.tomlfile import FileError, TomlError


def write(paths: Paths, text: str | bytes, mode: int = 0o600) -> Path:
    paths.config.mkdir(parents=True, exist_ok=True)
    path = paths.config_file
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    path.chmod(mode)
    return path


def load(paths: Paths, **environ: str) -> Config:
    return load_config(paths, environ)


def test_without_a_file_all_is_default(kt_paths: Paths) -> None:
    config = load(kt_paths)
    assert {key: config.origin(key) for key in config.settings} == dict.fromkeys(BY_NAME, "default")
    assert (config.text("server.host"), config.whole("server.port")) == ("127.0.0.1", 30000)
    assert (config.notes, config.read_only) == ((), None)
    assert not kt_paths.config.exists()


def test_a_file_goes_before_the_default_and_a_variable_before_both(kt_paths: Paths) -> None:
    write(kt_paths, '[server]\nport = 31000\nhost = "10.0.0.1"\n')
    config = load(kt_paths, KT_TUI_PORT="32000", KT_TUI_THEME="paper", KT_TUI_HOST="")
    assert (config.get("server.port"), config.origin("server.port")) == (32000, "environment")
    assert (config.get("server.host"), config.origin("server.host")) == ("10.0.0.1", "config")
    assert (config.get("ui.theme"), config.origin("ui.theme")) == ("paper", "environment")


def test_a_variable_is_never_written(kt_paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KT_TUI_PORT", "32000")
    set_value(kt_paths, "ui.theme", "paper")
    assert "port" not in tomllib.loads(kt_paths.config_file.read_text()).get("server", {})


def test_a_wrong_variable_is_noted_and_not_used(kt_paths: Paths) -> None:
    config = load(kt_paths, KT_TUI_PORT="65536")
    assert config.get("server.port") == 30000
    assert config.notes == (
        "the variable KT_TUI_PORT is not used: server.port must be a whole number from 1 to 65535, not 65536",
    )


def test_a_wrong_type_costs_only_its_own_key(kt_paths: Paths) -> None:
    path = write(kt_paths, '[server]\nhost = "::1"\nport = "abc"\n\n[chat]\ntemperature = 3\n')
    config = load(kt_paths)
    assert (config.get("server.host"), config.get("server.port")) == ("::1", 30000)
    assert config.get("chat.temperature") is None
    assert config.notes == (
        f'{path}:3:1: server.port must be a whole number from 1 to 65535, not "abc"; 30000 is used',
        f"{path}:6:1: chat.temperature must be a number from 0 to 2, not 3",
    )


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (b'[profiles.big\ncpuinfer = 60\nport = "abc"\n', "1:14: expected ']'"),
        (b"[server]\nport = \n", "2:8: invalid value"),
        (b"[server]\nport = 1\nport = 2\n", "3:9: cannot overwrite a value"),
        (b'[server]\nhost = "', "2:9: unterminated string"),
        (b'[server]\nhost = "\xff"\n', "2:9: byte 0xff is not UTF-8"),
        (b"x = " + b"[" * 5000, "1:1: brackets are nested too deeply"),
    ],
)
def test_an_invalid_file_is_told_with_its_place_and_never_touched(
    kt_paths: Paths, text: bytes, place: str
) -> None:
    path = write(kt_paths, text)
    config = load(kt_paths)
    assert config.get("server.port") == 30000
    assert len(config.notes) == 1
    assert config.notes[0].startswith(f"{path}:{place}")
    assert config.read_only is not None
    with pytest.raises(TomlError, match=place.split(":", maxsplit=1)[0]):
        set_value(kt_paths, "server.port", "31000")
    assert path.read_bytes() == text
    assert list(kt_paths.config.iterdir()) == [path]


def test_an_unknown_key_is_kept_and_noted(kt_paths: Paths) -> None:
    path = write(kt_paths, '[server]\nprt = 1\n\n[mine]\nx = "y"\n')
    notes = load(kt_paths).notes
    assert notes[0] == f"{path}:2:1: unknown setting server.prt, kept but not used; did you mean server.port?"
    assert notes[1] == f"{path}:5:1: unknown setting mine.x, kept but not used"
    set_value(kt_paths, "server.port", "31000")
    assert path.read_text() == '[server]\nprt = 1\nport = 31000\n\n[mine]\nx = "y"\n'


def test_launch_options_of_the_file(kt_paths: Paths) -> None:
    write(kt_paths, '[launch]\ncpu-threads = 4\ndevice = "cpu"\nlist = [1]\n')
    config = load(kt_paths)
    assert config.launch_options() == {"cpu-threads": 4, "device": "cpu"}
    assert config.notes[0].endswith("launch.list must be text, number, true or false, not [1]")


def test_a_folder_in_its_place_is_a_sentence(kt_paths: Paths) -> None:
    kt_paths.config_file.mkdir(parents=True)
    assert "is not a regular file" in load(kt_paths).notes[0]


def test_a_pipe_in_its_place_does_not_hang(kt_paths: Paths) -> None:
    kt_paths.config.mkdir(parents=True)
    os.mkfifo(kt_paths.config_file)
    assert "is not a regular file" in load(kt_paths).notes[0]


def test_a_huge_file_is_not_read(kt_paths: Paths) -> None:
    path = write(kt_paths, "")
    os.truncate(path, 5 << 20)
    assert "a configuration has at most" in load(kt_paths).notes[0]


def test_set_starts_from_the_commented_default(kt_paths: Paths) -> None:
    assert set_value(kt_paths, "chat.temperature", "0") == 0.0
    text = kt_paths.config_file.read_text()
    assert text.replace("temperature = 0\n", "", 1) == default_text()
    assert load(kt_paths).number("chat.temperature") == 0.0
    assert kt_paths.config_file.stat().st_mode & 0o777 == 0o600
    assert kt_paths.config.stat().st_mode & 0o077 == 0


def test_the_shipped_file_shows_every_key_with_its_default() -> None:
    lines = default_text().splitlines()
    shown = [line.removeprefix("# ") if re.match(r"# \w+ = ", line) else line for line in lines]
    document = tomllib.loads("\n".join(shown))
    for key in KEYS:
        section, name = key.name.split(".")
        if key.default is None:  # TOML has no word for it
            assert f"{name} = " in default_text()
            continue
        value = document[section].pop(name)
        assert problem_of(key, value) is None
        assert (tuple(value) if isinstance(value, list) else value) == key.default
        assert key.environ is None or key.environ in default_text()
    assert not any(document.values())
    assert tomllib.loads(default_text()) == {section: {} for section in document}


def test_unset_takes_one_key_out(kt_paths: Paths) -> None:
    assert not unset_value(kt_paths, "server.port")
    path = write(kt_paths, '# top\n[server]\nport = 1 # one\nhost = "h"\n')
    assert unset_value(kt_paths, "server.port")
    assert path.read_text() == '# top\n[server]\nhost = "h"\n'
    assert not unset_value(kt_paths, "server.port")


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("server.port", " 31000 ", 31000),
        ("server.host", "::1", "::1"),
        ("chat.temperature", "1", 1),
        ("chat.temperature", "1e-1", 0.1),
        ("chat.system", 'Say "hi".\nTwice: \\n = 2', 'Say "hi".\nTwice: \\n = 2'),
        ("chat.system", "", ""),
        ("paths.models", "~/a, /b c", ["~/a", "/b c"]),
        ("paths.models", '["/x,y"]', ["/x,y"]),
        ("paths.models", "", []),
    ],
)
def test_what_a_user_types_becomes_a_value(kt_paths: Paths, key: str, text: str, value: object) -> None:
    assert parse_text(BY_NAME[key], text) == value
    set_value(kt_paths, key, text)
    section, name = key.split(".")
    assert tomllib.loads(kt_paths.config_file.read_text())[section][name] == value
    assert load(kt_paths).origin(key) == "config"


@pytest.mark.parametrize(
    ("key", "text", "words"),
    [
        ("server.port", "abc", 'server.port must be a whole number from 1 to 65535, not "abc"'),
        ("server.port", "0", "from 1 to 65535, not 0"),
        ("server.port", "1.5", "not 1.5"),
        ("server.port", "true", "not True"),
        ("chat.temperature", "nan", "a number from 0 to 2, not nan"),
        ("chat.temperature", "-0.1", "not -0.1"),
        ("server.host", "http://x", "must be a word"),
        ("server.host", "a\x1b[2J", r'not "a\?\[2J"'),
        ("ui.refresh_seconds", "0", "from 0.2 to 60"),
        ("server.prt", "1", "no setting is called 'server.prt'; did you mean server.port"),
        ("launch.", "1", "no setting is called"),
        ("launch.a.b", "1", "no setting is called"),
        ("", "1", "no setting is called"),
    ],
)
def test_what_is_no_value_is_refused(kt_paths: Paths, key: str, text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        set_value(kt_paths, key, text)
    assert not kt_paths.config_file.exists()


def test_a_table_that_is_a_value_is_not_overwritten(kt_paths: Paths) -> None:
    path = write(kt_paths, "server = 5\n")
    with pytest.raises(FileError, match="server is not a table"):
        set_value(kt_paths, "server.port", "31000")
    assert path.read_text() == "server = 5\n"


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("launch.api-key", True),
        ("hf_token", True),
        ("--api-key", True),
        ("token", True),
        ("launch.max-total-tokens", False),
        ("keyboard", False),
        ("mine.key", False),
    ],
)
def test_secrets_are_known_by_name(name: str, secret: bool) -> None:
    assert is_secret(name) is secret


def test_a_file_that_gets_a_secret_is_closed_to_others(kt_paths: Paths) -> None:
    path = write(kt_paths, "", mode=0o644)
    set_value(kt_paths, "launch.api-key", "hush")
    assert path.stat().st_mode & 0o777 == 0o600


# Read-only and unreadable places.


def test_a_read_only_file_is_left_alone(kt_paths: Paths) -> None:
    path = write(kt_paths, "[server]\nport = 1\n", mode=0o444)
    config = load(kt_paths)
    assert (config.get("server.port"), config.notes) == (1, ())
    assert config.read_only == f"{path} is read-only"
    with pytest.raises(FileError, match=f"cannot save {path}: {path} is read-only"):
        set_value(kt_paths, "server.port", "2")
    assert path.read_text() == "[server]\nport = 1\n"
    assert path.stat().st_mode & 0o777 == 0o444


def test_an_unreadable_file_gives_defaults_and_is_left_alone(unprivileged_folder: Path) -> None:
    paths = user_paths({"KT_TUI_HOME": str(unprivileged_folder)})
    path = write(paths, "[server]\nport = 1\n", mode=0o000)
    config = load(paths)
    assert config.get("server.port") == 30000
    assert config.notes == (
        f"cannot read {path}: permission denied; the defaults are used and the file is left as it is",
    )
    with pytest.raises(FileError, match=f"cannot read {path}: permission denied"):
        set_value(paths, "server.port", "2")
    path.chmod(0o600)
    assert path.read_text() == "[server]\nport = 1\n"


def test_a_read_only_folder_is_a_sentence(unprivileged_folder: Path) -> None:
    paths = user_paths({"KT_TUI_HOME": str(unprivileged_folder)})
    write(paths, "[server]\nport = 1\n")
    paths.config.chmod(0o500)
    assert load(paths).read_only == f"the folder {paths.config} is not writable"
    with pytest.raises(FileError, match="cannot save"):
        set_value(paths, "server.port", "2")
    assert paths.config_file.read_text() == "[server]\nport = 1\n"


def test_a_read_only_file_system_is_a_sentence() -> None:
    # /proc takes no files from anyone, root included, and says so with an error that is no PermissionError.
    paths = user_paths({"KT_TUI_HOME": "/proc/kt-tui-test"})
    config = load(paths)
    assert (config.get("server.port"), config.notes) == (30000, ())
    with pytest.raises(KtError, match=r"cannot save /proc/kt-tui-test/config/config\.toml"):
        set_value(paths, "server.port", "2")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "{home}/.config"),
        ("", "{home}/.config"),
        ("rel/path", "{home}/.config"),
        ("{tmp}/new/a", "{tmp}/new/a"),
    ],
)
def test_the_platform_folder(
    value: str | None, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("KT_TUI_HOME", raising=False)
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    if value is not None:
        monkeypatch.setenv("XDG_CONFIG_HOME", value.format(tmp=tmp_path))
    paths = user_paths(os.environ)
    folder = Path(expected.format(home=tmp_path / "home", tmp=tmp_path)) / "kt-tui"
    assert paths.config == folder
    set_value(paths, "server.port", "31000")
    assert load(paths).get("server.port") == 31000
    assert folder.stat().st_mode & 0o777 == 0o700


def test_settings_are_saved_where_only_the_state_folder_is_writable_too(kt_paths: Paths) -> None:
    """Nothing but settings lies beside the settings: no lock, no temporary file, no state."""
    set_value(kt_paths, "server.port", "31000")
    load(kt_paths)
    assert [path.name for path in kt_paths.config.iterdir()] == ["config.toml"]
