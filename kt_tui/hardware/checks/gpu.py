"""GPUs: driver against library and module, compute capability against backends, torch's build against the driver."""

from __future__ import annotations

import re

from kt_tui.hardware.checks.verdict import Check, error, ok, skipped, warning
from kt_tui.hardware.gpu import DRIVER_ERRORS
from kt_tui.hardware.machine import Gpu, Machine

Version = tuple[int, ...]

OLDEST = (7, 5)
# Compute capability from which on (until the next row): attention backends of sglang, and GEMMs on FP8.
BACKENDS: tuple[tuple[Version, tuple[str, ...], str], ...] = (
    ((7, 5), ("triton",), ""),
    ((8, 0), ("flashinfer", "triton"), "FP8 weights only, computed as bf16 (marlin)"),
    ((8, 9), ("flashinfer", "triton"), "triton, cutlass"),
    ((9, 0), ("fa3", "flashinfer", "triton"), "deep_gemm, cutlass, triton"),
    ((10, 0), ("trtllm_mla", "trtllm_mha", "flashinfer", "triton"), "deep_gemm, cutlass, triton"),
    ((12, 0), ("flashinfer", "triton"), "triton, cutlass (no deep_gemm)"),
)
# Compute capability -> first CUDA release whose libraries have code for it.
FIRST_CUDA: tuple[tuple[Version, Version], ...] = (((12, 0), (12, 8)), ((10, 0), (12, 8)), ((8, 9), (11, 8)))

REMEDIES = {
    "LIB_RM_VERSION_MISMATCH": "sudo reboot (or unload and load the nvidia modules)",
    "DRIVER_NOT_LOADED": "sudo modprobe nvidia",
    "NO_PERMISSION": "sudo usermod -aG video,render $USER, then log in anew; in a container: docker run --gpus all",
    "BINDING_NOT_INSTALLED": "pip install nvidia-ml-py",
}


def check_gpus(machine: Machine, torch: str | None, torch_cuda: str | None, *, here: bool) -> list[Check]:
    """All of them; ``torch`` and ``torch_cuda`` are the versions in the environment of sglang (or ours)."""
    return [
        _driver(machine),
        _visible(machine),
        _attention(machine),
        _fp8(machine),
        _torch(machine, torch, torch_cuda, here),
    ]


def _driver(machine: Machine) -> Check:
    driver = machine.driver
    cards = (*machine.gpus, *machine.gpus_hidden)
    if driver.error is not None:
        return _driver_refuses(machine, driver.error, driver.version)
    if not cards and driver.version is None:
        return skipped("gpu-driver", "no GPUs are known")
    if not cards:
        return error(
            "gpu-driver", f"driver {driver.version} finds no GPU", "nvidia-smi, and sudo dmesg | grep -i nvrm"
        )
    lost = [gpu for gpu in cards if gpu.name is None and gpu.memory_total is None]
    if lost:
        names = "; ".join(
            f"GPU {gpu.index}: {next(iter(gpu.unavailable.values()), 'no answer')}" for gpu in lost
        )
        return error("gpu-driver", names, "sudo nvidia-smi -r, or reboot; look at sudo dmesg | grep -i xid")
    facts = f"library {driver.version or 'n/a'}, kernel module {driver.module or 'n/a'}, CUDA {driver.cuda or 'n/a'}"
    if driver.version and driver.module and driver.version != driver.module:
        return warning("gpu-driver", f"{facts}: the library and the loaded module differ", "sudo reboot")
    return ok("gpu-driver", facts)


def _driver_refuses(machine: Machine, reason: str, version: str | None) -> Check:
    sentence = DRIVER_ERRORS.get(reason, f"the NVIDIA driver answers {reason}")
    if version:
        sentence += f"; loaded kernel module: {version}"
    on_bus = any(device.vendor == "NVIDIA" for device in machine.accelerators)
    if reason in {"LIBRARY_NOT_FOUND", "DRIVER_NOT_LOADED", "BINDING_NOT_INSTALLED"} and not on_bus:
        return skipped("gpu-driver", f"{sentence}; engines compute on the processor")
    fix = REMEDIES.get(reason, "install NVIDIA's driver, then reboot; in a container: docker run --gpus all")
    return error("gpu-driver", sentence, fix)


