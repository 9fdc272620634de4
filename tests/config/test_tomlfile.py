"""No way of saving loses anything."""

from __future__ import annotations

import errno
import os
import signal
import time
import tomllib
from collections.abc import Callable, MutableMapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kt_tui import tomlfile
from kt_tui.config import set_value
from kt_tui.paths import Paths
from kt_tui.tomlfile import FileError, edit_toml, locate, locked_folder, read_toml
from tests.config.forks import forked


def setter(*keys: str, value: object) -> Callable[[MutableMapping[str, Any]], None]:
    def change(document: MutableMapping[str, Any]) -> None:
        for key in keys[:-1]:
            document = document[key]
        document[keys[-1]] = value

    return change


BIG = '# my note\n[profiles.big]\ncpuinfer = 60 # tested\nflags = [ "--a",\n  "--b" ]\n'


def test_only_the_value_changes(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text(BIG)
    edit_toml(path, setter("profiles", "big", "cpuinfer", value=58))
    assert path.read_text() == BIG.replace("60", "58")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a.b = 1 # c\n# end\n", "a.b = 2 # c\n# end\n"),
        ("a = { b = 1, c = [1,2] } # x\n", "a = { b = 2, c = [1,2] } # x\n"),
        ("[a]\r\nb = 1\r\n# \xe9\r\n", "[a]\r\nb = 2\r\n# \xe9\r\n"),
        ("\ufeff[a]\nb = 1\n", "\ufeff[a]\nb = 2\n"),
        ("[a]\nb = 1", "[a]\nb = 2"),
        ("\n\n  [a]\n\tb=1\n\n\n[c]\n", "\n\n  [a]\n\tb=2\n\n\n[c]\n"),
    ],
)
def test_layout_stays(before: str, after: str, tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_bytes(before.encode())
    edit_toml(path, setter("a", "b", value=2))
    assert path.read_bytes().decode() == after


def test_new_lines_end_like_the_others(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_bytes(b"[a]\r\nb = 1\r\n")
    edit_toml(path, setter("a", "c", value="x"))
    assert path.read_bytes() == b'[a]\r\nb = 1\r\nc = "x"\r\n'


def test_an_unchanged_file_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text(BIG)
    before = path.stat()
    edit_toml(path, lambda _document: None)
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644, 0o755])
def test_permissions_stay(mode: int, tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text("a = 1\n")
    path.chmod(mode)
    edit_toml(path, setter("a", value=2))
    assert path.stat().st_mode & 0o777 == mode
    edit_toml(path, setter("api-key", value="hush"))
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_temporary_file_is_never_open_to_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "c.toml"
    path.write_text("a = 1\n")
    path.chmod(0o644)
    seen = []
    real = os.fsync

    def look(descriptor: int) -> None:
        seen.extend(p.stat().st_mode & 0o777 for p in tmp_path.glob(".c.toml.*"))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", look)
    old_mask = os.umask(0)
    try:
        edit_toml(path, setter("api_key", value="s"))
    finally:
        os.umask(old_mask)
    assert seen == [0o600]


def test_symbolic_links_stay_links(tmp_path: Path) -> None:
    real = tmp_path / "dotfiles" / "real.toml"
    real.parent.mkdir()
    real.write_text("a = 1\n")
    (tmp_path / "middle.toml").symlink_to(real)
    link = tmp_path / "c.toml"
    link.symlink_to("middle.toml")
    edit_toml(link, setter("a", value=2))
    assert link.is_symlink()
    assert real.read_text() == "a = 2\n"


def test_a_link_to_nothing_gets_its_file(tmp_path: Path) -> None:
    link = tmp_path / "c.toml"
    link.symlink_to(tmp_path / "later" / "real.toml")
    edit_toml(link, setter("a", value=1))
    assert (tmp_path / "later" / "real.toml").read_text() == "a = 1\n"


def test_a_link_in_a_circle_is_a_sentence(tmp_path: Path) -> None:
    link = tmp_path / "c.toml"
    link.symlink_to("c.toml")
    with pytest.raises(FileError, match=r"c\.toml"):
        edit_toml(link, setter("a", value=1))


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EDQUOT])
def test_an_error_while_writing_leaves_the_old_file(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "c.toml"
    path.write_text(BIG)

    def fail(_descriptor: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(FileError, match=f"cannot save {path}: {os.strerror(number).lower()}"):
        edit_toml(path, setter("profiles", "big", "cpuinfer", value=58))
    assert path.read_text() == BIG
    assert list(tmp_path.iterdir()) == [path]


def test_a_layout_that_would_come_out_wrong_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tomlkit

    path = tmp_path / "c.toml"
    path.write_text(BIG)
    monkeypatch.setattr(tomlkit, "dumps", lambda _document: "[profiles.big]\ncpuinfer = 58\n")
    with pytest.raises(FileError, match="edit it by hand"):
        edit_toml(path, setter("profiles", "big", "cpuinfer", value=58))
    assert path.read_text() == BIG


def test_two_writers_never_lose_each_others_keys(kt_paths: Paths) -> None:
    rounds = 15

    def writer(number: int) -> Callable[[], None]:
        def work() -> None:
            for turn in range(rounds):
                set_value(kt_paths, f"launch.w{number}-{turn}", str(turn))

        return work

    children = [forked(writer(number)) for number in range(4)]
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
    launch = tomllib.loads(kt_paths.config_file.read_text())["launch"]
    assert launch == {f"w{number}-{turn}": turn for number in range(4) for turn in range(rounds)}


def test_a_writer_who_read_earlier_keeps_what_another_wrote_since(kt_paths: Paths) -> None:
    set_value(kt_paths, "ui.theme", "paper")  # A has read the file here ...
    os.waitpid(forked(lambda: void(set_value(kt_paths, "server.port", "31000"))), 0)  # ... B writes ...
    set_value(kt_paths, "launch.cpuinfer", "2")  # ... and A writes another key.
    document = read_toml(kt_paths.config_file)
    assert document["server"]["port"] == 31000
    assert document["launch"]["cpuinfer"] == 2


def void(_value: object) -> None:
    pass


def test_a_lock_of_a_dead_process_does_not_block(tmp_path: Path) -> None:
    read_end, write_end = os.pipe()

    def hold() -> None:
        with locked_folder(tmp_path):
            os.write(write_end, b"x")
            time.sleep(60)

    child = forked(hold)
    os.read(read_end, 1)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    edit_toml(tmp_path / "c.toml", setter("a", value=1))
    for descriptor in (read_end, write_end):
        os.close(descriptor)


def test_a_lock_that_is_never_given_back_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tomlfile, "LOCK_SECONDS", 0.05)
    with locked_folder(tmp_path), pytest.raises(FileError, match="is being written by another program"):
        edit_toml(tmp_path / "c.toml", setter("a", value=1))


@pytest.mark.parametrize(
    ("text", "keys", "place"),
    [
        ("a = 1\n[b]\nc = 2\n", ("b", "c"), (3, 1)),
        ("b.c = 2\n", ("b", "c"), (1, 3)),
        ("# c = 1\n[b] # c\n  c = 2\n", ("b", "c"), (3, 3)),
        ('t = """\n[b]\nc = 1\n"""\n[b]\nc = 2\n', ("b", "c"), (6, 1)),
        ("a = 1\n", ("b", "c"), None),
        ("a = [\n", ("a",), None),
    ],
)
def test_the_place_of_a_key(text: str, keys: tuple[str, ...], place: tuple[int, int] | None) -> None:
    assert locate(text, keys) == place


LINES = st.sampled_from(
    [
        "# a comment, with = and [brackets]",
        "",
        "  # indented",
        'text{n} = "a # b" # trailing',
        "number{n} = 1_000",
        "float{n}=  1e3   # odd spaces",
        "nan{n} = nan",
        "date{n} = 2026-01-01T00:00:00Z",
        "list{n} = [ 1,\n  2, # two\n ]",
        "inline{n} = {a = 1, b = [true]}",
        "dotted{n}.x.y = 1",
        "\"quoted {n}\" = '''\nmany\nlines'''",
        "[table{n}]",
        "[table{n}.sub]",
        "[[array{n}]]",
    ]
)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    before=st.lists(LINES, max_size=8),
    after=st.lists(LINES, max_size=8),
    value=st.one_of(st.integers(-(2**62), 2**62), st.text(max_size=20), st.booleans(), st.floats(-1e9, 1e9)),
    existing=st.booleans(),
)
def test_whatever_the_file_holds_only_the_key_changes(
    tmp_path: Path, before: list[str], after: list[str], value: object, existing: bool
) -> None:
    lines = [line.replace("{n}", str(number)) for number, line in enumerate([*before, "\0", *after])]
    section = "[launch]\nkeep = 1 # kept" + ("\nkey = 0 # old" if existing else "")
    text = "\n".join(section if line == "\0" else line for line in lines) + "\n"
    path = tmp_path / "c.toml"
    path.write_text(text)
    old = tomllib.loads(text)
    edit_toml(path, setter("launch", "key", value=value))
    new_text = path.read_text()
    new = tomllib.loads(new_text)
    assert new["launch"].pop("key") == value
    old["launch"].pop("key", None)
    assert repr(new) == repr(old)
    # Every other line is there, in its order, byte for byte.
    kept = [line for line in text.splitlines() if not line.startswith("key = 0")]
    rest = iter(new_text.splitlines())
    assert all(line in rest for line in kept)
