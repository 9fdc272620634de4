"""Disks: which mount a folder is on, and reading past the page cache."""

import json
from pathlib import Path

import pytest

from kt_tui.cli.main import main
from kt_tui.errors import KtError
from kt_tui.hardware.disks import BLOCK, find_mount, measure_read

MOUNTS = (
    "30 1 259:2 / / rw - ext4 /dev/a rw\n"
    "31 30 0:50 / /mnt/my\\040models rw - nfs4 host:/x rw\n"
    "32 30 259:3 / /mnt rw - xfs /dev/b rw\n"
    "33 30 259:4 / /mnt rw - btrfs /dev/c rw\n"
    "garbage\n"
)


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/home/u", ("/", "ext4", "259:2")),
        ("/mnt/x", ("/mnt", "btrfs", "259:4")),
        ("/mntx", ("/", "ext4", "259:2")),
        ("/mnt/my models/m2", ("/mnt/my models", "nfs4", "0:50")),
    ],
)
def test_the_mount_of_a_folder(path: str, found: tuple[str, str, str]) -> None:
    assert find_mount(MOUNTS, path) == found


def test_without_mounts_nothing_is_said() -> None:
    assert find_mount(None, "/home") is None


def test_a_folder_is_measured(tmp_path: Path) -> None:
    (tmp_path / "weights").write_bytes(b"x" * (2 * BLOCK))
    (tmp_path / "small").write_bytes(b"x")
    try:
        speed = measure_read(tmp_path, 1.0)
    except KtError:
        pytest.skip("this file system does not read past the page cache")
    assert speed > 1 << 20


@pytest.mark.parametrize("name", ["nowhere", "empty"])
def test_a_folder_that_cannot_be_measured_is_explained(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    assert main(["hardware", "--disk-speed", str(tmp_path / name)]) == 1
    output = capsys.readouterr()
    assert output.err.startswith(f"kt-tui: cannot measure {tmp_path / name}")


def test_the_disk_of_the_models_is_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KT_TUI_HOME", str(tmp_path))
    assert main(["hardware", "--json"]) == 0
    (disk,) = json.loads(capsys.readouterr().out)["disks"]
    assert disk["path"] == str(tmp_path / "data")
    assert 0 < disk["free"] <= disk["total"]
    assert disk["filesystem"]
    assert disk["read_bytes_per_s"] is None
