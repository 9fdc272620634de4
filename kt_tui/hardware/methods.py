"""Which formats of expert weights kt-kernel can compute on a processor, and what is missing for the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kt_tui.hardware.machine import Cpu

_AVX2 = ("avx2", "fma")
_AVX512 = ("avx512f", "avx512bw")
_BF16 = (*_AVX512, "avx512_bf16")
_FP8 = (*_BF16, "avx512vbmi")
_TILES = ("amx_tile", "amx_int8", "amx_bf16")


@dataclass(frozen=True)
class Needs:
    """Extensions of a method's fast path, and of a slower one if there is any."""

    fast: tuple[str, ...]
    slow: tuple[str, ...] | None = None


# By the name that kt-method takes. Read from kt-kernel 0.7.2's loaders and kernels.
METHODS: Mapping[str, Needs] = {
    "BF16": Needs(_BF16, _AVX2),
    "FP8": Needs(_FP8, _AVX2),
    "FP8_PERCHANNEL": Needs(_FP8),
    "RAWINT4": Needs(_AVX512, _AVX2),
    "GPTQ_INT4": Needs(_AVX2),
    "MXFP4": Needs(_BF16, _AVX2),
    "MXFP8": Needs(_TILES, _AVX2),
    "AMXINT4": Needs(_TILES),
    "AMXINT8": Needs(_TILES),
    "LLAMAFILE": Needs(_AVX2),
}


@dataclass(frozen=True)
class Support:
    """Whether a method works on a processor: ``fast``, ``slow`` or ``no``, with the reason."""

    method: str
    level: str
    reason: str = ""


def method_support(cpu: Cpu, method: str) -> Support | None:
    """What a processor does with a method; None for a method or a processor that nothing is known of."""
    needs = METHODS.get(method)
    if needs is None or (not cpu.isa and cpu.arch in {None, "x86_64"}):
        return None
    if cpu.arch not in {None, "x86_64"}:
        return Support(method, "no", f"x86 only, and this processor is {cpu.arch}")
    missing = _missing(cpu, needs.fast)
    if not missing:
        return Support(method, "fast")
    if needs.slow is not None and not _missing(cpu, needs.slow):
        return Support(method, "slow", f"by AVX2; the fast kernels need {missing}")
    return Support(method, "no", f"needs {missing}")


def _missing(cpu: Cpu, wanted: tuple[str, ...]) -> str:
    absent = [name for name in wanted if name not in cpu.isa]
    if not absent and "amx_tile" in wanted and cpu.amx_usable is False:
        return "the kernel's permission for AMX, which is refused here"
    return ", ".join(absent)