def _visible(machine: Machine) -> Check:
    told = [note for note in machine.notes if "CUDA_VISIBLE_DEVICES" in note or "CUDA_DEVICE_ORDER" in note]
    count = len(machine.gpus)
    if machine.gpus_hidden and not machine.gpus:
        hidden = next(iter(told), "all GPUs are hidden").removeprefix("gpus: ")
        return warning("gpu-visible", hidden, "unset CUDA_VISIBLE_DEVICES")
    if not machine.gpus:
        return skipped("gpu-visible", "no GPUs")
    if told:
        return warning(
            "gpu-visible", "; ".join(note.removeprefix("gpus: ") for note in told), "name GPUs by UUID"
        )
    links = [
        gpu for gpu in machine.gpus if gpu.pcie.max_width and (gpu.pcie.width or 99) < gpu.pcie.max_width
    ]
    if links:
        words = ", ".join(f"GPU {gpu.index} x{gpu.pcie.width} of x{gpu.pcie.max_width}" for gpu in links)
        return warning(
            "gpu-visible", f"PCIe with fewer lanes than the card has: {words}", "try another slot or riser"
        )
    return ok(
        "gpu-visible",
        f"{count} GPU(s), all visible" if not machine.gpus_hidden else f"{count} GPU(s) visible",
    )


def backends(capability: Version) -> tuple[tuple[str, ...], str] | None:
    """Attention backends and FP8 GEMMs for a compute capability; None if it is too old for sglang."""
    rows = [row for row in BACKENDS if capability >= row[0]]
    return (rows[-1][1], rows[-1][2]) if rows else None


def _named(gpu: Gpu) -> str:
    return f"GPU {gpu.index}, compute capability {'.'.join(map(str, gpu.compute_capability or ()))}"


def _known(machine: Machine) -> list[Gpu]:
    return [gpu for gpu in machine.gpus if gpu.compute_capability]


def _attention(machine: Machine) -> Check:
    known = _known(machine)
    if not known:
        return skipped("attention-backend", "no GPU with a known compute capability")
    old = [gpu for gpu in known if gpu.compute_capability and backends(gpu.compute_capability) is None]
    if old:
        words = "; ".join(_named(gpu) for gpu in old)
        return warning(
            "attention-backend",
            f"{words}: too old for sglang, which needs {'.'.join(map(str, OLDEST))}",
            "hide it (CUDA_VISIBLE_DEVICES), or use the embedded engine",
        )
    shown = {_named(gpu): ", ".join((backends(gpu.compute_capability or ()) or ((), ""))[0]) for gpu in known}
    return ok("attention-backend", "; ".join(f"{name}: {words}" for name, words in shown.items()))


def _fp8(machine: Machine) -> Check:
    known = _known(machine)
    if not known:
        return skipped("fp8-backend", "no GPU with a known compute capability")
    rows = [(gpu, (backends(gpu.compute_capability or ()) or ((), ""))[1]) for gpu in known]
    if weak := [gpu for gpu, _ in rows if (gpu.compute_capability or ()) < (8, 9)]:
        words = "; ".join(_named(gpu) for gpu in weak)
        return warning(
            "fp8-backend",
            f"{words}: no FP8 arithmetic, which starts at 8.9",
            "take a bf16 or int4 checkpoint for the part of the model on the GPU",
        )
    return ok("fp8-backend", "; ".join(f"{_named(gpu)}: {words}" for gpu, words in rows))


def parse_version(text: str | None) -> Version | None:
    """The first two numbers of ``12.8``."""
    match = re.match(r"(\d{1,4})\.(\d{1,4})", text or "")
    return (int(match[1]), int(match[2])) if match else None


def _torch(machine: Machine, torch: str | None, torch_cuda: str | None, here: bool) -> Check:
    if torch is None:
        return skipped("torch", "not installed" if here else "a captured machine's software is not known")
    if not machine.gpus:
        return ok("torch", f"{torch}; no GPU for it to match")
    driver, built = parse_version(machine.driver.cuda), parse_version(torch_cuda)
    if built is None:
        return warning(
            "torch",
            f"{torch} is built without CUDA, so sglang finds no GPU",
            f"install the build of torch {torch.partition('+')[0]} for CUDA {machine.driver.cuda or 'of the driver'}",
        )
    facts = f"{torch}, built for CUDA {torch_cuda}; the driver does {machine.driver.cuda or 'n/a'}"
    if driver is not None and built[0] > driver[0]:
        return error(
            "torch", f"{facts}: too new for it", f"update the driver, or install a torch for CUDA {driver[0]}"
        )
    for gpu in _known(machine):
        first = next((cuda for floor, cuda in FIRST_CUDA if (gpu.compute_capability or ()) >= floor), (0, 0))
        if built < first:
            wanted = ".".join(map(str, first))
            return error(
                "torch",
                f"{facts}; {_named(gpu)} needs {wanted}",
                f"install a torch for CUDA {wanted} or newer",
            )
    return ok("torch", facts)
