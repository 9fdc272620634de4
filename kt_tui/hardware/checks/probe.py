"""Which packages an environment has, told without importing any; also runs by itself in another interpreter."""

import importlib.metadata
import json
import re
import sys
from pathlib import Path

NAMES = ("sglang-kt", "sglang", "kt-kernel", "torch", "transformers", "flashinfer-python", "sgl-kernel")
FORK_MARK = "kt_weight_path"  # the fork's server_args.py declares it; the original does not


def _file(distribution: importlib.metadata.Distribution, path: str) -> Path:
    return Path(str(distribution.locate_file(path)))


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8", errors="replace")[:4_000_000]
    except OSError:
        return ""


def _wanted(requirement: str) -> "tuple[str, str] | None":
    """Package and versions (``>=2.10,<2.12``) of a requirement on one of `NAMES` that always holds."""
    match = re.match(r"([\w.-]+)(?:\[[^\]]*\])?\s*\(?([<>=!~][^;)]*)\)?\s*(?:;(.*))?$", requirement)
    if match is None or "extra" in (match[3] or ""):
        return None
    name = match[1].lower().replace("_", "-")
    return (name, match[2].replace(" ", "")) if name in NAMES else None


def probe() -> dict[str, object]:
    """Versions, pins of packages on each other, whether sglang is the fork, kt-kernel's variants, torch's CUDA."""
    versions: dict[str, str] = {}
    pins: dict[str, dict[str, str]] = {}
    found: dict[str, object] = {
        "python": ".".join(map(str, sys.version_info[:3])),
        "versions": versions,
        "pins": pins,
    }
    for name in NAMES:
        try:
            distribution = importlib.metadata.distribution(name)
            versions[name] = str(distribution.version)
        except Exception:  # noqa: S112 (metadata that is damaged in any way is as good as absent)
            continue
        pins[name] = dict(filter(None, map(_wanted, distribution.requires or ())))
        if name in {"sglang", "sglang-kt"}:
            found["fork"] = FORK_MARK in _read(_file(distribution, "sglang/srt/server_args.py"))
        elif name == "kt-kernel":
            names = [
                path.name for path in sorted(_file(distribution, "kt_kernel").glob("*kt_kernel_ext*.so"))
            ]
            found["kernels"] = names + [
                path.name for path in sorted(_file(distribution, ".").glob("*kt_kernel_ext*.so"))
            ]
        elif name == "torch":
            match = re.search(
                r"^cuda[^=]*=\s*'([\d.]+)'", _read(_file(distribution, "torch/version.py")), re.MULTILINE
            )
            found["torch_cuda"] = match[1] if match else None
    return found


if __name__ == "__main__":
    print(json.dumps(probe()))  # noqa: T201
