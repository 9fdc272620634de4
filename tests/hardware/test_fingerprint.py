from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kt_tui.hardware import Machine, machine_from_json
from kt_tui.hardware.fingerprint import differences, fingerprint, fingerprint_of_facts, machine_facts
from kt_tui.hardware.machine import Cpu, Gpu, Memory, Numa, NumaNode

GIB = 1 << 30
SEED = Machine(
    cpu=Cpu(
        model="AMD EPYC 9355",
        sockets=2,
        usable_physical_cores=64,
        usable_logical_cpus=128,
        isa=("avx2", "avx512f", "avx512_bf16"),
    ),
    numa=Numa((NumaNode(0, (0,), 512 * GIB, 400 * GIB), NumaNode(1, (1,), 512 * GIB, 300 * GIB))),
    memory=Memory(total=1007 * GIB, free=3 * GIB, available=900 * GIB),
    gpus=(Gpu(0, name="NVIDIA GeForce RTX 5090", memory_total=32 * GIB - (400 << 20), memory_free=GIB),),
)


def test_the_facts_are_few_and_plain() -> None:
    assert machine_facts(SEED) == {
        "cpu": "AMD EPYC 9355",
        "sockets": 2,
        "cores": 64,
        "isa": "avx2 avx512_bf16 avx512f",
        "memory_gib": 1008,
        "numa_nodes": 2,
        "gpus": "1x NVIDIA GeForce RTX 5090 (32 GiB)",
    }
    assert fingerprint(SEED) == fingerprint_of_facts(machine_facts(SEED))
    assert len(fingerprint(SEED)) == 16


@pytest.mark.parametrize(
    "change",
    [
        lambda m: replace(
            m, memory=replace(m.memory, available=GIB, free=0, total=m.memory.total - (300 << 20))
        ),
        lambda m: replace(m, cpu=replace(m.cpu, isa=tuple(reversed(m.cpu.isa)))),
        lambda m: replace(m, gpus=(replace(m.gpus[0], memory_free=0, temperature_c=80.0, uuid="GPU-2"),)),
        lambda m: replace(m, notes=("cannot read something",)),
        lambda m: machine_from_json(json.loads(json.dumps(m.to_json()))),
    ],
)
def test_what_changes_from_minute_to_minute_does_not_count(change: Callable[[Machine], Machine]) -> None:
    assert fingerprint(change(SEED)) == fingerprint(SEED)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda m: replace(m, cpu=replace(m.cpu, model="Xeon")), "processor AMD EPYC 9355, now Xeon"),
        (lambda m: replace(m, cpu=replace(m.cpu, usable_physical_cores=16)), "64 usable cores, now 16"),
        (lambda m: replace(m, memory=replace(m.memory, limit=382 * GIB)), "1008 GiB of memory, now 384"),
        (lambda m: replace(m, numa=Numa(m.numa.nodes[:1])), "2 NUMA nodes to use, now 1"),
        (lambda m: replace(m, gpus=()), "GPUs 1x NVIDIA GeForce RTX 5090 (32 GiB), now none"),
        (lambda m: replace(m, gpus=m.gpus * 2), "GPUs 1x NVIDIA GeForce RTX 5090 (32 GiB), now 2x NVIDIA"),
        (
            lambda m: replace(m, cpu=replace(m.cpu, isa=("avx2", "amx_tile"))),
            "instruction sets now without avx512_bf16, avx512f and with amx_tile",
        ),
        (lambda m: replace(m, cpu=replace(m.cpu, sockets=None)), "2 sockets, now unknown"),
    ],
)
def test_what_a_measurement_depends_on_counts_and_is_named(
    change: Callable[[Machine], Machine], words: str
) -> None:
    other = change(SEED)
    assert fingerprint(other) != fingerprint(SEED)
    found = differences(machine_facts(SEED), machine_facts(other))
    assert len(found) == 1
    assert found[0].startswith(words)
    assert differences(machine_facts(SEED), machine_facts(SEED)) == []


def test_known_machines_all_differ() -> None:
    folder = Path(__file__).parents[1] / "machines"
    machines = [machine_from_json(json.loads(path.read_text())) for path in sorted(folder.glob("*.json"))]
    assert len({fingerprint(machine) for machine in machines}) == len(machines) > 3


def test_a_machine_of_which_nothing_is_known_has_one_too() -> None:
    assert machine_facts(Machine()) == {"gpus": "none"}
    assert fingerprint(Machine()) != fingerprint(SEED)
    assert (
        "processor unknown, now AMD EPYC 9355"
        in differences(machine_facts(Machine()), machine_facts(SEED))[0]
    )
