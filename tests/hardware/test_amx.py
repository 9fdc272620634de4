"""AMX: what the CPU lists is not yet what the kernel grants."""

from collections.abc import Callable
from pathlib import Path

import pytest

from kt_tui.hardware.cpu import read_cpu
from kt_tui.hardware.files import SystemFiles
from kt_tui.hardware.machine import ControlGroup

Build = Callable[[dict[str, str]], Path]
LISTED = "processor: 0\nflags: avx2 amx_tile amx_int8 amx_bf16\n"


def as_live(root: Path) -> SystemFiles:
    files = SystemFiles(root)
    files.live = True
    return files


@pytest.mark.parametrize(
    ("granted", "note"), [(True, None), (False, "present but not usable"), (None, "could not be probed")]
)
def test_amx_is_usable_only_if_the_kernel_grants_it(
    sysroot: Build, granted: bool | None, note: str | None
) -> None:
    notes: list[str] = []
    files = as_live(sysroot({"/proc/cpuinfo": LISTED}))
    cpu = read_cpu(files, ControlGroup(), None, notes, ask_amx=lambda: granted)
    assert cpu.amx_usable is granted
    assert [part for part in notes if "AMX" in part] == (
        [] if note is None else [n for n in notes if note in n]
    )
    assert note is None or any(note in text for text in notes)


def test_a_cpu_without_amx_is_never_asked(sysroot: Build) -> None:
    def ask() -> bool:
        raise AssertionError("asked")

    files = as_live(sysroot({"/proc/cpuinfo": "processor: 0\nflags: avx2\n"}))
    assert read_cpu(files, ControlGroup(), None, [], ask_amx=ask).amx_usable is False


def test_a_capture_leaves_the_permission_open(sysroot: Build) -> None:
    notes: list[str] = []
    cpu = read_cpu(
        SystemFiles(sysroot({"/proc/cpuinfo": LISTED})), ControlGroup(), None, notes, ask_amx=lambda: True
    )
    assert cpu.amx_usable is None
    assert any("only be asked on the machine" in note for note in notes)
