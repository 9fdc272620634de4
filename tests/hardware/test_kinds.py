"""Kinds of machines that were misread in the field, each with several of its variants, through the command."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from kt_tui.cli.main import main
from kt_tui.hardware import machine_from_json
from tests.machines.describe import (
    AMX,
    AVX512,
    GIB,
    NEOVERSE_V2,
    X86,
    Described,
    gpu_row,
    machine_files,
    write_files,
)

Show = Callable[..., dict[str, Any]]
PLAIN = Described("Test CPU", X86, 1, 8, 1, 64 * GIB, 48 * GIB)
NO_LIBRARY = {"driver": {"error": "LIBRARY_NOT_FOUND"}, "gpus": []}


@pytest.fixture
def show(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Show:
    """What the command prints of a machine: its files (None removes one) and its GPU document."""

    def run(
        described: Described, changes: Mapping[str, str | None] | None = None, gpus: Any = None
    ) -> dict[str, Any]:
        files = {**machine_files(described), **(changes or {})}
        root = write_files(tmp_path / "m", {path: text for path, text in files.items() if text is not None})
        (root / "gpus.json").write_text(json.dumps(gpus or NO_LIBRARY))
        assert main(["hardware", "--json", "--sysroot", str(root), "--gpus", str(root / "gpus.json")]) == 0
        output = capsys.readouterr()
        assert output.err == ""
        document: dict[str, Any] = json.loads(output.out)
        return document

    return run


def noted(document: dict[str, Any], part: str) -> bool:
    return any(part in note for note in document["notes"])


def without(described: Described, *parts: str) -> dict[str, str | None]:
    return {path: None for path in machine_files(described) if any(part in path for part in parts)}


# --- processors -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("sockets", "cores", "threads"), [(2, 14, 2), (4, 6, 1), (8, 3, 2)])
@pytest.mark.parametrize("hidden", [(), ("/topology/",), ("/topology/core_cpus_list",)])
def test_every_socket_numbers_its_cores_from_zero(
    show: Show, sockets: int, cores: int, threads: int, hidden: tuple[str, ...]
) -> None:
    machine = Described("Xeon", AVX512, sockets, cores, threads, 64 * GIB, 48 * GIB)
    cpu = show(machine, without(machine, *hidden) if hidden else None)["cpu"]
    counts = (cpu["sockets"], cpu["physical_cores"], cpu["logical_cpus"], cpu["smt"])
    assert counts == (sockets, sockets * cores, sockets * cores * threads, threads)


@pytest.mark.parametrize("count", [3, 12, 20])
@pytest.mark.parametrize("hidden", [(), ("/topology/",)])
def test_virtual_sockets_of_one_core_each(show: Show, count: int, hidden: tuple[str, ...]) -> None:
    machine = Described("QEMU Virtual CPU", X86, count, 1, 1, 64 * GIB, 48 * GIB)
    document = show(machine, without(machine, *hidden) if hidden else None)
    assert (document["cpu"]["sockets"], document["cpu"]["physical_cores"], document["cpu"]["smt"]) == (
        count,
        count,
        1,
    )
    assert noted(document, "virtual topology")


@pytest.mark.parametrize(
    ("count", "hidden", "topology"), [(4, True, "assumed"), (6, True, "assumed"), (8, False, "sysfs")]
)
def test_arm_without_core_numbers_in_cpuinfo(show: Show, count: int, hidden: bool, topology: str) -> None:
    machine = Described("", "fp asimd evtstrm crc32", 1, count, 1, 8 * GIB, 6 * GIB, arch="aarch64")
    document = show(machine, without(machine, "/topology/") if hidden else None)
    cpu = document["cpu"]
    assert (cpu["physical_cores"], cpu["usable_physical_cores"], cpu["topology"]) == (count, count, topology)
    assert noted(document, "assumed to be a physical core") is hidden


@pytest.mark.parametrize(
    ("slow", "how", "performance"), [((4, 8), "pmu", 4), ((2, 8), "capacity", 2), ((0, 6), "capacity", 2)]
)
def test_hybrid_processors_tell_fast_cores_from_slow_ones(
    show: Show, slow: tuple[int, int], how: str, performance: int
) -> None:
    efficient = range(*slow)
    files: dict[str, str | None] = {}
    if how == "pmu":
        files["/sys/devices/cpu_atom/cpus"] = f"{slow[0]}-{slow[1] - 1}\n"
        files["/sys/devices/cpu_core/cpus"] = f"0-{slow[0] - 1}\n"
    else:
        for cpu in range(8):
            files[f"/sys/devices/system/cpu/cpu{cpu}/cpu_capacity"] = (
                "446\n" if cpu in efficient else "1024\n"
            )
    document = show(PLAIN, files)
    cpu = document["cpu"]
    assert (cpu["efficient_cores"], cpu["usable_performance_cores"]) == (len(efficient), performance)
    assert noted(document, "a hybrid processor")


def test_equal_cores_are_no_hybrid(show: Show) -> None:
    files = {f"/sys/devices/system/cpu/cpu{cpu}/cpu_capacity": f"{1024 - cpu}\n" for cpu in range(8)}
    assert show(PLAIN, files)["cpu"]["efficient_cores"] == 0


def test_caches_are_counted_once_for_all_that_share_them(show: Show) -> None:
    machine = Described("EPYC", AVX512, 2, 8, 2, 64 * GIB, 48 * GIB, l2=1 << 20, l3=32 << 20, l3_cores=4)
    caches = {cache["level"]: cache for cache in show(machine)["cpu"]["caches"]}
    assert (caches[3]["count"], caches[3]["size"], caches[3]["shared_by"]) == (4, 32 << 20, 8)
    assert (caches[2]["count"], caches[2]["shared_by"]) == (16, 2)


ICE_LAKE = "avx2 avx512f avx512bw avx512vl avx512vbmi avx512_vnni"


@pytest.mark.parametrize(
    ("flags", "arch", "present", "absent"),
    [
        (ICE_LAKE, "x86_64", ["avx512_vnni"], ["amx_tile", "avx512_bf16"]),
        (AVX512, "x86_64", ["avx512_bf16"], ["amx_tile"]),
        (AMX.replace("avx512_bf16", "avx512bf16"), "x86_64", ["avx512_bf16", "amx_int8"], []),
        (NEOVERSE_V2, "aarch64", ["asimd", "sve", "bf16", "i8mm"], ["avx2", "avx512f"]),
    ],
)  # fmt: skip
def test_extensions(show: Show, flags: str, arch: str, present: list[str], absent: list[str]) -> None:
    cpu = show(Described("CPU", flags, 1, 4, 1, 8 * GIB, 6 * GIB, arch=arch))["cpu"]
    assert set(present) <= set(cpu["isa"])
    assert not set(absent) & set(cpu["isa"])
    assert (cpu["arch"], cpu["amx_usable"]) == (arch, None if "amx_tile" in flags else False)


# --- limits -----------------------------------------------------------------------------------------------------

SCOPE = "user.slice/user-7.slice/user@7.service/app.slice/pane-1.scope"


@pytest.mark.parametrize(
    ("files", "quota", "memory"),
    [
        ({"user.slice/user-7.slice/cpu.max": "300000 100000", f"{SCOPE}/cpu.max": "max 100000"}, 3.0, None),
        ({f"{SCOPE}/cpu.max": "250000 50000", "user.slice/cpu.max": "700000 100000"}, 5.0, None),
        ({"user.slice/memory.max": f"{9 * GIB}", f"{SCOPE}/memory.max": "max"}, None, 9 * GIB),
        ({"user.slice/memory.high": f"{7 * GIB}", "user.slice/memory.max": f"{9 * GIB}"}, None, 7 * GIB),
        ({f"{SCOPE}/memory.max": "1125899906842624"}, None, None),  # more than the machine has
        ({f"{SCOPE}/cpu.max": "nonsense"}, None, None),
    ],
)
def test_limits_of_nested_groups(
    show: Show, files: dict[str, str], quota: float | None, memory: int | None
) -> None:
    changes = {f"/sys/fs/cgroup/{name}": text + "\n" for name, text in files.items()}
    document = show(PLAIN, {"/proc/self/cgroup": f"1:net_cls:/\n0::/{SCOPE}\n", **changes})
    assert document["cpu"]["quota"] == quota
    assert document["cpu"]["usable_physical_cores"] == (int(quota) if quota else 8)
    assert document["memory"]["limit"] == memory
    assert document["memory"]["available"] == min(memory or 1 << 60, document["memory"]["available_host"])


@pytest.mark.parametrize(
    ("files", "cores", "memory"),
    [
        ({"cpu/box/cpu.cfs_quota_us": "400000", "cpu/box/cpu.cfs_period_us": "100000"}, 4, None),
        ({"memory/box/inner/memory.limit_in_bytes": f"{3 * GIB}"}, 8, 3 * GIB),
        ({"memory/box/inner/memory.stat": f"hierarchical_memory_limit {5 * GIB}\n"}, 8, 5 * GIB),
        ({"cpuset/box/inner/cpuset.cpus": "1,3-4"}, 3, None),
    ],
)
def test_limits_of_version_1_groups(
    show: Show, files: dict[str, str], cores: int, memory: int | None
) -> None:
    mounts = "".join(
        f"{n} 1 0:{n} / /sys/fs/cgroup/{name} rw - cgroup cgroup rw,{name}\n"
        for n, name in enumerate(("cpu", "memory", "cpuset"), 40)
    )
    groups = "3:cpu:/box/inner\n2:memory:/box/inner\n1:cpuset:/box/inner\n"
    changes = {f"/sys/fs/cgroup/{name}": text + "\n" for name, text in files.items()}
    document = show(PLAIN, {"/proc/self/mountinfo": mounts, "/proc/self/cgroup": groups, **changes})
    assert (document["cpu"]["usable_physical_cores"], document["memory"]["limit"]) == (cores, memory)


@pytest.mark.parametrize(
    ("cpus", "quota", "ids", "logical", "cores"),
    [
        ("0-4,6", "800000", [0, 1, 2, 3, 4, 6], 6, 6),
        ("1,17", "max", [1, 17], 2, 1),  # two siblings of one core
        ("0-15", "250000", list(range(16)), 2, 2),
        ("2-8:3,31", "max", [2, 5, 8, 31], 4, 4),
    ],
)
def test_cpusets_with_gaps(
    show: Show, cpus: str, quota: str, ids: list[int], logical: int, cores: int
) -> None:
    machine = Described("CPU", X86, 1, 16, 2, 64 * GIB, 48 * GIB)
    files = {
        "/proc/self/cgroup": "0::/\n",
        "/sys/fs/cgroup/cpuset.cpus.effective": cpus + "\n",
        "/sys/fs/cgroup/cpu.max": f"{quota} 100000\n",
    }
    document = show(machine, files)
    cpu = document["cpu"]
    assert (cpu["usable_cpus"], cpu["usable_logical_cpus"], cpu["usable_physical_cores"]) == (
        ids,
        logical,
        cores,
    )
    assert document["numa"]["nodes"][0]["usable_cpus"] == ids


def test_the_other_limits(show: Show) -> None:
    limits = (
        "Limit                     Soft Limit           Hard Limit           Units     \n"
        "Max locked memory         65536                unlimited            bytes     \n"
        "Max address space         1073741824           1073741824           bytes     \n"
        "Max open files            256                  4096                 files     \n"
    )
    shm = "9 1 0:9 / /dev/shm rw - tmpfs shm rw,size=65536k\n"
    found = show(PLAIN, {"/proc/self/limits": limits, "/proc/self/mountinfo": shm})["limits"]
    assert found["memlock"] == {"soft": 65536, "hard": None}
    assert (found["nofile"]["soft"], found["address_space"]["soft"], found["shm_size"]) == (
        256,
        GIB,
        64 << 20,
    )


# --- memory and nodes -------------------------------------------------------------------------------------------


def test_memory_is_split(show: Show) -> None:
    text = (
        "MemTotal: 1000 kB\nMemFree: 100 kB\nMemAvailable: 300 kB\nCached: 250 kB\nShmem: 50 kB\n"
        "HugePages_Total: 2\nHugePages_Free: 1\nHugepagesize: 100 kB\nHugetlb: 400 kB\n"
    )
    memory = show(PLAIN, {"/proc/meminfo": text})["memory"]
    kib = {name: memory[name] // 1024 for name in ("free", "page_cache", "shared", "used")}
    assert kib == {"free": 100, "page_cache": 200, "shared": 50, "used": 300}
    assert memory["hugepages"]["reserved_bytes"] == 400 << 10
    assert sum(kib.values()) - kib["shared"] + 400 == memory["total"] >> 10


@pytest.mark.parametrize(
    ("nodes", "kinds", "pools"),
    [
        (
            [("", 9), ("", 6), ("0-7", 0), ("", 1)],
            ["memory only", "memory only", "cpu only", "memory only"],
            1,
        ),
        ([("0-3", 32), ("4-7", 32), ("", 96)], ["cpu+memory", "cpu+memory", "memory only"], 2),
        ([("0-3", 64), ("4-7", 0)], ["cpu+memory", "cpu only"], 1),
    ],
)
def test_nodes_without_cpus_or_memory(
    show: Show, nodes: list[tuple[str, int]], kinds: list[str], pools: int
) -> None:
    files: dict[str, str | None] = {
        "/sys/devices/system/node/online": f"0-{len(nodes) - 1}\n",
        "/proc/self/status": f"Cpus_allowed_list: 0-7\nMems_allowed_list: 0-{len(nodes) - 1}\n",
    }
    for number, (cpus, gib) in enumerate(nodes):
        files[f"/sys/devices/system/node/node{number}/cpulist"] = cpus + "\n"
        files[f"/sys/devices/system/node/node{number}/meminfo"] = f"Node {number} MemTotal: {gib << 20} kB\n"
    document = show(PLAIN, files)
    assert [node["kind"] for node in document["numa"]["nodes"]] == kinds
    assert len(machine_from_json(document).numa.pool_nodes) == pools


@pytest.mark.parametrize("threads", [1, 2])
def test_a_machine_without_node_folders_is_one_node(show: Show, threads: int) -> None:
    machine = Described("Ryzen", X86, 1, 16, threads, 64 * GIB, 48 * GIB)
    document = show(machine, without(machine, "/system/node/"))
    (node,) = document["numa"]["nodes"]
    assert (node["id"], len(node["cpus"]), node["memory_total"]) == (0, 16 * threads, 64 * GIB)
    assert document["cpu"]["usable_physical_cores"] == 16
    assert noted(document, "single node")


@pytest.mark.parametrize(
    ("cpus", "mems", "usable"),
    [("0-15", "0-7", [0, 1, 2, 3]), ("4-11", "0-7", [1, 2]), ("0-31", "2,5", [2, 5]), ("0-7", "1-7", [1])],
)
def test_nodes_that_a_container_may_not_use(show: Show, cpus: str, mems: str, usable: list[int]) -> None:
    machine = Described("EPYC", X86, 8, 4, 1, 64 * GIB, 48 * GIB)
    status = f"Cpus_allowed_list:\t{cpus}\nMems_allowed_list:\t{mems}\n"
    document = show(machine, {"/proc/self/status": status})
    nodes = document["numa"]["nodes"]
    assert [node["id"] for node in nodes if node["usable"]] == usable
    assert all("not allowed by cpuset" in node["reason"] for node in nodes if not node["usable"])
    assert nodes[0]["distances"] == [10] + [32] * 7


@pytest.mark.parametrize(
    ("files", "container", "wsl"),
    [
        ({"/.dockerenv": ""}, "docker", None),
        ({"/run/.containerenv": 'engine="podman"\n'}, "podman", None),
        ({"/run/systemd/container": "lxc\n"}, "lxc", None),
        ({"/proc/self/cgroup": "0::/kubepods.slice/cri-containerd-ab.scope\n"}, "kubernetes", None),
        ({"/proc/sys/kernel/osrelease": "5.15.153.1-microsoft-standard-WSL2\n"}, None, 2),
        ({"/proc/sys/kernel/osrelease": "4.4.0-19041-Microsoft\n"}, None, 1),
        ({}, None, None),
    ],
)  # fmt: skip
def test_containers_and_wsl(
    show: Show, files: dict[str, str], container: str | None, wsl: int | None
) -> None:
    system = show(PLAIN, files)["system"]
    assert (system["container"], system["wsl"]) == (container, wsl)


# --- GPUs -------------------------------------------------------------------------------------------------------


def card(index: int, gib: int = 24, **more: Any) -> dict[str, Any]:
    return gpu_row(index, f"NVIDIA card of {gib} GB", gib * GIB, (8, 9), 0) | more


def cards(*rows: dict[str, Any], **env: str) -> dict[str, Any]:
    return {"driver": {"version": "580.1", "cuda": "13.0"}, "env": env, "gpus": list(rows)}


@pytest.mark.parametrize(
    ("visible", "chosen", "part"),
    [
        ("GPU-00000001-5eed-4a11-8a11-000000c0ffef", [1], None),
        ("GPU-00000001", [1], None),
        ("GPU-0000", [], "ambiguous UUID prefix"),
        ("GPU-dead", [], "no such GPU"),
        ("", [], "hides all GPUs"),
        ("-1", [], "all GPUs are hidden"),
        ("1,7,0", [1], "there is no GPU 7"),
        ("1,0", [1, 0], "0 is GPU 1, 1 is GPU 0"),
        ("1,1", [1], "names GPU 1 twice"),
        (" 1 ,0 ", [1, 0], None),
    ],
)
def test_visible_devices(show: Show, visible: str, chosen: list[int], part: str | None) -> None:
    document = show(PLAIN, gpus=cards(card(0), card(1), CUDA_VISIBLE_DEVICES=visible))
    assert [gpu["index"] for gpu in document["gpus"]] == chosen
    assert len(document["gpus"]) + len(document["gpus_hidden"]) == 2
    assert part is None or noted(document, part)
    assert not noted(document, "no NVIDIA GPU")


@pytest.mark.parametrize("order", ["FASTEST_FIRST", "PCI_BUS_ID", None])
def test_cards_are_numbered_by_pci_address(show: Show, order: str | None) -> None:
    rows = [card(0, 48), card(1, 8), card(2, 48)]
    document = show(PLAIN, gpus=cards(*rows, **({"CUDA_DEVICE_ORDER": order} if order else {})))
    assert [gpu["memory_total"] // GIB for gpu in document["gpus"]] == [48, 8, 48]
    assert noted(document, "guess of speed") is (order == "FASTEST_FIRST")


@pytest.mark.parametrize("error", ["NOT_SUPPORTED", "UNKNOWN", "NO_PERMISSION", "GPU_IS_LOST"])
@pytest.mark.parametrize(
    "field", ["power_limit_w", "utilization", "temperature_c", "memory", "pcie", "uuid", "name"]
)
def test_a_refused_field_is_missing_alone(show: Show, error: str, field: str) -> None:
    document = show(PLAIN, gpus=cards(card(0, **{field: {"error": error}})))
    (gpu,) = document["gpus"]
    assert set(gpu["unavailable"].values()) == {error}
    assert all(name.startswith(field.partition("_")[0]) for name in gpu["unavailable"])
    assert field == "memory" or gpu["memory_total"] == 24 * GIB
    assert sum(error in note for note in document["notes"]) == 1


@pytest.mark.parametrize("version", ["570.124.06", "575.51.03", None])
def test_a_driver_upgraded_under_its_module(show: Show, version: str | None) -> None:
    files = {
        "/proc/driver/nvidia/version": f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {version}  Tue\n"
    }
    gpus = {"driver": {"error": "LIB_RM_VERSION_MISMATCH"}, "gpus": []}
    document = show(PLAIN, files if version else None, gpus)
    assert noted(document, "driver/library mismatch")
    assert document["driver"]["version"] == version
    assert document["cpu"]["physical_cores"] == 8


@pytest.mark.parametrize(
    ("vendor", "kind", "name"),
    [("0x1002", "0x030000", "AMD"), ("0x8086", "0x038000", "Intel"), ("0x1da3", "0x120000", "Habana")],
)
@pytest.mark.parametrize("nvidia", [False, True])
def test_other_accelerators_are_named_and_unused(
    show: Show, vendor: str, kind: str, name: str, nvidia: bool
) -> None:
    folder = "/sys/bus/pci/devices/0000:c3:00.0"
    files = {f"{folder}/vendor": f"{vendor}\n", f"{folder}/class": f"{kind}\n"}
    document = show(PLAIN, files, cards(card(0)) if nvidia else None)
    assert len(document["gpus"]) == nvidia
    (device,) = document["accelerators"]
    assert (device["vendor"], device["pci_bus_id"], device["reason"]) == (
        name,
        "0000:c3:00.0",
        "no engine here uses it",
    )
    assert all("Test CPU" not in (gpu["name"] or "") for gpu in document["gpus"])
    assert noted(document, "no NVIDIA GPU") is not nvidia


@pytest.mark.parametrize(
    ("reserved", "used"), [(308 << 20, 0), (0, 308 << 20), ({"error": "NOT_SUPPORTED"}, 308 << 20)]
)
def test_the_drivers_share_of_memory_is_apart(show: Show, reserved: Any, used: int) -> None:
    memory = {"total": 24 * GIB, "reserved": reserved, "used": used, "free": 24 * GIB - (308 << 20)}
    (gpu,) = show(PLAIN, gpus=cards(card(0, memory=memory)))["gpus"]
    assert gpu["memory_used"] == used
    assert gpu["memory_reserved"] == (reserved if isinstance(reserved, int) else None)
    assert gpu["memory_free"] == 24 * GIB - (308 << 20)


@pytest.mark.parametrize(
    "processes",
    [
        [{"pid": 28290, "used": 62 * GIB}],
        [{"pid": 1, "used": None}, {"pid": "x"}],
        {"error": "NO_PERMISSION"},
    ],
)
def test_processes_of_a_file_are_nobodys_here(show: Show, processes: Any) -> None:
    (gpu,) = show(PLAIN, gpus=cards(card(0, processes=processes)))["gpus"]
    assert all(row["local"] is not True for row in gpu["processes"])


@pytest.mark.parametrize(
    ("sizes", "told"), [((16, 12), True), ((24, 24), False), ((24, 48, 24), True), ((8,), False)]
)
def test_unequal_cards_are_told(show: Show, sizes: tuple[int, ...], told: bool) -> None:
    document = show(PLAIN, gpus=cards(*(card(n, gib) for n, gib in enumerate(sizes))))
    assert noted(document, f"counts as its smallest, {min(sizes)}.0 GiB") is told


@pytest.mark.parametrize(
    ("node", "gib", "kind", "total"), [(96, 96, "gpu memory", 480), (256, 96, "memory only", 736)]
)
def test_a_gpus_own_memory_is_no_main_memory(show: Show, node: int, gib: int, kind: str, total: int) -> None:
    machine = Described(
        "", NEOVERSE_V2, 1, 8, 1, 480 * GIB, 400 * GIB, arch="aarch64", memory_nodes=(node * GIB,)
    )
    document = show(machine, gpus=cards(card(0, gib)))
    assert [row["kind"] for row in document["numa"]["nodes"]] == ["cpu+memory", kind]
    memory = document["memory"]
    assert memory["total"] // GIB == total
    assert memory["free"] // GIB == total - 80
    assert memory["available"] <= memory["total"]
    assert memory["used"] + memory["free"] + memory["page_cache"] == memory["total"]
