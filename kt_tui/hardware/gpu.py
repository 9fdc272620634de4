"""GPUs from a GPU document: NVML's answers, live or from a file; every field on its own may be missing."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kt_tui.errors import KtError
from kt_tui.hardware.machine import Driver, Gpu, GpuProcess, Pcie
from kt_tui.hardware.pci import pci_order
from kt_tui.hardware.visible import Visible, select_visible
from kt_tui.text import one_line

MAXIMUM_GPUS = 256
MAXIMUM_DOCUMENT = 16 << 20

DRIVER_ERRORS = {
    "LIBRARY_NOT_FOUND": "no NVIDIA GPU: the driver's library (libnvidia-ml) is not installed",
    "DRIVER_NOT_LOADED": "the NVIDIA kernel module is not loaded: `modprobe nvidia`, or reboot",
    "LIB_RM_VERSION_MISMATCH": "driver/library mismatch (the driver was upgraded under a running kernel module): "
    "reboot, or reload the nvidia module",
    "NO_PERMISSION": "no permission to ask the NVIDIA driver: the user needs access to /dev/nvidiactl",
    "BINDING_NOT_INSTALLED": "GPUs n/a: the Python package nvidia-ml-py is not installed",
}


NO_DRIVER = Driver()


@dataclass(frozen=True)
class Gpus:
    """What a CUDA program would see, what is hidden from it, and why."""

    gpus: tuple[Gpu, ...] = ()
    hidden: tuple[Gpu, ...] = ()
    driver: Driver = NO_DRIVER
    notes: tuple[str, ...] = ()


def load_gpu_document(path: Path) -> dict[str, Any]:
    """Read a ``--gpus`` file.

    Raises:
        KtError: It cannot be read or is no GPU document.
    """
    try:
        if path.stat().st_size > MAXIMUM_DOCUMENT:
            raise KtError(f"{path} is too large for a GPU document")
        document = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise KtError(f"cannot read the GPU document {path}: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise KtError(f"{path} is not valid JSON: {str(error)[:200]}") from None
    if not isinstance(document, dict) or not isinstance(document.get("gpus", []), list):
        raise KtError(
            f'{path} is no GPU document: it must be an object with "driver", "env" and a list "gpus"'
        )
    return document


class _Fields:
    """Typed access to one GPU's answers; remembers the driver's errors by field name."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.document = document
        self.errors: dict[str, str] = {}

    def raw(self, path: str, name: str) -> Any:
        value: Any = self.document
        for key in path.split("."):
            if isinstance(value, Mapping) and isinstance(value.get("error"), str):
                break
            value = value.get(key) if isinstance(value, Mapping) else None
        if isinstance(value, Mapping) and isinstance(value.get("error"), str):
            self.errors[name] = value["error"][:80]
            return None
        return value

    def integer(self, path: str, name: str) -> int | None:
        value = self.raw(path, name)
        fits = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 62
        return value if fits else None

    def number(self, path: str, name: str) -> float | None:
        value = self.raw(path, name)
        fits = isinstance(value, int | float) and not isinstance(value, bool) and -1e6 < value < 1e9
        return float(value) if fits else None

    def text(self, path: str, name: str) -> str | None:
        value = self.raw(path, name)
        return one_line(value) if isinstance(value, str) and value else None


@dataclass(frozen=True)
class System:
    """What the machine's own files can add to a document.

    Attributes:
        exists: Tells whether a process id exists here; ``None`` when that cannot be known (a file from elsewhere).
        numa_node: Gives the NUMA node of a PCI address, which many drivers do not tell.
        module_version: Version of the loaded kernel module, told beside a driver error.
    """

    exists: Callable[[int], bool] | None = None
    numa_node: Callable[[str], int | None] | None = None
    module_version: str | None = None


NO_SYSTEM = System()


def _gpu(document: Mapping[str, Any], position: int, system: System) -> Gpu:
    fields = _Fields(document)
    address, node = fields.text("pci_bus_id", "pci_bus_id"), fields.integer("numa_node", "numa_node")
    if node is None and address and system.numa_node:
        node = system.numa_node(address)
        if node is not None:
            fields.errors.pop("numa_node", None)
    capability = fields.raw("compute_capability", "compute_capability")
    index = fields.integer("index", "index")
    return Gpu(
        index=position if index is None else index,
        uuid=fields.text("uuid", "uuid"),
        name=fields.text("name", "name"),
        pci_bus_id=address,
        memory_total=fields.integer("memory.total", "memory_total"),
        memory_free=fields.integer("memory.free", "memory_free"),
        memory_used=fields.integer("memory.used", "memory_used"),
        memory_reserved=fields.integer("memory.reserved", "memory_reserved"),
        compute_capability=_capability(capability),
        utilization_gpu=fields.number("utilization.gpu", "utilization_gpu"),
        utilization_memory=fields.number("utilization.memory", "utilization_memory"),
        power_w=fields.number("power_w", "power_w"),
        power_limit_w=fields.number("power_limit_w", "power_limit_w"),
        temperature_c=fields.number("temperature_c", "temperature_c"),
        numa_node=node,
        pcie=Pcie(
            *(
                fields.integer(f"pcie.{name}", f"pcie_{name}")
                for name in ("gen", "width", "max_gen", "max_width")
            )
        ),
        processes=_processes(fields.raw("processes", "processes"), system.exists),
        unavailable=fields.errors,
    )


