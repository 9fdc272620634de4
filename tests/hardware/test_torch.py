"""Torch's build against the driver and the cards."""

import pytest

from kt_tui.hardware.checks.gpu import check_gpus
from kt_tui.hardware.machine import Driver, Gpu, Machine


@pytest.mark.parametrize(
    ("torch", "built", "driver", "capability", "status", "part"),
    [
        ("2.9.1+cu128", "12.8", "13.0", (12, 0), "ok", "12.8"),
        ("2.9.1+cu128", "12.8", "12.4", (8, 9), "ok", "12.4"),  # minor versions of one release go together
        ("2.6.0+cu124", "12.4", "13.0", (12, 0), "error", "needs 12.8"),
        ("2.6.0+cu124", "12.4", "12.4", (8, 9), "ok", "12.4"),
        ("2.9.1+cu130", "13.0", "12.8", (9, 0), "error", "too new"),
        ("2.9.1+cpu", None, "13.0", (8, 9), "warning", "without CUDA"),
        (None, None, "13.0", (8, 9), "skipped", "not installed"),
        ("2.9.1+cu128", "12.8", None, None, "ok", "n/a"),
    ],
)
def test_builds(
    torch: str | None,
    built: str | None,
    driver: str | None,
    capability: tuple[int, ...] | None,
    status: str,
    part: str,
) -> None:
    machine = Machine(gpus=(Gpu(0, compute_capability=capability),), driver=Driver("580", driver))
    found = {check.id: check for check in check_gpus(machine, torch, built, here=True)}["torch"]
    assert found.status == status
    assert part in found.evidence
    assert found.fix or status in {"ok", "skipped"}
