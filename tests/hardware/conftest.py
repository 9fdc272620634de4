"""Builds the captured machines of ``cases/`` as folders with ``proc`` and ``sys`` in them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

CASES = Path(__file__).parent / "cases"


def _layout_files(layout: dict[str, Any], cpuinfo: dict[str, str]) -> dict[str, str]:
    """cpuinfo and topology of packages x cores x threads; second threads are numbered after all first ones."""
    packages, cores, threads = layout["packages"], layout["cores"], layout["threads"]
    total = packages * cores
    online = range(total * threads)
    if "online" in layout:
        first, last = layout["online"].split("-")
        online = range(int(first), int(last) + 1)
    files: dict[str, str] = {}
    blocks = []
    for cpu in online:
        package, core = (cpu % total) // cores, (cpu % total) % cores
        blocks.append(
            f"processor\t: {cpu}\n"
            + "".join(f"{name}\t: {value}\n" for name, value in cpuinfo.items())
            + f"physical id\t: {package}\nsiblings\t: {cores * threads}\ncore id\t\t: {core}\ncpu cores\t: {cores}\n"
        )
        if layout.get("sysfs", True):
            folder = f"/sys/devices/system/cpu/cpu{cpu}/topology"
            siblings = [cpu % total + thread * total for thread in range(threads)]
            siblings = [sibling for sibling in siblings if sibling in online]
            files[f"{folder}/physical_package_id"] = f"{package}\n"
            files[f"{folder}/core_id"] = f"{core}\n"
            files[f"{folder}/core_cpus_list"] = ",".join(map(str, siblings)) + "\n"
    if layout.get("cpuinfo", True):
        files["/proc/cpuinfo"] = "\n".join(blocks)
    if layout.get("sysfs", True):
        files["/sys/devices/system/cpu/online"] = f"{online[0]}-{online[-1]}\n"
    return files


def load_case(name: str) -> dict[str, Any]:
    case: dict[str, Any] = json.loads((CASES / f"{name}.json").read_text("utf-8"))
    if "layout" in case:
        case["files"] = _layout_files(case["layout"], case.get("cpuinfo", {})) | case["files"]
    return case


@pytest.fixture
def sysroot(tmp_path: Path) -> Callable[[dict[str, str]], Path]:
    """Writes files (path -> text) below a new root and returns it."""

    def build(files: dict[str, str]) -> Path:
        root = tmp_path / "machine"
        (root / "proc").mkdir(parents=True)
        for path, text in files.items():
            target = root / path.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, "utf-8")
        return root

    return build


@pytest.fixture
def captured(sysroot: Callable[[dict[str, str]], Path]) -> Callable[[str], Path]:
    """The root of a case by its name."""
    return lambda name: sysroot(load_case(name)["files"])


@pytest.fixture(params=sorted(path.stem for path in CASES.glob("*.json")))
def case(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Each case in turn."""
    return load_case(request.param) | {"name": request.param}
