"""Check every kernel of this machine against a float64 reference, with plain Python and numpy.

    python3 tools/kernel_check.py MODULE [--threads N] [--seed N] [--isa NAME ...]

MODULE is the built extension (_csrc*.so). Prints, for each instruction set, operation and format, the largest error
as a share of the allowed bound and PASS or FAIL; the exit code is 1 if anything failed.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "csrc"))

import kernel_cases as cases
import kernel_oracle as oracle


def load_module(path: str) -> Any:
    """Import the extension from a file."""
    spec = importlib.util.spec_from_file_location("_csrc", path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{path} is not an extension module; build it with tools/kernel_check.sh")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def checks(csrc: Any, team: Any, rng: np.random.Generator) -> Iterator[tuple[str, float]]:
    """Name and error (as a share of the bound) of each check of one instruction set."""
    for fmt in oracle.FORMATS:
        for mode in ("exact", "fast") if fmt in oracle.BLOCK_FORMATS else ("exact",):
            worst = max(cases.linear_error(csrc, team, rng, fmt, mode, *shape) for shape in cases.shapes(fmt))
            yield f"linear  {fmt:12} {mode}", worst
    for fmt in ("fp8_block128", "fp8_channel", "mxfp8"):
        yield f"linear  {fmt:12} codes", cases.fp8_codes_error(csrc, team, fmt)
    for fmt in oracle.FORMATS:
        for mode in ("exact", "fast") if fmt in oracle.BLOCK_FORMATS else ("exact",):
            shapes = cases.expert_shapes(fmt)
            worst = max(cases.experts_error(csrc, team, rng, fmt, *shape, mode) for shape in shapes)
            yield f"experts {fmt:12} {mode}", worst


def main() -> int:
    """Run all checks."""
    parser = argparse.ArgumentParser(description="Check the CPU kernels against a float64 reference")
    parser.add_argument("module", help="the built extension, _csrc*.so")
    parser.add_argument("--threads", type=int, default=4, help="at most this many threads")
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4), "little"))
    parser.add_argument("--isa", nargs="+", help="only these instruction sets")
    args = parser.parse_args()
    csrc = load_module(args.module)
    cores = csrc.usable_cores()[: args.threads]
    print(f"seed {args.seed}, {len(cores)} threads, instruction sets: {', '.join(csrc.available_isas())}")
    failures = 0
    for isa in args.isa or csrc.available_isas():
        team = csrc.Team(cores, isa)
        for name, worst in checks(csrc, team, np.random.default_rng(args.seed)):
            passed = worst <= 1
            failures += not passed
            print(f"{isa:12} {name:28} error/bound {worst:8.3f}  {'PASS' if passed else 'FAIL'}", flush=True)
        print(
            f"{isa:12} read {csrc.read_bandwidth(team, 1 << 28, 3) / 1e9:.1f} GB/s, "
            f"f32 {csrc.fma_peak(team, False, 0.05) / 1e9:.0f} GFLOP/s, "
            f"bf16 {csrc.fma_peak(team, True, 0.05) / 1e9:.0f} GFLOP/s"
        )
    print("PASS" if not failures else f"FAIL: {failures}")
    return min(failures, 1)


if __name__ == "__main__":
    sys.exit(main())
