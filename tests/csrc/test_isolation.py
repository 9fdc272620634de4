"""Kernel files for wider instruction sets share no code with the rest, so none of it can leak into other files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

CSRC = Path(__file__).parents[2] / "csrc"
ALLOWED = {"immintrin.h", "stdint.h", "string.h", "stddef.h", "cstdint", "cstddef", "math.h"}


def kernel_sources() -> list[Path]:
    return sorted(
        p
        for p in CSRC.iterdir()
        if p.suffix == ".inl" or (p.name.startswith("kernels") and p.suffix in {".cpp", ".h"})
    )


@pytest.mark.parametrize("path", kernel_sources(), ids=lambda p: p.name)
def test_kernel_sources_include_no_header_with_shared_functions(path):
    for header in re.findall(r'#include [<"]([^>"]+)[>"]', path.read_text()):
        assert header in ALLOWED or header == "kernels.h" or header.endswith(".inl"), header


@pytest.mark.parametrize("path", [p for p in kernel_sources() if p.suffix != ".h"], ids=lambda p: p.name)
def test_kernel_functions_lie_in_anonymous_namespaces(path):
    text = path.read_text()
    outside = re.sub(r"namespace \{\n.*?\n\}  // namespace\n", "", text, flags=re.DOTALL)
    functions = re.findall(r"^\w[\w<>:*& ]*\b(\w+)\([^;]*\) \{", outside, flags=re.MULTILINE)
    assert all(name.startswith("install_") for name in functions), functions


def test_the_shared_header_holds_declarations_only():
    text = re.sub(r"//.*", "", (CSRC / "kernels.h").read_text())
    assert "inline" not in text
    assert "template" not in text
    assert not re.search(r"\)\s*(const)?\s*\{", text)
