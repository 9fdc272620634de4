"""GPU documents: every field optional, every form of CUDA_VISIBLE_DEVICES, MIG, drivers that fail."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kt_tui.errors import KtError
from kt_tui.hardware import read_machine
from kt_tui.hardware.files import SystemFiles
from kt_tui.hardware.gpu import System, gpus_from_document
from kt_tui.hardware.pci import pci_numa_node, pci_order
from kt_tui.hardware.read import machine_from_files

Build = Callable[[dict[str, str]], Path]
GIB = 1 << 30


def gpu(index: int, **changes: Any) -> dict[str, Any]:
    return {
        "index": index,
        "uuid": f"GPU-{'abcdef'[index]}aaa0000-0000-0000-0000-00000000000{index}",
        "pci_bus_id": f"00000000:{index + 1:02X}:00.0",
        "name": "NVIDIA GeForce RTX 5090",
        "memory": {"total": 32 * GIB, "reserved": GIB // 2, "free": 31 * GIB, "used": GIB // 2},
        "utilization": {"gpu": 3, "memory": 1},
        "power_w": 25.5,
        "power_limit_w": 575.0,
        "temperature_c": 33,
        "pcie": {"gen": 1, "width": 16, "max_gen": 5, "max_width": 16},
        "compute_capability": [12, 0],
        "numa_node": index % 2,
        "mig": {"error": "NOT_SUPPORTED"},
        "processes": [],
    } | changes


def document(count: int, visible: str | None = None, **env: str) -> dict[str, Any]:
    if visible is not None:
        env["CUDA_VISIBLE_DEVICES"] = visible
    return {
        "driver": {"version": "580.65", "cuda": "13.0"},
        "env": env,
        "gpus": [gpu(n) for n in range(count)],
    }


def test_all_fields_are_read() -> None:
    found = gpus_from_document(document(2))
    first = found.gpus[0]
    assert (first.index, first.cuda_index, first.name) == (0, 0, "NVIDIA GeForce RTX 5090")
    assert (first.memory_total, first.memory_used, first.memory_reserved) == (32 * GIB, GIB // 2, GIB // 2)
    assert first.compute_capability == (12, 0)
    assert (first.pcie.gen, first.pcie.max_gen) == (1, 5)
    assert (found.driver.version, found.driver.cuda) == ("580.65", "13.0")
    assert found.notes == ()


@pytest.mark.parametrize(
    ("visible", "indices", "note"),
    [
        ("1,0", [1, 0], "0 is GPU 1, 1 is GPU 0"),
        ("0", [0], None),
        (" 0 , 1 ", [0, 1], None),
        ("", [], "hides all GPUs"),
        ("  ", [], "hides all GPUs"),
        ("NoDevFiles", [], "hides all GPUs"),
        ("-1", [], "-1 means no GPU; all GPUs are hidden"),
        ("0,9,1", [0], "there is no GPU 9; the list ends before it, 1 visible"),
        ("1,-1,0", [1], "-1 means no GPU"),
        ("0,0", [0], "names GPU 0 twice"),
        ("0-1", [], "is a range, which CUDA does not read"),
        ("zero", [], "no such GPU: 'zero'"),
        ("GPU-aaaa0000-0000-0000-0000-000000000000", [0], None),
        ("GPU-baaa", [1], "0 is GPU 1"),
        ("gpu-BAAA0000", [1], "0 is GPU 1"),
        ("GPU-ffff", [], "no such GPU: 'gpu-ffff'; all GPUs are hidden"),
        ("0,GPU-ffff", [0], "no such GPU"),
        ("MIG-1234", [], "no such MIG instance"),
        ("9" * 500, [], "no such GPU"),
    ],
)
def test_visible_devices(visible: str, indices: list[int], note: str | None) -> None:
    found = gpus_from_document(document(2, visible))
    assert [card.index for card in found.gpus] == indices
    assert [card.cuda_index for card in found.gpus] == list(range(len(indices)))
    assert sorted(card.index for card in (*found.gpus, *found.hidden)) == [0, 1]
    if note is None:
        assert found.notes == ()
    else:
        assert any(note in text for text in found.notes), found.notes


def test_an_ambiguous_uuid_prefix_is_no_gpu() -> None:
    rows = [gpu(0, uuid="GPU-a1"), gpu(1, uuid="GPU-a2")]
    found = gpus_from_document({"gpus": rows, "env": {"CUDA_VISIBLE_DEVICES": "GPU-a"}})
    assert found.gpus == ()
    assert any("ambiguous UUID prefix" in note for note in found.notes)


def test_gpus_are_numbered_by_pci_address() -> None:
    rows = [gpu(0, pci_bus_id="00000000:81:00.0", name="B"), gpu(1, pci_bus_id="00000000:01:00.0", name="A")]
    found = gpus_from_document({"gpus": rows, "env": {"CUDA_VISIBLE_DEVICES": "0"}})
    assert [(card.index, card.name) for card in found.gpus] == [(0, "A")]
    assert any("renumbered by PCI address" in note for note in found.notes)


def test_another_device_order_is_told() -> None:
    found = gpus_from_document(document(2, CUDA_DEVICE_ORDER="FASTEST_FIRST"))
    assert any("CUDA_DEVICE_ORDER=FASTEST_FIRST" in note for note in found.notes)
    assert gpus_from_document(document(2, CUDA_DEVICE_ORDER="PCI_BUS_ID")).notes == ()


@pytest.mark.parametrize(
    ("address", "key"),
    [
        ("00000000:81:00.0", (0, 129, 0, 0)),
        ("0000:01:00.1", (0, 1, 0, 1)),
        ("01:00.0", (0, 1, 0, 0)),
        ("nonsense", None),
        (None, None),
    ],
)
def test_pci_addresses(address: str | None, key: tuple[int, ...] | None) -> None:
    assert pci_order(address) == key


def mig(count: int, index: int = 0) -> dict[str, Any]:
    instances = [
        {
            "uuid": f"MIG-{index}{n}",
            "profile": "1g.10gb",
            "name": "H100 MIG 1g.10gb",
            "memory": {"total": 10 * GIB, "free": 9 * GIB},
        }
        for n in range(count)
    ]
    return {"mode": 1, "instances": instances}


def test_of_a_gpu_in_mig_mode_cuda_sees_the_first_instance() -> None:
    found = gpus_from_document({"gpus": [gpu(0, mig=mig(3)), gpu(1)]})
    assert [(card.uuid, card.memory_total) for card in found.gpus] == [
        ("MIG-00", 10 * GIB),
        (gpu(1)["uuid"], 32 * GIB),
    ]
    assert found.gpus[0].mig_parent == gpu(0)["uuid"]
    assert any("first of 3 instance(s) only" in note for note in found.notes)


def test_a_mig_instance_is_chosen_by_its_uuid() -> None:
    found = gpus_from_document({"gpus": [gpu(0, mig=mig(3))], "env": {"CUDA_VISIBLE_DEVICES": "MIG-02"}})
    assert [card.uuid for card in found.gpus] == ["MIG-02"]
    assert found.gpus[0].mig_profile == "1g.10gb"


def test_mig_mode_without_an_instance_is_no_gpu() -> None:
    found = gpus_from_document({"gpus": [gpu(0, mig=mig(0))]})
    assert found.gpus == ()
    assert any("in MIG mode without an instance" in note for note in found.notes)


def test_a_refused_field_hides_no_other() -> None:
    refused = {"error": "NOT_SUPPORTED"}
    row = gpu(
        0,
        power_limit_w=refused,
        utilization={"error": "UNKNOWN"},
        memory={"total": 24 * GIB, "reserved": refused},
    )
    found = gpus_from_document({"gpus": [row]})
    card = found.gpus[0]
    assert (card.power_limit_w, card.utilization_gpu, card.memory_reserved) == (None, None, None)
    assert (card.temperature_c, card.memory_total) == (33.0, 24 * GIB)
    assert card.unavailable["power_limit_w"] == "NOT_SUPPORTED"
    assert sum("NOT_SUPPORTED" in note for note in found.notes) == 1
    assert sum("UNKNOWN" in note for note in found.notes) == 1


@pytest.mark.parametrize(
    ("error", "part"),
    [
        ("LIBRARY_NOT_FOUND", "no NVIDIA GPU"),
        ("DRIVER_NOT_LOADED", "modprobe nvidia"),
        ("LIB_RM_VERSION_MISMATCH", "reboot, or reload the nvidia module (loaded module: 575.51.03)"),
        ("SOMETHING_NEW", "the NVIDIA driver answers SOMETHING_NEW"),
    ],
)
def test_a_driver_that_does_not_answer_is_explained(sysroot: Build, error: str, part: str) -> None:
    version = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  575.51.03  Fri Apr 11\n"
    root = sysroot({"/proc/driver/nvidia/version": version, "/proc/meminfo": "MemTotal: 1024 kB\n"})
    machine = machine_from_files(SystemFiles(root), {"driver": {"error": error}, "gpus": []})
    assert machine.gpus == ()
    assert machine.driver.error == error
    assert machine.memory.total == 1 << 20
    assert any(part in note for note in machine.notes), machine.notes


def test_display_devices_that_nothing_here_uses_are_named(sysroot: Build) -> None:
    devices = {}
    for slot, vendor, kind in (
        ("01", "0x1002", "0x030000"),
        ("02", "0x10de", "0x030200"),
        ("03", "0x1002", "0x040300"),
    ):
        devices[f"/sys/bus/pci/devices/0000:{slot}:00.0/vendor"] = f"{vendor}\n"
        devices[f"/sys/bus/pci/devices/0000:{slot}:00.0/class"] = f"{kind}\n"
    machine = machine_from_files(SystemFiles(sysroot(devices)), {"driver": {"error": "LIBRARY_NOT_FOUND"}})
    assert machine.gpus == ()
    assert any("1 AMD GPU(s)" in note for note in machine.notes)
    assert any(
        "1 NVIDIA device(s) on the PCI bus, but the driver does not answer" in note for note in machine.notes
    )


def test_processes_of_another_namespace_are_marked(sysroot: Build) -> None:
    files = SystemFiles(sysroot({"/proc/412/stat": "412 (x)\n"}))
    rows = [
        gpu(
            0,
            processes=[
                {"pid": 28290, "used": 62 * GIB},
                {"pid": 412, "used": {"error": "NOT_SUPPORTED"}},
                "x",
            ],
        )
    ]
    found = gpus_from_document({"gpus": rows}, System(exists=lambda pid: files.exists(f"/proc/{pid}")))
    assert [(row.pid, row.used, row.local) for row in found.gpus[0].processes] == [
        (28290, 62 * GIB, False),
        (412, None, True),
    ]
    assert any("outside this process namespace" in note for note in found.notes)


def test_a_numa_node_that_the_driver_does_not_tell_is_read_from_sysfs(sysroot: Build, tmp_path: Path) -> None:
    rows = [gpu(0, numa_node={"error": "NOT_SUPPORTED"}, pci_bus_id="00000000:C1:00.0")]
    path = tmp_path / "gpus.json"
    path.write_text(json.dumps({"driver": {}, "gpus": rows}))
    root = sysroot({"/sys/bus/pci/devices/0000:c1:00.0/numa_node": "1\n"})
    (card,) = read_machine(root, path, environ={}).gpus
    assert card.numa_node == 1
    assert "numa_node" not in card.unavailable
    assert pci_numa_node(SystemFiles(root), "00000000:C2:00.0") is None


def test_no_numa_node_is_none(sysroot: Build) -> None:
    files = SystemFiles(sysroot({"/sys/bus/pci/devices/0000:c1:00.0/numa_node": "-1\n"}))
    assert pci_numa_node(files, "0000:C1:00.0") is None


def test_a_gpu_file_stands_in_for_the_driver(sysroot: Build, tmp_path: Path) -> None:
    path = tmp_path / "gpus.json"
    path.write_text(json.dumps(document(2)))
    root = sysroot({"/proc/meminfo": "MemTotal: 1024 kB\n"})
    machine = read_machine(root, path, environ={"CUDA_VISIBLE_DEVICES": "1"})
    assert [card.index for card in machine.gpus] == [0, 1], "the document's own environment counts"
    path.write_text(json.dumps({"gpus": [gpu(0), gpu(1)]}))
    machine = read_machine(root, path, environ={"CUDA_VISIBLE_DEVICES": "1"})
    assert [card.index for card in machine.gpus] == [1]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"gpus": 3}', "[" * 100_000])
def test_a_file_that_is_no_gpu_document_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "gpus.json"
    path.write_text(text)
    with pytest.raises(KtError, match=r"gpus\.json"):
        read_machine(None, path, environ={})


def test_names_cannot_steer_a_terminal() -> None:
    found = gpus_from_document({"gpus": [gpu(0, name="evil\x1b[2Jcard\n")]})
    assert "\x1b" not in (found.gpus[0].name or "")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from([*gpu(0), "total", "used", "error", "pid", "mode", "instances", "gen"]),
            inner,
            max_size=6,
        )
    ),
    max_leaves=20,
)


@settings(max_examples=150, deadline=None)
@given(
    driver=JSON, env=JSON, rows=JSON | st.lists(JSON, max_size=3), visible=st.none() | st.text(max_size=12)
)
def test_any_document_reads_without_an_exception(
    driver: Any, env: Any, rows: Any, visible: str | None
) -> None:
    if visible is not None:
        env = {"CUDA_VISIBLE_DEVICES": visible}
    found = gpus_from_document({"driver": driver, "env": env, "gpus": rows})
    json.dumps([card.index for card in (*found.gpus, *found.hidden)])