def _capability(value: Any) -> tuple[int, ...] | None:
    if not isinstance(value, list) or len(value) != 2:
        return None
    numbers = tuple(number for number in value if type(number) is int and 0 <= number < 1000)
    return numbers if len(numbers) == 2 else None


def _processes(value: Any, exists: Callable[[int], bool] | None) -> tuple[GpuProcess, ...]:
    rows = []
    for row in value[:10_000] if isinstance(value, list) else ():
        fields = _Fields(row if isinstance(row, Mapping) else {})
        if (pid := fields.integer("pid", "pid")) is not None:
            rows.append(GpuProcess(pid, fields.integer("used", "used"), exists(pid) if exists else None))
    return tuple(rows)


def _instances(document: Mapping[str, Any], parent: Gpu) -> tuple[Gpu, ...] | None:
    """The MIG instances of a GPU, ``None`` when MIG is off."""
    mig = document.get("mig")
    if not isinstance(mig, Mapping) or mig.get("mode") != 1:
        return None
    found = []
    rows = mig.get("instances")
    for row in rows[:MAXIMUM_GPUS] if isinstance(rows, list) else ():
        fields = _Fields(row if isinstance(row, Mapping) else {})
        found.append(
            replace(
                parent,
                uuid=fields.text("uuid", "uuid"),
                name=fields.text("name", "name") or parent.name,
                memory_total=fields.integer("memory.total", "memory_total"),
                memory_free=fields.integer("memory.free", "memory_free"),
                memory_used=fields.integer("memory.used", "memory_used"),
                memory_reserved=fields.integer("memory.reserved", "memory_reserved"),
                mig_parent=parent.uuid,
                mig_profile=fields.text("profile", "profile"),
                processes=(),
                unavailable={**parent.unavailable, **fields.errors},
            )
        )
    return tuple(found)


def _in_pci_order(pairs: list[tuple[Gpu, Any]], notes: list[str]) -> list[tuple[Gpu, Any]]:
    keys = [pci_order(gpu.pci_bus_id) for gpu, _ in pairs]
    if None not in keys:
        pairs = [pair for _, pair in sorted(zip(keys, pairs, strict=True), key=lambda item: item[0] or ())]
    else:
        pairs = sorted(pairs, key=lambda pair: pair[0].index)
    indices = [gpu.index for gpu, _ in pairs]
    if any(later <= earlier for earlier, later in itertools.pairwise(indices)):
        notes.append(
            "gpus: renumbered by PCI address, as nvidia-smi and CUDA_DEVICE_ORDER=PCI_BUS_ID number them"
        )
        pairs = [(replace(gpu, index=position), row) for position, (gpu, row) in enumerate(pairs)]
    return pairs


def gpus_from_document(document: Mapping[str, Any], system: System = NO_SYSTEM) -> Gpus:
    """Work out the GPUs that a CUDA program would see.

    Args:
        document: A GPU document; anything in it may be missing or of a wrong type.
        system: What the machine's own files add.
    """
    notes: list[str] = []
    driver = _driver(document.get("driver"), system.module_version, notes)
    rows = document.get("gpus")
    listed = [
        row for row in (rows[:MAXIMUM_GPUS] if isinstance(rows, list) else []) if isinstance(row, Mapping)
    ]
    pairs = _in_pci_order([(_gpu(row, number, system), row) for number, row in enumerate(listed)], notes)
    whole = tuple(gpu for gpu, _ in pairs)
    for gpu in whole:
        for error in sorted(set(gpu.unavailable.values())):
            fields = ", ".join(name for name, value in gpu.unavailable.items() if value == error)
            notes.append(f"gpu {gpu.index}: {fields} n/a ({error})")
        if outside := sum(process.local is False for process in gpu.processes):
            notes.append(f"gpu {gpu.index}: {outside} of its processes are outside this process namespace")
    environment = document.get("env")
    env = (
        {k: v for k, v in environment.items() if isinstance(v, str)}
        if isinstance(environment, Mapping)
        else {}
    )
    instances = {gpu.index: found for gpu, row in pairs if (found := _instances(row, gpu)) is not None}
    visible: Visible = select_visible(whole, instances, env, notes)
    _tell_unequal_memory(visible.gpus, notes)
    return Gpus(visible.gpus, visible.hidden, driver, tuple(notes))


def _tell_unequal_memory(gpus: tuple[Gpu, ...], notes: list[str]) -> None:
    sizes = [gpu.memory_total for gpu in gpus if gpu.memory_total]
    # Cards of one name may differ by what firmware takes; a tenth is another card.
    if len(sizes) > 1 and min(sizes) * 10 < max(sizes) * 9:
        notes.append(
            "gpus: of unequal memory; under tensor parallelism each counts as its smallest, "
            f"{min(sizes) / (1 << 30):.1f} GiB"
        )


def _driver(value: Any, module_version: str | None, notes: list[str]) -> Driver:
    if not isinstance(value, Mapping):
        notes.append("gpus: driver version n/a")
        return Driver()
    error = value.get("error")
    if isinstance(error, str):
        sentence = DRIVER_ERRORS.get(error, f"GPUs n/a: the NVIDIA driver answers {error[:80]}")
        if module_version and error == "LIB_RM_VERSION_MISMATCH":
            sentence += f" (loaded module: {module_version})"
        notes.append(f"gpus: {sentence}")
        return Driver(version=module_version, error=error[:80], module=module_version)
    fields = _Fields(value)
    return Driver(fields.text("version", "version"), fields.text("cuda", "cuda"), module=module_version)
