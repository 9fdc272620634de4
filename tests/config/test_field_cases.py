"""Faults that people met with the configuration files of other programs, as kinds: none of them is ours."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from kt_tui.config import load_config, set_value, unset_value
from kt_tui.paths import Paths, user_paths
from kt_tui.profiles import Profile, ProfileError, list_profiles, load_profile, profile_path, save_profile
from kt_tui.tomlfile import TomlError, edit_toml

# -- saving one value keeps all else, byte for byte -----------------------------------------------------------------

LAYOUTS = {
    "comments and a list on two lines": (
        '# my note\n[launch]\ncpu-threads = {} # tested\nflags = [ "--a",\n  "--b" ]\n'
    ),
    "odd spaces": "[ launch ]\n  cpu-threads   =   {}\t# why\n\n\n# last words",
    "dotted keys": "launch.cpu-threads = {} # short\nui.theme='kt-dark'\n",
    "an inline table": 'launch = {{ cpu-threads = {}, device = "cpu" }} # all of it\n',
    "quoted keys": '["launch"]\n"cpu-threads" = {}\n\'server\' = 1\n',
    "texts that look like TOML": (
        '[chat]\nsystem = """\n[launch]\ncpu-threads = 1 # no\n"""\n[launch]\ncpu-threads = {}\n'
    ),
    "tables out of order": "[launch.x]\ny = 1\n[ui]\n[launch]\ncpu-threads = {}\n[chat]\n",
    "arrays of tables": "[[nodes]]\na = 1\n[[nodes]]\na = 2 # two\n[launch]\ncpu-threads = {}\n\n[x]\nlaunch = 1\n",
    "Windows": "\ufeff# Notiz \u00e9\r\n[launch]\r\ncpu-threads = {} # erprobt\r\n",
}


@pytest.mark.parametrize("layout", LAYOUTS.values())
def test_changing_one_value_changes_only_its_bytes(layout: str, kt_paths: Paths) -> None:
    kt_paths.config.mkdir(parents=True)
    kt_paths.config_file.write_bytes(layout.format(60).encode())
    set_value(kt_paths, "launch.cpu-threads", "58")
    assert kt_paths.config_file.read_bytes() == layout.format(58).encode()


@pytest.mark.parametrize("layout", LAYOUTS.values())
def test_a_new_key_and_its_removal_lose_nothing_of_the_rest(layout: str, kt_paths: Paths) -> None:
    before = layout.format(60)
    kt_paths.config.mkdir(parents=True)
    kt_paths.config_file.write_bytes(before.encode())
    values = tomllib.loads(before.removeprefix("\ufeff"))
    for act in (
        lambda: set_value(kt_paths, "ui.refresh_seconds", "2"),
        lambda: unset_value(kt_paths, "ui.refresh_seconds"),
    ):
        act()
        after = kt_paths.config_file.read_bytes().decode()
        rest = iter(after.splitlines())
        assert all(line in rest for line in before.splitlines())
        found = tomllib.loads(after.removeprefix("\ufeff"))
        assert {**found, "ui": values.get("ui")} == {**values, "ui": values.get("ui")}


def test_a_profile_keeps_its_comments_and_keys_of_other_programs(kt_paths: Paths) -> None:
    save_profile(kt_paths, Profile("big", "demo", options={"cpu-threads": 60}))
    path = profile_path(kt_paths, "big")
    text = path.read_text().replace("cpu-threads = 60", "cpu-threads = 60 # tested\n# below")
    path.write_text("# my note\n" + text + '\n[editor]\ncolour = "red"\n')
    before = path.read_text()
    profile = load_profile(kt_paths, "big")
    save_profile(
        kt_paths,
        Profile("big", "demo", options={"cpu-threads": 58}, created=profile.created),
        overwrite=True,
    )
    assert path.read_text() == before.replace("= 60", "= 58")


# -- two writers ------------------------------------------------------------------------------------------------------


def other_process(code: str, paths: Paths) -> None:
    environ = {**os.environ, "KT_TUI_HOME": str(paths.config.parent)}
    subprocess.run(
        [sys.executable, "-m", "kt_tui", *code.split()], env=environ, check=True, capture_output=True
    )


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (("server.port", "31000"), ("launch.cpu-threads", "2")),
        (("launch.cpu-threads", "3"), ("launch.max-running-requests", "2")),
        (("chat.max_tokens", "9"), ("chat.temperature", "0.5")),
    ],
)
def test_what_another_panel_saved_meanwhile_stays(
    theirs: tuple[str, str], ours: tuple[str, str], kt_paths: Paths
) -> None:
    before = load_config(kt_paths, {})  # this panel read the file here
    other_process(f"config set {theirs[0]} {theirs[1]}", kt_paths)
    set_value(kt_paths, *ours)
    after = load_config(kt_paths, {})
    assert str(after.get(theirs[0])) == theirs[1]
    assert str(after.get(ours[0])) == ours[1]
    assert before.origin("server.host") == after.origin("server.host")


