"""``CUDA_VISIBLE_DEVICES``: which GPUs a CUDA program started now would see, and in which order.

Rules: the CUDA C++ Programming Guide, "CUDA Environment Variables": indices, GPU UUIDs or unique prefixes of them,
MIG UUIDs; the list ends at the first entry that names no device.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from kt_tui.hardware.files import whole_number
from kt_tui.hardware.machine import Gpu

VARIABLE = "CUDA_VISIBLE_DEVICES"
ORDER = "CUDA_DEVICE_ORDER"
NONE_WORDS = frozenset({"nodevfiles", "none", "void"})  # written by container runtimes and batch systems


@dataclass(frozen=True)
class Visible:
    """The visible GPUs in the program's order, and the others by PCI address."""

    gpus: tuple[Gpu, ...]
    hidden: tuple[Gpu, ...]


def select_visible(
    gpus: Sequence[Gpu], instances: Mapping[int, Sequence[Gpu]], env: Mapping[str, str], notes: list[str]
) -> Visible:
    """Apply the environment.

    Args:
        gpus: Whole GPUs, ordered by PCI address.
        instances: GPU index -> its MIG instances, for GPUs in MIG mode.
        env: The environment of the program.
        notes: Receives a sentence on everything that a user might not expect.
    """
    if gpus and env.get(ORDER, "PCI_BUS_ID") != "PCI_BUS_ID":
        notes.append(
            f"gpus: {ORDER}={env[ORDER]} is set: CUDA then numbers GPUs by its own guess of speed, not as shown here; "
            f"unset it, or name GPUs by UUID"
        )
    value = env.get(VARIABLE)
    if value is None:
        chosen = [_device(gpu, instances, notes) for gpu in gpus]
    else:
        chosen = _listed(value, gpus, instances, notes)
    visible = tuple(replace(gpu, cuda_index=n) for n, gpu in enumerate(g for g in chosen if g is not None))
    taken = {gpu.index for gpu in visible}
    return Visible(visible, tuple(gpu for gpu in gpus if gpu.index not in taken))


def _device(gpu: Gpu, instances: Mapping[int, Sequence[Gpu]], notes: list[str]) -> Gpu | None:
    """What CUDA makes of a GPU named as a whole: in MIG mode its first instance."""
    if gpu.index not in instances:
        return gpu
    slices = instances[gpu.index]
    if not slices:
        notes.append(f"gpu {gpu.index}: in MIG mode without an instance, so CUDA cannot use it")
        return None
    notes.append(f"gpu {gpu.index}: in MIG mode; CUDA sees its first of {len(slices)} instance(s) only")
    return slices[0]


def _listed(
    value: str, gpus: Sequence[Gpu], instances: Mapping[int, Sequence[Gpu]], notes: list[str]
) -> list[Gpu | None]:
    shown = value if len(value) <= 80 else value[:77] + "..."
    if not value.strip() or value.strip().lower() in NONE_WORDS:
        notes.append(f"gpus: {VARIABLE}={shown!r} hides all GPUs")
        return []
    chosen: list[Gpu | None] = []
    names: set[str | None] = set()
    for token in (part.strip() for part in value.split(",")):
        gpu, problem = _find(token, gpus, instances, notes)
        if gpu is None:
            effect = (
                "all GPUs are hidden" if not chosen else f"the list ends before it, {len(chosen)} visible"
            )
            notes.append(f"gpus: {VARIABLE}={shown!r}: {problem}; {effect}")
            return chosen
        key = gpu.uuid or str(gpu.index)
        if key in names:
            notes.append(
                f"gpus: {VARIABLE}={shown!r} names GPU {gpu.index} twice; CUDA refuses or ignores the second"
            )
            continue
        names.add(key)
        chosen.append(gpu)
    if [gpu.index for gpu in chosen if gpu] != list(range(len(chosen))):
        pairs = ", ".join(f"{n} is GPU {gpu.index}" for n, gpu in enumerate(chosen) if gpu)
        notes.append(f"gpus: {VARIABLE}={shown!r}: for CUDA, {pairs}")
    return chosen


def _find(
    token: str, gpus: Sequence[Gpu], instances: Mapping[int, Sequence[Gpu]], notes: list[str]
) -> tuple[Gpu | None, str]:
    """The device that a token names, or why it names none."""
    folded = token.lower()
    if folded.startswith("mig-"):
        return _by_uuid(folded, [gpu for found in instances.values() for gpu in found], "MIG instance")
    if folded.startswith("gpu-"):
        whole, problem = _by_uuid(folded, gpus, "GPU")
    elif (number := whole_number(token)) is not None:
        whole = next((gpu for gpu in gpus if gpu.index == number), None)
        problem = f"{number} means no GPU" if number < 0 else f"there is no GPU {number}"
    elif "-" in token and all(whole_number(part) is not None for part in token.split("-")):
        whole, problem = None, f"{token[:60]!r} is a range, which CUDA does not read; list the numbers"
    else:
        whole, problem = None, f"no such GPU: {token[:60]!r}"
    if whole is None:
        return None, problem
    return _device(whole, instances, notes), f"GPU {whole.index} has no MIG instance to use"


def _by_uuid(prefix: str, gpus: Sequence[Gpu], kind: str) -> tuple[Gpu | None, str]:
    matches = [gpu for gpu in gpus if (gpu.uuid or "").lower().startswith(prefix)]
    if len(matches) > 1:
        return None, f"ambiguous UUID prefix {prefix[:60]!r} ({len(matches)} {kind}s begin with it)"
    return (matches[0], "") if matches else (None, f"no such {kind}: {prefix[:60]!r}")
