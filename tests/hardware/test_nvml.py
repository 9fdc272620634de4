"""The NVML reader against a library that answers, refuses, or is too old; no driver is needed."""

import sys
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from kt_tui.hardware.gpu import gpus_from_document
from kt_tui.hardware.nvml import error_name, gpu_document

GIB = 1 << 30


class FakeNvml:
    """Answers for one GPU; anything that it was not told is refused."""

    NVMLError = pynvml.NVMLError
    NVML_TEMPERATURE_GPU = 0
    NVML_AFFINITY_SCOPE_NODE = 0
    nvmlMemory_v2 = 2  # noqa: N815

    def __init__(self, **answers: Any) -> None:
        self.answers = {
            "nvmlInit": None,
            "nvmlShutdown": None,
            "nvmlDeviceGetCount": 1,
            "nvmlDeviceGetHandleByIndex": "handle",
            "nvmlDeviceGetMemoryInfo": SimpleNamespace(
                total=24 * GIB, free=23 * GIB, used=GIB // 4, reserved=GIB // 4
            ),
            "nvmlDeviceGetName": b"RTX 4090",
            "nvmlDeviceGetUUID": "GPU-1",
            "nvmlDeviceGetPciInfo": SimpleNamespace(busId=b"00000000:01:00.0"),
            "nvmlDeviceGetPowerUsage": 25_500,
            "nvmlDeviceGetCudaComputeCapability": (8, 9),
            "nvmlDeviceGetMigMode": [0, 0],
            "nvmlSystemGetCudaDriverVersion_v2": 13_010,
            "nvmlDeviceGetComputeRunningProcesses": [SimpleNamespace(pid=7, usedGpuMemory=None)],
        } | answers
        vars(self).update(
            {name: value for name, value in vars(pynvml).items() if name.startswith("NVML_ERROR_")}
        )

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            answer = self.answers.get(name, pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED))
            if callable(answer):
                answer = answer(*arguments, **options)
            if isinstance(answer, Exception):
                raise answer
            return answer

        return call


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Any:
    def install(**answers: Any) -> None:
        monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(**answers))

    return install


def test_answers_and_refusals_stand_side_by_side(fake: Any) -> None:
    fake()
    document = gpu_document({"CUDA_VISIBLE_DEVICES": "0", "HOME": "/x"})
    row = document["gpus"][0]
    assert document["env"] == {"CUDA_VISIBLE_DEVICES": "0"}
    assert document["driver"]["cuda"] == "13.1"
    assert (row["name"], row["power_w"], row["compute_capability"]) == ("RTX 4090", 25.5, [8, 9])
    assert row["power_limit_w"] == {"error": "NOT_SUPPORTED"}
    assert row["mig"] == {"mode": 0, "instances": []}
    card = gpus_from_document(document).gpus[0]
    assert (card.memory_used, card.memory_reserved) == (GIB // 4, GIB // 4)
    assert card.processes[0].used is None


def test_an_old_driver_without_reserved_memory_still_answers(fake: Any) -> None:
    def memory(handle: Any, version: int | None = None) -> Any:
        if version:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
        return SimpleNamespace(total=24 * GIB, free=23 * GIB, used=GIB)

    fake(nvmlDeviceGetMemoryInfo=memory)
    row = gpu_document({})["gpus"][0]
    assert row["memory"]["used"] == GIB
    assert row["memory"]["reserved"] == {"error": "NOT_SUPPORTED"}


@pytest.mark.parametrize(("words", "node"), [([0, 2], 65), ([1], 0), ([3], None), ([0], None)])
def test_the_nearest_numa_node(fake: Any, words: list[int], node: int | None) -> None:
    fake(nvmlDeviceGetMemoryAffinity=words)
    assert gpu_document({})["gpus"][0]["numa_node"] == node


def test_a_gpu_that_fell_off_the_bus_is_listed_with_its_error(fake: Any) -> None:
    fake(nvmlDeviceGetHandleByIndex=pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST))
    found = gpus_from_document(gpu_document({}))
    assert found.gpus[0].unavailable["name"] == "GPU_IS_LOST"


def test_a_library_that_cannot_start_gives_its_error(fake: Any) -> None:
    fake(nvmlInit=pynvml.NVMLError(pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH))
    assert gpu_document({}) == {"driver": {"error": "LIB_RM_VERSION_MISMATCH"}, "env": {}, "gpus": []}


def test_every_error_has_a_name() -> None:
    assert error_name(pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)) == "NOT_SUPPORTED"
    assert error_name(pynvml.NVMLError(123_456)) == "UNKNOWN_123456"
    assert error_name(ValueError()) == "ValueError"
