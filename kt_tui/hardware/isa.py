"""Instruction-set extensions: which ones the CPU lists, and whether the kernel grants AMX."""

from __future__ import annotations

import ctypes
import platform

# Lowest first; only those that some inference kernel asks for. Spelling of the kernel's cpuinfo.
X86_EXTENSIONS = (
    "sse4_2", "avx", "f16c", "fma", "avx2", "avx_vnni", "avx512f", "avx512bw", "avx512cd", "avx512dq",
    "avx512vl", "avx512_vnni", "avx512vbmi", "avx512_vbmi2", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_int8",
    "amx_bf16", "amx_fp16",
)  # fmt: skip
ARM_EXTENSIONS = (
    "asimd", "asimdhp", "asimddp", "asimdfhm", "bf16", "i8mm", "sve", "sve2", "svebf16", "svei8mm", "sme", "sme2",
)  # fmt: skip
# Spellings of other kernels and tools.
ALIASES = {
    "avx512vnni": "avx512_vnni", "avx512bf16": "avx512_bf16", "avx512fp16": "avx512_fp16", "avx512_vbmi": "avx512vbmi",
    "avx512vbmi2": "avx512_vbmi2", "avxvnni": "avx_vnni", "amx-tile": "amx_tile", "amx-int8": "amx_int8",
    "amx-bf16": "amx_bf16",
}  # fmt: skip

ARCH_REQ_XCOMP_PERM = 0x1023  # arch/x86/include/uapi/asm/prctl.h
XFEATURE_XTILEDATA = 18
SYS_ARCH_PRCTL = 158  # x86-64


def known_extensions(flags: frozenset[str]) -> tuple[str, ...]:
    """Those of a CPU's flags that matter here, normalised and in a stable order."""
    present = {ALIASES.get(flag, flag) for flag in flags}
    return tuple(name for name in (*X86_EXTENSIONS, *ARM_EXTENSIONS) if name in present)


def amx_permission() -> bool | None:
    """Ask the kernel for AMX tile state, as a program that uses it must; ``None`` where one cannot ask.

    The permission is granted per process and inherited; having asked costs nothing until tiles are used.
    Source: the kernel's ``arch/x86/xstate.rst``.
    """
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return None
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        return int(libc.syscall(SYS_ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA)) == 0
    except (OSError, AttributeError):
        return None