def test_a_file_that_an_editor_replaced_meanwhile_is_what_is_changed(kt_paths: Paths) -> None:
    set_value(kt_paths, "server.port", "31000")
    load_config(kt_paths, {})
    other = kt_paths.config / "new"
    other.write_text('# by an editor\n[server]\nhost = "10.0.0.1"\n')
    other.replace(kt_paths.config_file)
    set_value(kt_paths, "server.port", "32000")
    assert kt_paths.config_file.read_text() == '# by an editor\n[server]\nhost = "10.0.0.1"\nport = 32000\n'


# -- places that cannot be written or read ----------------------------------------------------------------------------

READING = [
    ("config", "show"),
    ("config", "get", "server.port"),
    ("config", "path"),
    ("profile", "list"),
    ("models", "list"),
    ("plan", "demo"),
    ("version",),
]
WRITING = [
    ("config", "set", "server.port", "31000"),
    ("profile", "save", "p", "demo"),
]


def run(arguments: tuple[str, ...], home: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "KT_TUI_"))}
    command = [sys.executable, "-m", "kt_tui", *arguments]
    own |= {"KT_TUI_HOME": str(home), "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(command, env={**own, **environ}, capture_output=True, text=True, check=False)


def read_only_folder(home: Path) -> None:
    # No file system takes writes below /proc, from root neither, and its error is no PermissionError.
    home.mkdir()
    (home / "config").symlink_to("/proc/kt-tui-test")


def a_file_in_the_way(home: Path) -> None:
    home.mkdir()
    (home / "config").write_text("not a folder")


def a_circle_of_links(home: Path) -> None:
    home.mkdir()
    (home / "config").symlink_to("config")


def a_link_to_a_read_only_place(home: Path) -> None:
    (home / "config").mkdir(parents=True)
    (home / "config" / "config.toml").symlink_to("/dev/null")
    (home / "config" / "profiles").symlink_to("/proc/kt-tui-test")


@pytest.mark.parametrize(
    "place", [read_only_folder, a_file_in_the_way, a_circle_of_links, a_link_to_a_read_only_place]
)
def test_without_a_place_for_settings_all_that_reads_works_and_all_that_writes_says_why(
    place: Callable[[Path], None], tmp_path: Path
) -> None:
    home = tmp_path / "home"
    place(home)
    for arguments in READING:
        answer = run(arguments, home)
        assert "Traceback" not in answer.stderr, answer.stderr
        assert answer.returncode == 0, (arguments, answer.stderr)
    for arguments in WRITING:
        answer = run(arguments, home)
        assert (answer.returncode, answer.stdout) == (1, ""), arguments
        assert answer.stderr.count("\n") == 1, answer.stderr
        assert (
            re.match(r"kt-tui: cannot (save|read) ", answer.stderr)
            or "is not a regular file" in answer.stderr
        )


def test_settings_may_be_read_only_while_the_state_is_writable(unprivileged_folder: Path) -> None:
    paths = user_paths({"KT_TUI_HOME": str(unprivileged_folder)})
    set_value(paths, "server.port", "31000")
    paths.config_file.chmod(0o444)
    paths.config.chmod(0o555)
    config = load_config(paths, {})
    assert (config.whole("server.port"), config.notes) == (31000, ())
    assert config.read_only is not None
    # What a running panel writes lies elsewhere.
    writable = (paths.chats, paths.logs, paths.engines, paths.models, paths.state, paths.cache)
    assert not any(path.is_relative_to(paths.config) for path in writable)
    for path in (paths.config_file, paths.profiles, paths.models_file):
        assert path.is_relative_to(paths.config)
    with pytest.raises(ProfileError, match="there is no profile"):
        load_profile(paths, "p")


@pytest.mark.parametrize("mode", [0o000, 0o200])
def test_a_file_that_may_not_be_read_is_neither_used_nor_replaced(
    mode: int, unprivileged_folder: Path
) -> None:
    paths = user_paths({"KT_TUI_HOME": str(unprivileged_folder)})
    set_value(paths, "server.port", "31000")
    save_profile(paths, Profile("p", "demo"))
    files = {path: path.read_bytes() for path in (paths.config_file, profile_path(paths, "p"))}
    for path in files:
        path.chmod(mode)
    assert load_config(paths, {}).whole("server.port") == 30000
    assert [str(paths.config_file) in note for note in load_config(paths, {}).notes] == [True]
    assert str(profile_path(paths, "p")) in list_profiles(paths).notes[0]
    with pytest.raises(Exception, match=r"cannot (read|save) .*config\.toml"):
        set_value(paths, "server.port", "32000")
    with pytest.raises(Exception, match=r"cannot (read|save) .*p\.toml"):
        save_profile(paths, Profile("p", "smollm2"), overwrite=True)
    for path, content in files.items():
        path.chmod(0o600)
        assert path.read_bytes() == content


# -- where the files are ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "place", "note"),
    [
        (None, "{home}/.config", None),
        ("", "{home}/.config", None),
        ("{tmp}/new/a", "{tmp}/new/a", None),
        ("rel/path", "{home}/.config", "XDG_CONFIG_HOME is not used: 'rel/path' is no absolute path"),
        ("./x", "{home}/.config", "XDG_CONFIG_HOME is not used: './x' is no absolute path"),
        ("~/x", "{home}/.config", "XDG_CONFIG_HOME is not used: '~/x' is no absolute path"),
    ],
)
def test_the_platform_s_folder_for_settings(
    value: str | None, place: str, note: str | None, tmp_path: Path
) -> None:
    environ = {"KT_TUI_HOME": "", "HOME": str(tmp_path / "home")}
    if value is not None:
        environ["XDG_CONFIG_HOME"] = value.format(tmp=tmp_path)
    shown = run(("config", "show"), Path(), **environ)
    assert note in shown.stderr if note else shown.stderr == ""
    folder = Path(place.format(home=tmp_path / "home", tmp=tmp_path)) / "kt-tui"
    assert run(("config", "path"), Path(), **environ).stdout == f"{folder}/config.toml\n"
    assert run(("config", "set", "server.port", "31000"), Path(), **environ).returncode == 0
    assert folder.stat().st_mode & 0o777 == 0o700
    assert not (Path.cwd() / "rel").exists()


