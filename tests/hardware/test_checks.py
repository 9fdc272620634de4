"""The doctor's verdicts, each on several machines that differ in what it looks at."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kt_tui.hardware import Machine, machine_from_json
from kt_tui.hardware.checks import Check, Context, Status, count_findings, probe, run_checks
from kt_tui.hardware.checks.software import Software, check_software, find_software, last_error
from kt_tui.hardware.machine import Cpu, Driver, Gpu, HugePages, Limits, Memory, Numa, NumaNode, ResourceLimit
from kt_tui.hardware.methods import METHODS, method_support
from kt_tui.hardware.surroundings import Accelerator
from tests.machines.describe import AMX, AVX512, GIB, X86
from tests.machines.make import FOLDER

ELSEWHERE = Context(here=False)


def stored(name: str) -> Machine:
    return machine_from_json(json.loads((FOLDER / f"{name}.json").read_text("utf-8")))


def verdicts(machine: Machine, context: Context = ELSEWHERE) -> dict[str, Check]:
    return {check.id: check for check in run_checks(machine, context)}


def test_every_finding_has_a_mend_and_every_check_its_evidence() -> None:
    for path in FOLDER.glob("*.json"):
        checks = run_checks(stored(path.stem), ELSEWHERE)
        assert len({check.id for check in checks}) == len(checks)
        for check in checks:
            assert check.evidence
            assert check.fix or check.status in {"ok", "skipped"}, check


def test_the_worst_comes_first() -> None:
    order = ["error", "warning", "ok", "skipped"]
    found = [order.index(check.status) for check in run_checks(stored("container-2-cores"), ELSEWHERE)]
    assert found == sorted(found)
    assert len(set(found)) > 2


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "epyc-9355-2x5090",
            {"numa-balancing": "warning", "format-fp8": "ok", "amx": "skipped", "gpu-driver": "ok"},
        ),
        ("xeon-6454s-4090d-1tb", {"amx": "ok", "format-amxint4": "ok", "memory": "ok", "fp8-backend": "ok"}),
        ("desktop-5090-256gb", {"numa": "ok", "numa-binding": "skipped", "swap": "ok", "cores": "ok"}),
        (
            "container-2-cores",
            {"memory": "warning", "cores": "warning", "shared-memory": "warning", "torch": "skipped"},
        ),
        ("grace-gh200", {"cpu-isa": "warning", "format-fp8": "skipped", "attention-backend": "ok"}),
    ],
)
def test_known_machines(name: str, expected: dict[str, str]) -> None:
    found = verdicts(stored(name))
    assert {check: str(found[check].status) for check in expected} == expected


@pytest.mark.parametrize(
    ("isa", "permission", "arch", "levels"),
    [
        (
            "avx2 fma avx512f avx512bw avx512vbmi",
            False,
            "x86_64",
            {"AMXINT4": "no", "FP8": "slow", "RAWINT4": "fast"},
        ),
        (AVX512, False, "x86_64", {"AMXINT8": "no", "FP8": "fast", "FP8_PERCHANNEL": "fast", "BF16": "fast"}),
        (AMX, True, "x86_64", {"AMXINT4": "fast", "AMXINT8": "fast", "MXFP8": "fast"}),
        (AMX, False, "x86_64", {"AMXINT4": "no", "MXFP8": "slow", "FP8": "fast"}),
        (X86, False, "x86_64", {"FP8": "slow", "FP8_PERCHANNEL": "no", "LLAMAFILE": "fast"}),
        ("sse4_2 avx", False, "x86_64", dict.fromkeys(METHODS, "no")),
        ("asimd sve bf16", False, "aarch64", dict.fromkeys(METHODS, "no")),
    ],
)
def test_formats_by_processor(isa: str, permission: bool, arch: str, levels: dict[str, str]) -> None:
    cpu = Cpu(isa=tuple(isa.split()), amx_usable=permission, arch=arch)
    found = {method: method_support(cpu, method) for method in levels}
    assert {method: support.level for method, support in found.items() if support} == levels
    for support in found.values():
        assert support
        assert support.level == "fast" or support.reason
        if arch == "aarch64":
            assert "x86 only" in support.reason


def test_a_missing_flag_is_named() -> None:
    support = method_support(Cpu(isa=tuple(AVX512.split()), amx_usable=False, arch="x86_64"), "AMXINT4")
    assert support
    assert "amx_tile" in support.reason


def test_listed_amx_without_permission_is_told() -> None:
    check = verdicts(Machine(cpu=Cpu(isa=tuple(AMX.split()), amx_usable=False, arch="x86_64")))["amx"]
    assert check.status == "warning"
    assert "present, not usable" in check.evidence


TWO_NODES = (
    NumaNode(0, (0, 1), GIB, GIB, usable_cpus=(0, 1)),
    NumaNode(1, (2, 3), GIB, GIB, usable_cpus=(2, 3)),
)


@pytest.mark.parametrize(
    ("machine", "check", "status", "part"),
    [
        (Machine(numa=Numa(TWO_NODES, policy_allowed=False)), "numa-binding", "warning", "--cap-add SYS_NICE"),
        (Machine(numa=Numa(TWO_NODES, policy_allowed=True)), "numa-binding", "ok", ""),
        (Machine(numa=Numa(TWO_NODES[:1], policy_allowed=False)), "numa-binding", "skipped", ""),
        (Machine(numa=Numa(TWO_NODES, balancing=True)), "numa-balancing", "warning", "sysctl kernel.numa_balancing=0"),
        (Machine(numa=Numa(TWO_NODES, balancing=False)), "numa-balancing", "ok", ""),
        (
            Machine(numa=Numa((TWO_NODES[0], replace(TWO_NODES[1], usable=False, reason="not allowed by cpuset")))),
            "numa", "warning", "--cpuset-cpus",
        ),
        (Machine(memory=Memory(total=64 * GIB, available=GIB)), "memory", "error", "close other programs"),
        (Machine(memory=Memory(total=64 * GIB, available=9 * GIB)), "memory", "warning", "raise the limit"),
        (Machine(memory=Memory(total=64 * GIB, available=60 * GIB)), "memory", "ok", ""),
        (Machine(memory=Memory(swap_total=8 * GIB, swap_free=GIB)), "swap", "warning", "swapoff"),
        (Machine(memory=Memory(swap_total=0, swap_free=0)), "swap", "ok", ""),
        (
            Machine(memory=Memory(total=64 * GIB, hugepages=HugePages(GIB, 16, 16, "madvise"))),
            "huge-pages", "warning", "vm.nr_hugepages=0",
        ),
        (Machine(memory=Memory(hugepages=HugePages(transparent="never"))), "huge-pages", "warning", "echo madvise"),
        (Machine(limits=Limits(address_space=ResourceLimit(GIB, GIB))), "limits", "error", "ulimit -v unlimited"),
        (Machine(limits=Limits(nofile=ResourceLimit(256, 4096))), "limits", "warning", "ulimit -n 4096"),
        (Machine(limits=Limits(shm_size=64 << 20)), "shared-memory", "warning", "--shm-size"),
        (Machine(limits=Limits(shm_size=64 << 20), gpus=(Gpu(0), Gpu(1))), "shared-memory", "error", "--shm-size"),
        (Machine(cpu=Cpu(physical_cores=8, usable_physical_cores=2, quota=2.0, smt=2)), "cores", "warning", "--cpus"),
        (
            Machine(cpu=Cpu(physical_cores=8, usable_physical_cores=4, smt=1, usable_cpus=(0, 1, 2, 5))),
            "cores", "warning", "taskset",
        ),
        (
            Machine(cpu=Cpu(physical_cores=8, usable_physical_cores=8, efficient_cores=4, usable_performance_cores=4)),
            "cores", "warning", "--cpu-threads 4",
        ),
    ],
)  # fmt: skip
def test_findings_of_the_host(machine: Machine, check: str, status: str, part: str) -> None:
    found = verdicts(machine)[check]
    assert found.status == status
    assert part in found.fix


NVIDIA = (Accelerator("GPU", "NVIDIA", "0000:01:00.0", "the NVIDIA driver does not answer"),)


@pytest.mark.parametrize(
    ("driver", "devices", "status", "part"),
    [
        (Driver("575.51", error="LIB_RM_VERSION_MISMATCH"), NVIDIA, "error", "reboot"),
        (Driver(error="LIB_RM_VERSION_MISMATCH"), (), "error", "reboot"),
        (Driver(error="DRIVER_NOT_LOADED"), NVIDIA, "error", "modprobe nvidia"),
        (Driver(error="LIBRARY_NOT_FOUND"), NVIDIA, "error", "install NVIDIA's driver"),
        (Driver(error="LIBRARY_NOT_FOUND"), (), "skipped", ""),
        (Driver(error="NO_PERMISSION"), (), "error", "usermod"),
        (Driver("580.65", "13.0"), NVIDIA, "error", "nvidia-smi"),
        (Driver("x", error="SOMETHING_NEW"), (), "error", "install"),
        (Driver(), (), "skipped", ""),
    ],
)
def test_drivers(driver: Driver, devices: tuple[Accelerator, ...], status: str, part: str) -> None:
    found = verdicts(Machine(driver=driver, accelerators=devices))["gpu-driver"]
    assert found.status == status
    assert part in found.fix


@pytest.mark.parametrize(
    ("capability", "attention", "backend", "fp8"),
    [
        ((6, 1), "warning", "too old", "warning"),
        ((8, 6), "ok", "flashinfer", "warning"),
        ((8, 9), "ok", "flashinfer", "ok"),
        ((9, 0), "ok", "fa3", "ok"),
        ((12, 0), "ok", "flashinfer, triton", "ok"),
        (None, "skipped", "known compute capability", "skipped"),
    ],
)
def test_backends_by_compute_capability(
    capability: tuple[int, int] | None, attention: str, backend: str, fp8: str
) -> None:
    found = verdicts(
        Machine(gpus=(Gpu(0, name="card", compute_capability=capability),), driver=Driver("580", "13.0"))
    )
    assert (found["attention-backend"].status, found["fp8-backend"].status) == (attention, fp8)
    assert backend in found["attention-backend"].evidence


PAIR = {"sglang-kt": "0.7.2", "kt-kernel": "0.7.2"}
KERNELS = (
    "_kt_kernel_ext_amx.cpython-311-x86_64-linux-gnu.so",
    "_kt_kernel_ext_avx2.cpython-311-x86_64-linux-gnu.so",
)


@pytest.mark.parametrize(
    ("software", "check", "status", "part"),
    [
        (Software(), "sglang", "skipped", "not installed"),
        (Software({"sglang": "0.5.9"}, fork=False), "sglang", "warning", "the original"),
        (Software({"sglang": "0.5.9"}, fork=True), "sglang", "ok", "the fork"),
        (Software({"sglang": "0.5.9", "sglang-kt": "0.7.2"}, fork=True), "sglang", "error", "both"),
        (Software(PAIR, fork=False), "sglang", "error", "another package lies over them"),
        (Software(PAIR, fork=True, kernels=KERNELS), "sglang", "ok", "0.7.2"),
        (Software(problem="/x/python does not run"), "sglang", "error", "does not run"),
        (Software({"sglang-kt": "0.7.2"}, fork=True), "kt-kernel", "error", "not installed"),
        (Software(PAIR, fork=True), "kt-kernel", "error", "no compiled kernel"),
        (Software(PAIR, fork=True, kernels=KERNELS), "kt-kernel", "ok", "variants: amx, avx2"),
        (
            Software({"sglang-kt": "0.7.2", "kt-kernel": "0.6.4"}, fork=True),
            "versions",
            "error",
            "different releases",
        ),
        (
            Software({**PAIR, "torch": "2.8.0+cu128"}, {"sglang-kt": {"torch": "==2.9.1"}}),
            "versions",
            "error",
            "2.9.1",
        ),
        (
            Software({**PAIR, "torch": "2.9.1+cu128"}, {"sglang-kt": {"torch": "==2.9.1"}}),
            "versions",
            "ok",
            "0.7.2",
        ),
        (
            Software({**PAIR, "torch": "2.9.1"}, {"kt-kernel": {"torch": "<2.12,>=2.10"}}),
            "versions",
            "warning",
            "kt-kernel 0.7.2 wants torch<2.12,>=2.10, found 2.9.1",
        ),
        (
            Software({**PAIR, "torch": "2.11.0+cu128"}, {"kt-kernel": {"torch": "<2.12,>=2.10"}}),
            "versions",
            "ok",
            "0.7.2",
        ),
        (Software({**PAIR, "torch": "2.9.1"}, {"kt-kernel": {"torch": "newest"}}), "versions", "ok", "0.7.2"),
        (Software(PAIR, fork=True), "sglang-starts", "skipped", "--deep"),
    ],
)
def test_software(software: Software, check: str, status: str, part: str) -> None:
    found = {row.id: row for row in check_software(software, Context(), tuple(X86.split()))}[check]
    assert found.status == status
    assert part in found.evidence


FAILURE = """Traceback (most recent call last):
  File "launch_server.py", line 3, in <module>
    import transformers
