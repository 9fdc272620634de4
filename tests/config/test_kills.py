"""Over a thousand kills in the middle of a save: the file is always the old one or the new one, whole.

Two ways, since either alone would miss something: a kill at each line of Python that a save runs through, one after
the other; and kills by the clock, which also fall inside the system calls.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any

import pytest
import tomlkit  # noqa: F401 (before the forks, so that no child spends its life on it)

from kt_tui import tomlfile
from kt_tui.config import set_value
from kt_tui.paths import Paths
from kt_tui.profiles import load_profile, save_profile
from tests.config.forks import forked

TEXT = """# by hand
[mine]
key = 'kept' # and why
list = [ 1,
  2 ] # two lines
{secret}
[launch]
# how many
count = {count} # counted

[later]
a = {{ b = 1 }}
"""


@dataclass(frozen=True)
class Kind:
    """A configuration file as people have them."""

    mode: int
    linked: bool = False
    secret: str = ""
    ends: str = "\n"
    bom: str = ""

    def text(self, count: object) -> bytes:
        lines = TEXT.format(count=count, secret=self.secret)
        return (self.bom + lines.replace("\n", self.ends)).encode()


KINDS = {
    "dotfiles": Kind(0o644, linked=True),
    "private": Kind(0o600, secret="api-key = 'hush'", ends="\r\n", bom="\ufeff"),
}
KILLS = 270  # by the clock, for each kind


@dataclass
class Scene:
    """The file of one kind in a folder of its own, and what must hold of it after any kill."""

    kind: Kind
    paths: Paths

    def __post_init__(self) -> None:
        self.file = self.paths.config_file
        self.file.parent.mkdir(parents=True)
        self.real = self.paths.config / "dotfiles" / "kt.toml" if self.kind.linked else self.file
        self.real.parent.mkdir(exist_ok=True)
        self.reset()
        if self.kind.linked:
            self.file.symlink_to("dotfiles/kt.toml")

    def reset(self) -> None:
        self.real.write_bytes(self.kind.text(-1))
        self.real.chmod(self.kind.mode)

    def check(self) -> int:
        """Asserts all that must hold; gives the count that the file has."""
        raw = self.real.read_bytes()
        count = int(raw.split(b"count = ")[1].split()[0])
        assert raw == self.kind.text(count)
        assert self.real.stat().st_mode & 0o7777 == self.kind.mode
        assert self.file.is_symlink() == self.kind.linked
        assert os.path.realpath(self.file) == str(self.real)
        left = [entry.name for entry in self.real.parent.iterdir() if entry.name.endswith(".tmp")]
        assert len(left) <= 1, "each save must sweep up after the killed one before it"
        assert not any((self.real.parent / name).stat().st_mode & 0o777 & ~self.kind.mode for name in left)
        others = {entry.name for entry in self.real.parent.iterdir()} - {self.real.name, *left, "dotfiles"}
        assert not others
        return count


@pytest.fixture(params=KINDS)
def scene(request: pytest.FixtureRequest, kt_paths: Paths) -> Scene:
    return Scene(KINDS[request.param], kt_paths)


def killing_at(line: int, work: Callable[[], object]) -> Callable[[], None]:
    """``work``, ended by SIGKILL when it comes to its line number ``line`` in the module that saves."""

    def killed() -> None:
        seen = 0

        def trace(frame: FrameType, event: str, _argument: Any) -> Any:
            nonlocal seen
            if frame.f_code.co_filename != tomlfile.__file__:
                return None
            if event == "line":
                if seen == line:
                    os.kill(os.getpid(), signal.SIGKILL)
                seen += 1
            return trace

        sys.settrace(trace)
        work()

    return killed


def test_a_kill_at_each_line_of_a_save(scene: Scene) -> None:
    counts = []
    for line in range(1000):
        scene.reset()
        child = forked(killing_at(line, lambda: set_value(scene.paths, "launch.count", "7")))
        status = os.waitpid(child, 0)[1]
        counts.append(scene.check())
        if status == 0:
            break
        assert os.WTERMSIG(status) == signal.SIGKILL
    assert len(counts) > 50, "so few lines cannot be a whole save"
    assert set(counts) == {-1, 7}
    # First the old one, from some line on the new one, and never back.
    turn = counts.index(7)
    assert counts == [-1] * turn + [7] * (len(counts) - turn)
    assert 0 < turn < len(counts) - 1


def test_kills_at_any_moment(scene: Scene) -> None:
    chance = random.Random(20)
    patience, last, saved = 0.02, -1, 0

    def work() -> None:
        for count in range(10_000):
            set_value(scene.paths, "launch.count", str(last + 1 + count))

    for _ in range(KILLS):
        child = forked(work)
        time.sleep(chance.uniform(0.1, 1.1) * patience)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        count = scene.check()
        assert count >= last
        # Kills shall fall around the end of a save, however fast this machine is just now.
        patience *= 0.93 if count > last else 1.07
        saved += count > last
        last = count
    assert 0 < saved < KILLS, "no kill, or each one, came after a save; the test proves nothing"
    set_value(scene.paths, "launch.count", "7")
    assert not list(scene.real.parent.glob(".*"))


def test_a_new_file_is_there_whole_or_not_at_all(kt_paths: Paths) -> None:
    whole = 0
    for line in range(1000):
        kt_paths.config_file.unlink(missing_ok=True)
        child = forked(killing_at(line, lambda: set_value(kt_paths, "server.port", "31000")))
        status = os.waitpid(child, 0)[1]
        if kt_paths.config_file.exists():
            whole += 1
            assert b"port = 31000\n" in kt_paths.config_file.read_bytes()
            assert kt_paths.config_file.stat().st_mode & 0o777 == 0o600
        if status == 0:
            break
    assert 1 < whole < line


def test_a_profile_of_an_earlier_version_keeps_its_copy_whatever_happens(kt_paths: Paths) -> None:
    old = "# mine\nschema_version = 1\nmodel = 'demo'\n[options]\nkt-amx-method = 'AMXINT4' # why\n"
    path = kt_paths.profiles / "p.toml"
    copy = path.with_name("p.toml.v1.bak")
    path.parent.mkdir(parents=True)

    def save() -> None:
        save_profile(kt_paths, load_profile(kt_paths, "p"), overwrite=True)

    for line in range(1000):
        copy.unlink(missing_ok=True)
        path.write_text(old)
        status = os.waitpid(forked(killing_at(line, save)), 0)[1]
        if path.read_text() == old:
            assert not copy.exists() or copy.read_text() == old
        else:
            assert copy.read_text() == old
            assert load_profile(kt_paths, "p").options == {"kt-method": "AMXINT4"}
            assert "# mine\n" in path.read_text()
            assert "# why" in path.read_text()
        if status == 0:
            break
    assert path.read_text() != old
    before = path.read_bytes()
    save()  # a second time changes nothing
    assert path.read_bytes() == before
    assert sorted(entry.name for entry in path.parent.iterdir()) == ["p.toml", "p.toml.v1.bak"]