def test_every_kind_of_file_has_its_own_platform_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KT_TUI_HOME", raising=False)
    kinds = ("CONFIG", "DATA", "STATE", "CACHE")
    for kind in kinds:
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(tmp_path / kind))
    paths = user_paths(os.environ)
    for kind, folder in zip(kinds, (paths.config, paths.data, paths.state, paths.cache), strict=True):
        assert folder == tmp_path / kind / "kt-tui"


# -- invalid files ----------------------------------------------------------------------------------------------------

INVALID = [
    ('[profiles.big\ncpuinfer = 60\nport = "abc"\n', 1, 14),
    ('[server]\nport = 31000\n\n[ui]\ntheme = "paper\n', 5, 15),
    ("[server]\nport = 31000\n[server]\n", 3, 8),
    ("[server]\nport = 31,000\n", 2, 10),
    ("server:\n  port: 31000\n", 1, 7),
    ('{"server": {"port": 1}}\n', 1, 1),
]


@pytest.mark.parametrize(("text", "line", "column"), INVALID)
def test_an_invalid_file_gives_defaults_and_its_place_and_is_never_replaced(
    text: str, line: int, column: int, kt_paths: Paths
) -> None:
    kt_paths.profiles.mkdir(parents=True)
    for path in (kt_paths.config_file, profile_path(kt_paths, "p"), kt_paths.models_file):
        path.write_text(text)
    config = load_config(kt_paths, {})
    assert {setting.origin for setting in config.settings.values()} == {"default"}
    assert config.notes[0].startswith(f"{kt_paths.config_file}:{line}:{column}: ")
    assert list_profiles(kt_paths).notes[0].startswith(f"{profile_path(kt_paths, 'p')}:{line}:{column}: ")
    with pytest.raises(TomlError, match=f":{line}:{column}: "):
        set_value(kt_paths, "server.port", "1")
    with pytest.raises(TomlError, match=f":{line}:{column}: "):
        save_profile(kt_paths, Profile("p", "demo"), overwrite=True)
    with pytest.raises(TomlError, match=f":{line}:{column}: "):
        edit_toml(kt_paths.models_file, lambda document: document.update(models={}))
    for path in (kt_paths.config_file, profile_path(kt_paths, "p"), kt_paths.models_file):
        assert path.read_text() == text


