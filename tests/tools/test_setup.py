"""The set-up script: whatever is missing, the user reads one sentence with the mend."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]


def run_setup(venv: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "tools/setup.sh", str(venv)],
        cwd=REPOSITORY,
        env={"PATH": os.environ["PATH"], "PYTHON": sys.executable, **env},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def script(path: Path, body: str) -> Path:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def assert_one_sentence(result: subprocess.CompletedProcess[str], *words: str) -> None:
    assert result.returncode == 1
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert len(lines) == 1, result.stderr
    for word in words:
        assert word in lines[0]


def test_a_missing_compiler_is_named_with_its_package(tmp_path: Path) -> None:
    assert_one_sentence(
        run_setup(tmp_path / "venv", CXX="no-such-compiler"), "C++ compiler", "apt install g++"
    )


def test_a_missing_python_is_named(tmp_path: Path) -> None:
    assert_one_sentence(run_setup(tmp_path / "venv", PYTHON="no-such-python"), "no-such-python", "3.11")


def test_an_old_python_is_told_by_its_version(tmp_path: Path) -> None:
    old = script(tmp_path / "python3", 'case "$*" in *version_info*) exit 1;; esac; echo "Python 3.9.2"')
    assert_one_sentence(run_setup(tmp_path / "venv", PYTHON=str(old)), "Python 3.9.2 is too old", "3.11")


def test_a_python_without_venv_is_told(tmp_path: Path) -> None:
    bare = script(
        tmp_path / "python3", f'case "$*" in *ensurepip*) exit 1;; esac; exec {sys.executable} "$@"'
    )
    assert_one_sentence(run_setup(tmp_path / "venv", PYTHON=str(bare)), "venv", "apt install python3-venv")


def test_a_full_disk_is_told_before_anything_is_made(tmp_path: Path) -> None:
    bin_dir = tmp_path / "bin"
    bin_dir.mkdir()
    script(bin_dir / "df", "echo 'Filesystem 1M Used Avail'; echo '/dev/x 1000 900 100 90% /'")
    result = run_setup(tmp_path / "venv", PATH=f"{bin_dir}:{os.environ['PATH']}")
    assert_one_sentence(result, "100 MB are free", "free some space")
    assert not (tmp_path / "venv").exists()


@pytest.mark.parametrize(
    ("last_words", "expected"),
    [
        ("OSError: [Errno 28] No space left on device", "the disk filled up while"),
        ("error: something else", "failed; the last lines above say why"),
    ],
)
def test_a_failing_install_ends_in_one_sentence_below_its_own_words(
    tmp_path: Path, last_words: str, expected: str
) -> None:
    fake = script(
        tmp_path / "python3",
        f"""case "$*" in
  *"-m venv --clear"*) mkdir -p "$4/bin"; cp "$0" "$4/bin/python";;
  *"-m pip --version"*) exit 1;;
  *"-m pip"*) echo '{last_words}'; exit 1;;
  *) exec {sys.executable} "$@";;
esac""",
    )
    result = run_setup(tmp_path / "venv", PYTHON=str(fake))
    assert result.returncode == 1
    assert last_words in result.stderr
    assert expected in result.stderr.splitlines()[-1]
