"""``kt-tui doctor``."""

import json
import socket
import time
from pathlib import Path

import pytest

from kt_tui.cli.main import main
from tests.machines.describe import GIB, X86, Described, gpu_document, gpu_row, machine_files, write_files


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    described = Described("\x1b[31mTest CPU", X86, 2, 4, 2, 256 * GIB, 200 * GIB)
    return write_files(tmp_path / "m", machine_files(described))


def gpus(folder: Path, error: str | None = None) -> str:
    path = folder / "gpus.json"
    working = gpu_document(gpu_row(0, "NVIDIA card", 24 * GIB, (8, 9), 0))
    path.write_text(json.dumps({"driver": {"error": error}, "gpus": []} if error else working))
    return str(path)


@pytest.mark.parametrize(("error", "code"), [(None, 0), ("LIB_RM_VERSION_MISMATCH", 1)])
def test_the_exit_code_tells_an_error(
    machine: Path, error: str | None, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", "--json", "--sysroot", str(machine), "--gpus", gpus(machine, error)]) == code
    output = capsys.readouterr()
    checks = json.loads(output.out)["checks"]
    assert output.err == ""
    assert all(set(check) == {"id", "status", "evidence", "fix"} for check in checks)
    assert {check["status"] for check in checks} <= {"ok", "warning", "error", "skipped"}
    assert [check["id"] for check in checks if check["status"] == "error"] == (
        ["gpu-driver"] if error else []
    )
    assert checks[0]["status"] == ("error" if error else "warning")


def test_words_begin_with_the_worst(machine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["doctor", "--sysroot", str(machine), "--gpus", gpus(machine, "LIB_RM_VERSION_MISMATCH")]) == 1
    )
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Errors"
    assert "driver/library mismatch" in lines[1]
    assert lines[2].strip().startswith("-> sudo reboot")
    assert lines[-1].startswith("1 error(s), 1 warning(s)")
    assert not any("\x1b" in line for line in lines)


def test_this_machine_is_checked_in_time(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KT_TUI_HOME", str(tmp_path))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        monkeypatch.setenv("KT_TUI_PORT", str(taken.getsockname()[1]))
        started = time.monotonic()
        assert main(["doctor", "--json"]) in (0, 1)
    assert time.monotonic() - started < 2
    found = {check["id"]: check for check in json.loads(capsys.readouterr().out)["checks"]}
    assert found["port"]["status"] == "warning"
    assert found["port"]["fix"].startswith("kt-tui config set server.port ")
    assert found["disk"]["status"] in {"ok", "warning", "error"}
    assert found["cores"]["status"] in {"ok", "warning"}


def test_a_folder_that_is_no_machine_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--sysroot", "/nowhere"]) == 1
    assert capsys.readouterr().err.startswith("kt-tui: /nowhere is no captured machine")