# -- secrets ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "closed"),
    [
        ("[launch]\napi-key = 'hush'\n", True),
        ("[mine]\nhf_token = 'hush'\n", True),
        ("[a.b.c]\npassword = 'hush'\n", True),
        ("[[servers]]\nsecret = 'hush'\n", True),
        ("flags = ['--api-key', 'hush']\n", True),
        ("flags = ['--hf-token=hush']\n", True),
        ("[launch]\napi-key = ''\n", False),
        ("[keys]\nmax-tokens = 5\nkey = 'q'\n", False),
    ],
)
def test_a_file_with_a_secret_is_closed_when_anything_is_saved_and_told_before(
    text: str, closed: bool, kt_paths: Paths
) -> None:
    kt_paths.config.mkdir(parents=True)
    kt_paths.config_file.write_text(text)
    kt_paths.config_file.chmod(0o644)
    told = [note for note in load_config(kt_paths, {}).notes if "chmod 600" in note]
    assert bool(told) is closed
    assert "hush" not in "".join(told)
    set_value(kt_paths, "server.port", "31000")
    assert kt_paths.config_file.stat().st_mode & 0o777 == (0o600 if closed else 0o644)
    assert not [note for note in load_config(kt_paths, {}).notes if "chmod 600" in note]


def test_a_profile_with_a_secret_that_others_may_read_is_told(kt_paths: Paths) -> None:
    path = save_profile(kt_paths, Profile("p", "demo", options={"api-key": "hush"}))
    assert list_profiles(kt_paths).notes == ()
    path.chmod(0o640)
    assert list_profiles(kt_paths).notes == (
        f"p: {path} holds a secret, and others may read it; close it with: chmod 600 {path}",
    )


# -- profiles of other versions ---------------------------------------------------------------------------------------

OLD = """# tuned in spring
schema_version = 1
model = "demo"
extra = ["--kt-amx-weight-path", "/w", "--verbose"]

[options]
cpu-threads = 4
kt-amx-method = "AMXINT4" # the old name
"""


def test_an_old_profile_is_understood_and_changed_only_when_saved(kt_paths: Paths) -> None:
    path = profile_path(kt_paths, "p")
    path.parent.mkdir(parents=True)
    path.write_text(OLD)
    profile = load_profile(kt_paths, "p")
    assert dict(profile.options) == {"cpu-threads": 4, "kt-method": "AMXINT4"}
    assert profile.extra == ("--kt-weight-path", "/w", "--verbose")
    assert profile.notes == (
        "option kt-amx-method is now kt-method",
        "--kt-amx-weight-path is now --kt-weight-path",
    )
    assert path.read_text() == OLD
    save_profile(kt_paths, profile, overwrite=True)
    saved = path.read_text()
    assert saved.startswith("# tuned in spring\nschema_version = 2\n")
    assert 'kt-method = "AMXINT4" # the old name\n' in saved
    assert path.with_name("p.toml.v1.bak").read_text() == OLD
    assert path.with_name("p.toml.v1.bak").stat().st_mode & 0o777 == 0o600
    again = load_profile(kt_paths, "p")
    assert (again.notes, again.options) == ((), profile.options)
    save_profile(kt_paths, again, overwrite=True)
    assert path.read_text() == saved
    assert path.with_name("p.toml.v1.bak").read_text() == OLD
    assert [one.name for one in list_profiles(kt_paths).profiles] == ["p"]


@pytest.mark.parametrize(
    ("options", "becomes"),
    [
        ({"kt-amx-method": "AMXINT8"}, {"kt-method": "AMXINT8"}),
        ({"kt-amx-method": "AMXINT8", "kt-method": "FP8"}, {"kt-method": "FP8"}),
        ({"kt-amx-weight-path": "/w", "kt-cpuinfer": 8}, {"weights-path": "/w", "cpu-threads": 8}),
        ({"kt-num-gpu-experts": 1, "port": 1}, {"gpu-experts": 1, "port": 1}),
        ({"port": 1}, {"port": 1}),
        ({}, {}),
    ],
)
def test_names_of_version_1(options: dict[str, object], becomes: dict[str, object], kt_paths: Paths) -> None:
    path = profile_path(kt_paths, "p")
    path.parent.mkdir(parents=True)
    lines = [f"{name} = {value!r}" for name, value in options.items()]
    path.write_text("\n".join(["schema_version = 1", "model = 'demo'", "[options]", *lines]))
    assert load_profile(kt_paths, "p").options == becomes
    assert len(load_profile(kt_paths, "p").notes) == len(options.keys() - becomes.keys())


def test_a_profile_of_a_newer_version_says_so_and_is_read_only(kt_paths: Paths) -> None:
    path = profile_path(kt_paths, "p")
    path.parent.mkdir(parents=True)
    path.write_text("schema_version = 3\nmodel = 'demo'\n[warp]\nspeed = 9\n")
    profile = load_profile(kt_paths, "p")
    assert "written by a newer kt-tui (schema 3)" in profile.notes[0]
    with pytest.raises(ProfileError, match="newer kt-tui"):
        save_profile(kt_paths, profile, overwrite=True)
    assert list(path.parent.iterdir()) == [path]
