"""Processors: instruction sets against expert formats, AMX, cores and SMT."""

from __future__ import annotations

from kt_tui.hardware.checks.verdict import Check, ok, skipped, warning
from kt_tui.hardware.files import format_cpu_list
from kt_tui.hardware.machine import Machine
from kt_tui.hardware.methods import METHODS, method_support


def check_cpu(machine: Machine) -> list[Check]:
    """All of them."""
    return [_isa(machine), _amx(machine), _cores(machine), *_formats(machine)]


def _isa(machine: Machine) -> Check:
    cpu = machine.cpu
    if not cpu.isa:
        return skipped("cpu-isa", "the processor's extensions are not known: /proc/cpuinfo lists none")
    listed = " ".join(cpu.isa)
    if cpu.arch not in {None, "x86_64"}:
        return warning(
            "cpu-isa",
            f"{cpu.arch} ({listed}): the embedded engine runs by portable kernels, and kt-kernel's need x86",
            "take a small model here, or an x86-64 machine with AVX2 or better",
        )
    if "avx2" not in cpu.isa:
        return warning(
            "cpu-isa",
            f"no AVX2 ({listed}): only slow portable kernels run",
            "if this is a virtual machine, give it the host's processor (cpu mode host-passthrough)",
        )
    return ok("cpu-isa", listed)


def _amx(machine: Machine) -> Check:
    cpu = machine.cpu
    if "amx_tile" not in cpu.isa:
        return skipped("amx", "this processor has no AMX, and nothing needs it but the AMX formats")
    if cpu.amx_usable is None:
        return skipped("amx", "present; whether the kernel permits it can only be asked on the machine")
    if cpu.amx_usable:
        return ok("amx", "present, and the kernel permits tile data")
    return warning(
        "amx",
        "present, not usable: the kernel or hypervisor refuses the permission for tile data",
        "Linux 5.16 or newer on bare metal; in a virtual machine expose XTILEDATA (cpu mode host-passthrough). "
        "Until then use a format other than AMXINT4 and AMXINT8",
    )


def _cores(machine: Machine) -> Check:
    cpu = machine.cpu
    usable, cores = cpu.usable_physical_cores, cpu.physical_cores
    if usable is None or cores is None:
        return skipped("cores", "the number of cores is not known")
    smt = f"{cpu.smt} threads each" if cpu.smt and cpu.smt > 1 else "no SMT"
    facts = f"{usable} of {cores} cores usable, {smt}; engines start with {usable} threads"
    if cpu.efficient_cores:
        facts += f"; {cpu.efficient_cores} cores are efficient ones, which slow the others down in lockstep"
        return warning("cores", facts, f"try --cpu-threads {max(cpu.usable_performance_cores or 1, 1)}")
    if usable >= cores:
        return ok("cores", facts)
    if cpu.quota is not None and cpu.quota < cores:
        facts += f"; a control group grants {cpu.quota:g} CPUs' worth of time"
        return warning(
            "cores", facts, "raise the quota (docker run --cpus N, systemd CPUQuota=) if more may be used"
        )
    facts += f"; only CPUs {format_cpu_list(cpu.usable_cpus)} are allowed"
    return warning(
        "cores",
        facts,
        "widen the affinity or cpuset (taskset -c, docker run --cpuset-cpus) if more may be used",
    )


def _formats(machine: Machine) -> list[Check]:
    found = []
    for method in METHODS:
        name = f"format-{method.lower().replace('_', '-')}"
        support = method_support(machine.cpu, method)
        if support is None:
            found.append(skipped(name, "not known without the processor's extensions"))
        elif support.level == "fast":
            found.append(ok(name, f"experts in {method} compute by the fast kernels"))
        elif support.level == "slow":
            found.append(ok(name, f"experts in {method} compute {support.reason}"))
        else:
            found.append(skipped(name, f"not usable here: {method} {support.reason}"))
    return found