ValueError: mutable default <class 'X'> for field backbone is not allowed
During cleanup, some words
"""


def interpreter(folder: Path, help_text: str, code: int, errors: str = "") -> Path:
    """An interpreter that has the fork installed, and whose server answers as told."""
    script = folder / "python"
    document = {"versions": PAIR, "pins": {}, "fork": True, "kernels": list(KERNELS), "torch_cuda": None}
    script.write_text(
        f"#!{sys.executable}\nimport sys\n"
        f"if '-m' not in sys.argv:\n    print({json.dumps(document)!r}); sys.exit(0)\n"
        f"sys.stdout.write({help_text!r}); sys.stderr.write({errors!r}); sys.exit({code})\n"
    )
    script.chmod(0o755)
    return script


@pytest.mark.parametrize(
    ("help_text", "code", "errors", "status", "part"),
    [
        ("usage: --kt-weight-path X", 0, "", "ok", "offers the KT options"),
        ("usage: --model-path X", 0, "", "error", "not the fork"),
        ("", 1, FAILURE, "error", "ValueError: mutable default"),
        ("", 1, "ModuleNotFoundError: No module named 'sgl_kernel.flash'\n", "error", "sgl_kernel"),
        ("", 3, "", "error", "no output"),
    ],
)
def test_whether_the_server_starts(
    tmp_path: Path, help_text: str, code: int, errors: str, status: str, part: str
) -> None:
    python = interpreter(tmp_path, help_text, code, errors)
    context = Context(python=python, deep=True)
    found = {row.id: row for row in check_software(find_software(python), context, ())}["sglang-starts"]
    assert found.status == status
    assert part in found.evidence


@pytest.mark.parametrize(
    "text", ["", "#!/bin/sh\necho nonsense\n", "#!/bin/sh\nexit 3\n", "#!/bin/sh\necho '[1]'\n"]
)
def test_an_interpreter_that_is_none(tmp_path: Path, text: str) -> None:
    script = tmp_path / "python"
    script.write_text(text)
    script.chmod(0o755)
    assert find_software(script).problem
    assert find_software(tmp_path / "nowhere").problem


@pytest.mark.parametrize(
    ("requirement", "wanted"),
    [
        ("torch==2.9.1", ("torch", "==2.9.1")),
        ("torch (<2.12,>=2.10)", ("torch", "<2.12,>=2.10")),
        ("torch >= 2.10, < 2.12 ; python_version > '3.9'", ("torch", ">=2.10,<2.12")),
        ("kt_kernel[cuda]==0.7.2", ("kt-kernel", "==0.7.2")),
        ("torch==2.9.1; extra == 'all'", None),
        ("numpy>=2", None),
        ("torch", None),
        ("torch @ https://example.org/torch.whl", None),
    ],
)
def test_what_a_package_wants_of_another(requirement: str, wanted: tuple[str, str] | None) -> None:
    assert probe._wanted(requirement) == wanted


def test_our_own_environment_is_looked_at_without_importing_it() -> None:
    import importlib.metadata

    assert find_software(None).versions["torch"] == importlib.metadata.version("torch")
    assert find_software(Path(sys.executable)).problem == ""


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (FAILURE, "ValueError: mutable default <class 'X'> for field backbone is not allowed"),
        ("\x1b[31mtorch.cuda.OutOfMemoryError: no\x1b[0m\n", "torch.cuda.OutOfMemoryError: no"),
        ("first\nlast words\n\n", "last words"),
        ("", ""),
    ],
)
def test_the_line_that_tells(output: str, expected: str) -> None:
    assert last_error(output) == expected


@pytest.mark.parametrize(
    ("terminal", "environ", "status", "part"),
    [
        ((120, 40), {"TERM": "xterm-256color", "LANG": "en_US.UTF-8"}, "ok", "256 colours"),
        ((79, 40), {"TERM": "xterm-256color", "LANG": "en_US.UTF-8"}, "warning", "smaller"),
        ((120, 40), {"TERM": "dumb"}, "warning", "dumb"),
        ((120, 40), {"TERM": "xterm-256color", "LANG": "de_DE.ISO-8859-1"}, "warning", "UTF-8"),
        ((120, 40), {"TERM": "xterm", "COLORTERM": "truecolor"}, "ok", "16 million"),
        (None, {"TERM": "xterm"}, "skipped", "no terminal"),
    ],
)
def test_terminals(terminal: Any, environ: dict[str, str], status: str, part: str) -> None:
    found = verdicts(Machine(), Context(terminal=terminal, environ=environ, port=0))["terminal"]
    assert found.status == status
    assert part in found.evidence


def test_findings_are_counted_as_they_are_listed() -> None:
    for path in FOLDER.glob("*.json"):
        machine = stored(path.stem)
        found = [check.status for check in run_checks(machine, ELSEWHERE)]
        assert count_findings(machine) == (found.count(Status.ERROR), found.count(Status.WARNING))


@pytest.mark.parametrize(
    ("library", "module", "status"),
    [("580.65", "580.65", "ok"), ("580.65", "575.51", "warning"), ("580.65", None, "ok")],
)
def test_a_library_beside_another_module(library: str, module: str | None, status: str) -> None:
    machine = Machine(
        gpus=(Gpu(0, name="card", memory_total=GIB),), driver=Driver(library, "13.0", module=module)
    )
    assert verdicts(machine)["gpu-driver"].status == status


def test_our_own_engine_may_hold_the_port() -> None:
    found = verdicts(Machine(), Context(running="demo", port=30001))["port"]
    assert (found.status, "demo" in found.evidence) == ("ok", True)
