"""The native tests under sanitizers, in their small form (`make sanitize` runs the large one)."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
FLAGS = {"thread": "thread", "address": "address,undefined"}
PROGRAM = "#include <thread>\nint main() { int x = 0; std::thread([&] { x = 1; }).join(); return x - 1; }\n"


def missing(name: str, folder: Path) -> str:
    """Why this machine cannot run a program with this sanitizer, or nothing."""
    compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++")
    for tool in (compiler, shutil.which("cmake"), shutil.which("make") or shutil.which("ninja")):
        if not tool:
            return "a C++ compiler, CMake and make are needed"
    source, program = folder / "try.cpp", folder / "try"
    source.write_text(PROGRAM)
    command = [str(compiler), "-std=c++20", f"-fsanitize={FLAGS[name]}", source, "-o", program, "-pthread"]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    if built.returncode:
        return f"the compiler has no -fsanitize={FLAGS[name]}: {built.stderr[-200:]}"
    ran = subprocess.run([program], capture_output=True, text=True, check=False)
    return f"programs with {name} sanitizer don't run here: {ran.stderr[-200:]}" if ran.returncode else ""


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", sorted(FLAGS))
def test_no_sanitizer_finds_a_fault(name, tmp_path):
    reason = missing(name, tmp_path)
    if reason:
        pytest.skip(reason)
    script = REPOSITORY / "tools" / "sanitize.sh"
    done = subprocess.run([script, "--small", name], capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
    assert "team_stress: 0 failures" in done.stdout
    assert "scalar: " in done.stdout
