"""Captured machines read as they should be; each case says what is expected of it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kt_tui.errors import KtError
from kt_tui.hardware import machine_from_json, read_machine

Build = Callable[[dict[str, str]], Path]

DOCUMENT_KEYS = {
    "cpu": {
        "model", "arch", "sockets", "physical_cores", "logical_cpus", "usable_physical_cores", "usable_logical_cpus",
        "isa", "amx_usable",
    },
    "memory": {"total", "available", "limit", "page_cache", "hugepages"},
    "numa": {"nodes"},
}  # fmt: skip


def look_up(document: Any, path: str) -> Any:
    for key in path.split("."):
        document = document[int(key)] if isinstance(document, list) else document[key]
    return document


def test_a_captured_machine_reads_as_expected(case: dict[str, Any], sysroot: Build) -> None:
    machine = read_machine(sysroot(case["files"]))
    document = machine.to_json()
    expected = dict(case["expect"])
    if "pools" in expected:
        assert len(machine.numa.pool_nodes) == expected.pop("pools")
    assert {path: look_up(document, path) for path in expected} == expected
    assert set(case.get("isa", [])) <= set(machine.cpu.isa)
    assert not set(case.get("isa_absent", [])) & set(machine.cpu.isa)
    for part in case["notes"]:
        assert any(part in note for note in machine.notes), (part, machine.notes)


def test_a_document_has_the_agreed_keys_and_plain_types(case: dict[str, Any], sysroot: Build) -> None:
    document = read_machine(sysroot(case["files"])).to_json()
    for section, keys in DOCUMENT_KEYS.items():
        assert keys <= set(document[section])
    assert {"gpus", "limits", "notes"} <= set(document)
    for node in document["numa"]["nodes"]:
        assert {"id", "cpus", "memory_total", "memory_free", "usable"} <= set(node)
    assert json.loads(json.dumps(document)) == document


def test_a_document_reads_back_as_the_same_machine(case: dict[str, Any], sysroot: Build) -> None:
    machine = read_machine(sysroot(case["files"]))
    assert machine_from_json(json.loads(json.dumps(machine.to_json()))) == machine


def test_usable_never_exceeds_what_there_is(case: dict[str, Any], sysroot: Build) -> None:
    cpu = read_machine(sysroot(case["files"])).cpu
    if cpu.logical_cpus is None:
        assert cpu.usable_physical_cores is None
        return
    assert cpu.physical_cores is not None
    assert cpu.usable_physical_cores is not None
    assert cpu.usable_logical_cpus is not None
    assert 1 <= cpu.usable_physical_cores <= cpu.usable_logical_cpus <= cpu.logical_cpus
    assert cpu.usable_physical_cores <= cpu.physical_cores <= cpu.logical_cpus
    assert cpu.usable_logical_cpus <= len(cpu.usable_cpus)


def test_this_machine_reads_without_surprise() -> None:
    machine = read_machine(environ={})
    assert machine.cpu.logical_cpus
    assert machine.cpu.usable_physical_cores
    assert machine.memory.total
    assert machine.memory.available is not None
    assert 0 < machine.memory.available <= machine.memory.total
    assert machine.numa.nodes


def test_a_folder_that_is_no_machine_is_refused(tmp_path: Path) -> None:
    with pytest.raises(KtError, match="neither a proc nor a sys folder"):
        read_machine(tmp_path)


def test_a_link_out_of_a_capture_is_not_followed(sysroot: Build, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("model name: stolen\nprocessor: 0\n")
    root = sysroot({"/proc/meminfo": "MemTotal: 1024 kB\n"})
    (root / "proc" / "cpuinfo").symlink_to(secret)
    machine = read_machine(root)
    assert machine.cpu.model is None
    assert machine.memory.total == 1 << 20


def test_a_named_pipe_in_a_capture_does_not_block(sysroot: Build) -> None:
    import os

    root = sysroot({"/proc/meminfo": "MemTotal: 1024 kB\n"})
    os.mkfifo(root / "proc" / "cpuinfo")
    assert read_machine(root).cpu.logical_cpus is None


@pytest.mark.parametrize("document", [None, [], "text", 3, {}, {"gpu": 1}])
def test_what_is_no_machine_document_is_refused(document: object) -> None:
    with pytest.raises(KtError, match="no machine document"):
        machine_from_json(document)


def test_a_document_with_wrong_values_keeps_the_right_ones() -> None:
    machine = machine_from_json(
        {
            "cpu": {"model": 5, "usable_physical_cores": 16, "isa": ["avx2", 7], "sockets": -1},
            "memory": {"total": "much", "available": 1 << 30},
            "numa": {"nodes": [{"id": 0, "cpus": [0, True, 2]}, {"cpus": []}, "node"]},
            "gpus": None,
            "future": {"key": 1},
        }
    )
    assert machine.cpu.usable_physical_cores == 16
    assert machine.cpu.isa == ("avx2",)
    assert machine.memory.total is None
    assert machine.memory.available == 1 << 30
    assert [node.cpus for node in machine.numa.nodes] == [(0, 2)]
    for part in (
        "cpu.model is not text",
        "cpu.sockets is out of range",
        "memory.total is not a number",
        "id is missing",
    ):
        assert any(part in note for note in machine.notes), machine.notes
