"""Fixtures shared by all tests: an own home folder, and the two real models."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kt_tui.paths import Paths, user_paths

if TYPE_CHECKING:
    from engine.demo.options import DemoOptions


# A shell that starts tests in the background has them ignore Ctrl+C, and children would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def kt_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty KT_TUI_HOME, set in the environment; no other KT_TUI variable is set."""
    for name in [name for name in os.environ if name.startswith("KT_TUI_")]:
        monkeypatch.delenv(name)
    home = tmp_path / "kt-home"
    monkeypatch.setenv("KT_TUI_HOME", str(home))
    return home


@pytest.fixture
def kt_paths(kt_home: Path) -> Paths:
    """The folders below `kt_home`."""
    return user_paths({"KT_TUI_HOME": str(kt_home)})


@pytest.fixture(scope="session")
def smollm2_gguf() -> Path:
    """The dense model's GGUF file."""
    from engine.demo.source import find_gguf

    return find_gguf()


@pytest.fixture(scope="session")
def demo_model() -> Path:
    """The demo checkpoint as users get it (MiniMax-M2, FP8); built once a machine. Do not write into it."""
    from engine.demo.options import DemoOptions

    return _built("demo-fp8", DemoOptions())


@pytest.fixture(scope="session")
def demo_bf16_model() -> Path:
    """The same model in bfloat16 and unpadded, comparable with the dense one. Do not write into it."""
    from engine.demo.options import DemoOptions

    return _built("demo-bf16", DemoOptions(store="bf16", hidden=0))


def _built(name: str, options: DemoOptions) -> Path:
    """A checkpoint from the cache of the test machine, built if it is missing, outdated or damaged."""
    from engine.demo import RECIPE

    cache = _test_cache()
    folder = cache / f"{name}-r{RECIPE}"
    with _only_one(cache / f"{name}.lock"):
        if not _is_sound(folder):
            from engine.demo.build import build_demo

            build_demo(folder, options)
    return folder


def _test_cache() -> Path:
    if chosen := os.environ.get("KT_TUI_TEST_CACHE"):
        cache = Path(chosen).absolute()
    else:
        from platformdirs import user_cache_path

        cache = user_cache_path("kt-tui", appauthor=False) / "tests"
    cache.mkdir(parents=True, exist_ok=True)
    return cache


@contextmanager
def _only_one(path: Path) -> Iterator[None]:
    """Holds a lock that ends with the process, so that parallel test workers build once."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _is_sound(folder: Path) -> bool:
    from engine.demo import MANIFEST, RECIPE

    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
        if manifest["recipe"] != RECIPE:
            return False
        for name, entry in manifest["files"].items():
            with (folder / name).open("rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() != entry["sha256"]:
                    return False
    except (OSError, ValueError, KeyError):
        return False
    return True


@pytest.fixture
def write_gguf(tmp_path: Path) -> Callable[..., Path]:
    """Writes a small GGUF with the gguf library: (file name, metadata, {tensor: (float32 array, type name)})."""
    from gguf import GGUFWriter
    from gguf.constants import GGMLQuantizationType
    from gguf.quants import quantize

    def write(
        name: str,
        metadata: dict[str, Any],
        tensors: dict[str, tuple[Any, str]],
        architecture: str = "llama",
    ) -> Path:
        writer = GGUFWriter(tmp_path / name, architecture)
        for key, value in metadata.items():
            if isinstance(value, bool):
                writer.add_bool(key, value)
            elif isinstance(value, int):
                writer.add_uint32(key, value)
            elif isinstance(value, float):
                writer.add_float32(key, value)
            elif isinstance(value, str):
                writer.add_string(key, value)
            else:
                writer.add_array(key, value)
        for tensor, (array, kind) in tensors.items():
            quantization = GGMLQuantizationType[kind]
            writer.add_tensor(tensor, quantize(array, quantization), raw_dtype=quantization)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return tmp_path / name

    return write
