"""The captured documents: as the program prints them now, and readable by what plans with them."""

import json
from typing import Any

import pytest

from kt_tui.hardware import machine_from_json
from tests.machines.make import FOLDER, MACHINES, document

GIB = 1 << 30

EXPECTED: dict[str, dict[str, Any]] = {
    "epyc-9355-1x5090": {"cores": 64, "logical": 128, "pools": 2, "gpus": 1, "amx": False, "gib": 1007},
    "epyc-9355-2x5090": {"cores": 64, "logical": 128, "pools": 2, "gpus": 2, "amx": False, "gib": 1007},
    "xeon-6454s-4090d-382gb": {"cores": 64, "logical": 128, "pools": 2, "gpus": 1, "amx": True, "gib": 382},
    "xeon-6454s-4090d-1tb": {"cores": 64, "logical": 128, "pools": 2, "gpus": 1, "amx": True, "gib": 1007},
    "desktop-5090-256gb": {"cores": 16, "logical": 32, "pools": 1, "gpus": 1, "amx": False, "gib": 251},
    "container-2-cores": {"cores": 2, "logical": 2, "pools": 1, "gpus": 0, "amx": False, "gib": 503},
    "grace-gh200": {"cores": 72, "logical": 72, "pools": 1, "gpus": 1, "amx": False, "gib": 480},
}


@pytest.mark.parametrize("name", sorted(MACHINES))
def test_a_document_is_what_the_program_prints(name: str) -> None:
    stored = json.loads((FOLDER / f"{name}.json").read_text("utf-8"))
    assert stored == document(name), "run python -m tests.machines.make"


@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("*.json")))
def test_a_document_says_what_the_machine_is(name: str) -> None:
    machine = machine_from_json(json.loads((FOLDER / f"{name}.json").read_text("utf-8")))
    assert machine.memory.total is not None
    assert {
        "cores": machine.cpu.usable_physical_cores,
        "logical": machine.cpu.usable_logical_cpus,
        "pools": len(machine.numa.pool_nodes),
        "gpus": len(machine.gpus),
        "amx": machine.cpu.amx_usable,
        "gib": machine.memory.total // GIB,
    } == EXPECTED[name]
