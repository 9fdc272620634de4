"""A capture shows the same machine elsewhere, and tells nothing but hardware."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from kt_tui.errors import KtError
from kt_tui.hardware import capture_machine, read_machine


def test_a_capture_reads_back_as_the_machine_it_was_made_on(tmp_path: Path) -> None:
    folder = tmp_path / "capture"
    here = capture_machine(folder, {"CUDA_VISIBLE_DEVICES": "0", "SECRET": "x"})
    there = read_machine(folder, folder / "gpus.json", environ={"CUDA_VISIBLE_DEVICES": "7"})
    # Files cannot say whether the kernel grants AMX or memory policies, and nobody looks up another's processes.
    forget_amx = replace(here.cpu, amx_usable=there.cpu.amx_usable)
    forget_policy = replace(here.numa, policy_allowed=None)
    assert replace(here, cpu=forget_amx, numa=forget_policy, notes=()) == replace(there, notes=())


def test_a_capture_holds_no_more_than_the_readers_need(tmp_path: Path) -> None:
    folder = tmp_path / "capture"
    capture_machine(folder, {"SECRET": "x"})
    markers = {".dockerenv", "run"}  # files that tell a container
    assert {path.name for path in folder.iterdir()} - markers == {"proc", "sys", "gpus.json"}
    status = (folder / "proc/self/status").read_text()
    assert all(line.startswith(("Cpus_allowed", "Mems_allowed")) for line in status.splitlines())
    for line in (folder / "proc/self/mountinfo").read_text().splitlines():
        assert "cgroup" in line or "/dev/shm" in line
    assert "SECRET" not in (folder / "gpus.json").read_text()
    assert set(json.loads((folder / "gpus.json").read_text())) == {"driver", "env", "gpus"}


def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("x")
    with pytest.raises(KtError, match="is not empty"):
        capture_machine(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(KtError, match="cannot write the capture"):
        capture_machine(tmp_path / "file" / "below")
