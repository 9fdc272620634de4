"""The doctor: checks with a verdict, the evidence and the mend."""

from __future__ import annotations

from kt_tui.hardware.checks.cpu import check_cpu
from kt_tui.hardware.checks.gpu import check_gpus
from kt_tui.hardware.checks.memory import check_memory
from kt_tui.hardware.checks.software import Software, check_software, find_software
from kt_tui.hardware.checks.system import check_system
from kt_tui.hardware.checks.verdict import Check, Context, Status
from kt_tui.hardware.machine import Machine

__all__ = ["Check", "Context", "Status", "count_findings", "run_checks"]

_WORST_FIRST = list(Status)


def run_checks(machine: Machine, context: Context) -> tuple[Check, ...]:
    """All checks, worst first. Takes well under two seconds unless ``context.deep``."""
    software = find_software(context.python) if context.here else Software()
    found = [
        *check_cpu(machine),
        *check_memory(machine),
        *check_gpus(machine, software.versions.get("torch"), software.torch_cuda, here=context.here),
        *check_software(software, context, machine.cpu.isa),
        *check_system(machine, context),
    ]
    return tuple(sorted(found, key=lambda check: _WORST_FIRST.index(check.status)))


def count_findings(machine: Machine) -> tuple[int, int]:
    """Errors and warnings that the machine alone gives, without a look at software, port or terminal."""
    found = [*check_cpu(machine), *check_memory(machine), *check_gpus(machine, None, None, here=False)]
    return (
        sum(check.status is Status.ERROR for check in found),
        sum(check.status is Status.WARNING for check in found),
    )
