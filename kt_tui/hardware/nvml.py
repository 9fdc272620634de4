"""Asks the NVIDIA driver about its GPUs and writes the answers down as a GPU document (the format of ``--gpus``).

Every field is asked for on its own: one that the driver refuses becomes ``{"error": NAME}`` and hides no other.
Documented at https://docs.nvidia.com/deploy/nvml-api; the binding is ``nvidia-ml-py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

ENVIRONMENT = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")
MAXIMUM_MIG_INSTANCES = 64
AFFINITY_WORDS = 16  # of 64 nodes each


def gpu_document(environ: Mapping[str, str]) -> dict[str, Any]:
    """What NVML answers now. Never raises: without a driver the document says which error it gave."""
    env = {name: environ[name] for name in ENVIRONMENT if name in environ}
    try:
        import pynvml

        nvml: Any = pynvml
    except ImportError:
        return {"driver": {"error": "BINDING_NOT_INSTALLED"}, "env": env, "gpus": []}
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return {"driver": {"error": error_name(error)}, "env": env, "gpus": []}
    try:
        count = _ask(nvml.nvmlDeviceGetCount)
        gpus = [_gpu(nvml, index) for index in range(count)] if isinstance(count, int) else []
        return {"driver": _driver(nvml), "env": env, "gpus": gpus}
    finally:
        _ask(nvml.nvmlShutdown)


def error_name(error: Exception) -> str:
    """NVML's own name of an error: ``NOT_SUPPORTED``, ``LIB_RM_VERSION_MISMATCH`` ..."""
    import pynvml

    value = getattr(error, "value", None)
    names = {
        getattr(pynvml, name): name.removeprefix("NVML_ERROR_")
        for name in dir(pynvml)
        if name.startswith("NVML_ERROR_")
    }
    return names.get(value, f"UNKNOWN_{value}" if value is not None else type(error).__name__)


def _ask(function: Callable[..., Any], *arguments: Any) -> Any:
    """The answer, or ``{"error": NAME}`` (also for a function that the library is too old to have)."""
    try:
        answer = function(*arguments)
    except (
        Exception
    ) as error:  # the binding raises other types too, for strings and structures it cannot decode
        return {"error": error_name(error)}
    return answer.decode("utf-8", "replace") if isinstance(answer, bytes) else answer


def _scaled(answer: Any, divisor: float) -> Any:
    return answer / divisor if isinstance(answer, int | float) else answer


def _driver(nvml: Any) -> dict[str, Any]:
    version = _ask(nvml.nvmlSystemGetDriverVersion)
    cuda = _ask(nvml.nvmlSystemGetCudaDriverVersion_v2)
    return {
        "version": version,
        "cuda": f"{cuda // 1000}.{cuda % 1000 // 10}" if isinstance(cuda, int) else cuda,
    }


def _memory(nvml: Any, handle: Any) -> dict[str, Any]:
    # Version 2 tells the driver's own share apart; version 1 counts it as used.
    answer = _ask(lambda: nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2))
    if isinstance(answer, dict):
        answer = _ask(nvml.nvmlDeviceGetMemoryInfo, handle)
    if isinstance(answer, dict):
        return answer
    reserved = getattr(answer, "reserved", {"error": "NOT_SUPPORTED"})
    return {"total": answer.total, "reserved": reserved, "free": answer.free, "used": answer.used}


def _processes(nvml: Any, handle: Any) -> Any:
    answer = _ask(nvml.nvmlDeviceGetComputeRunningProcesses, handle)
    if isinstance(answer, dict):
        return answer
    return [
        {
            "pid": row.pid,
            "used": {"error": "NOT_SUPPORTED"} if row.usedGpuMemory is None else row.usedGpuMemory,
        }
        for row in answer
    ]


def _mig(nvml: Any, handle: Any) -> Any:
    mode = _ask(nvml.nvmlDeviceGetMigMode, handle)
    if isinstance(mode, dict):
        return mode
    instances = []
    count = _ask(nvml.nvmlDeviceGetMaxMigDeviceCount, handle) if mode[0] else 0
    for position in range(min(count, MAXIMUM_MIG_INSTANCES) if isinstance(count, int) else 0):
        instance = _ask(nvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, position)
        if isinstance(instance, dict):
            continue  # the numbers have gaps
        name = _ask(nvml.nvmlDeviceGetName, instance)
        instances.append(
            {
                "uuid": _ask(nvml.nvmlDeviceGetUUID, instance),
                "profile": name.rsplit(" MIG ", 1)[-1] if isinstance(name, str) else name,
                "name": name,
                "memory": _memory(nvml, instance),
            }
        )
    return {"mode": mode[0], "instances": instances}


def _numa_node(nvml: Any, handle: Any) -> Any:
    """The node nearest to the GPU (nvmlDeviceGetNumaNodeId is another thing: the node of the GPU's own memory)."""
    answer = _ask(
        lambda: nvml.nvmlDeviceGetMemoryAffinity(handle, AFFINITY_WORDS, nvml.NVML_AFFINITY_SCOPE_NODE)
    )
    if isinstance(answer, dict):
        return answer
    bits = "".join(f"{word:064b}"[::-1] for word in answer)
    return bits.index("1") if bits.count("1") == 1 else None


def _gpu(nvml: Any, index: int) -> dict[str, Any]:
    handle = _ask(nvml.nvmlDeviceGetHandleByIndex, index)
    if isinstance(handle, dict):  # fallen off the bus, or no permission
        return {"index": index, "uuid": handle, "name": handle, "memory": handle}
    utilization = _ask(nvml.nvmlDeviceGetUtilizationRates, handle)
    pci = _ask(nvml.nvmlDeviceGetPciInfo, handle)
    bus = pci if isinstance(pci, dict) else pci.busId
    capability = _ask(nvml.nvmlDeviceGetCudaComputeCapability, handle)
    return {
        "index": index,
        "uuid": _ask(nvml.nvmlDeviceGetUUID, handle),
        "pci_bus_id": bus.decode("ascii", "replace") if isinstance(bus, bytes) else bus,
        "name": _ask(nvml.nvmlDeviceGetName, handle),
        "memory": _memory(nvml, handle),
        "utilization": utilization
        if isinstance(utilization, dict)
        else {"gpu": utilization.gpu, "memory": utilization.memory},
        "power_w": _scaled(_ask(nvml.nvmlDeviceGetPowerUsage, handle), 1000),
        "power_limit_w": _scaled(_ask(nvml.nvmlDeviceGetEnforcedPowerLimit, handle), 1000),
        "temperature_c": _ask(nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU),
        "pcie": {
            "gen": _ask(nvml.nvmlDeviceGetCurrPcieLinkGeneration, handle),
            "width": _ask(nvml.nvmlDeviceGetCurrPcieLinkWidth, handle),
            "max_gen": _ask(nvml.nvmlDeviceGetMaxPcieLinkGeneration, handle),
            "max_width": _ask(nvml.nvmlDeviceGetMaxPcieLinkWidth, handle),
        },
        "compute_capability": capability if isinstance(capability, dict) else list(capability),
        "numa_node": _numa_node(nvml, handle),
        "mig": _mig(nvml, handle),
        "processes": _processes(nvml, handle),
    }
