"""Cores, siblings and packages from whatever topology there is."""

from collections.abc import Callable
from pathlib import Path

import pytest

from kt_tui.hardware import read_machine
from kt_tui.hardware.cpu import parse_cpuinfo

Build = Callable[[dict[str, str]], Path]
TOPOLOGY = "/sys/devices/system/cpu/cpu{}/topology/{}"


def cpuinfo(count: int) -> str:
    return "".join(f"processor: {n}\nflags: avx2\n\n" for n in range(count))


def test_core_numbers_that_repeat_in_a_package_are_told_apart_by_siblings(sysroot: Build) -> None:
    files = {"/proc/cpuinfo": cpuinfo(4)}
    for cpu in range(4):
        files[TOPOLOGY.format(cpu, "physical_package_id")] = "0\n"
        files[TOPOLOGY.format(cpu, "core_id")] = f"{cpu % 2}\n"  # two dies, each counting from 0
        files[TOPOLOGY.format(cpu, "thread_siblings_list")] = f"{cpu}\n"
    assert read_machine(sysroot(files)).cpu.physical_cores == 4


def test_without_siblings_the_package_and_core_decide(sysroot: Build) -> None:
    files = {"/proc/cpuinfo": cpuinfo(8)}
    for cpu in range(8):
        files[TOPOLOGY.format(cpu, "physical_package_id")] = f"{cpu % 2}\n"
        files[TOPOLOGY.format(cpu, "core_id")] = f"{cpu // 2 % 2}\n"
    cpu = read_machine(sysroot(files)).cpu
    assert (cpu.sockets, cpu.physical_cores, cpu.smt, cpu.topology) == (2, 4, 2, "sysfs")


@pytest.mark.parametrize("package", ["-1\n", None])
def test_an_unknown_package_is_one_socket(sysroot: Build, package: str | None) -> None:
    files = {"/proc/cpuinfo": cpuinfo(4)}
    for cpu in range(4):
        files[TOPOLOGY.format(cpu, "core_cpus_list")] = f"{cpu // 2 * 2}-{cpu // 2 * 2 + 1}\n"
        if package:
            files[TOPOLOGY.format(cpu, "physical_package_id")] = package
    cpu = read_machine(sysroot(files)).cpu
    assert (cpu.sockets, cpu.physical_cores, cpu.smt) == (1, 2, 2)


def test_usable_cores_are_counted_over_usable_cpus_only(sysroot: Build) -> None:
    files = {"/proc/cpuinfo": cpuinfo(8), "/proc/self/status": "Cpus_allowed_list: 0,4,5\n"}
    for cpu in range(8):
        files[TOPOLOGY.format(cpu, "core_cpus_list")] = f"{cpu % 4},{cpu % 4 + 4}\n"
    cpu = read_machine(sysroot(files)).cpu
    assert (cpu.usable_cpus, cpu.usable_logical_cpus, cpu.usable_physical_cores) == ((0, 4, 5), 3, 2)


def test_flags_are_those_that_every_cpu_lists() -> None:
    info = parse_cpuinfo("processor: 0\nflags: avx2 avx512f\n\nprocessor: 1\nflags: avx2\n")
    assert info.flags == {"avx2"}


def test_lines_outside_of_a_block_are_kept() -> None:
    info = parse_cpuinfo(
        "Processor\t: ARMv7\nprocessor : 0\nBogoMIPS: 1\n\nHardware : Board\nFeatures : neon\n"
    )
    assert list(info.blocks) == [0]
    assert info.first("hardware") == "Board"
