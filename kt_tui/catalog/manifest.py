"""The manifest of a checkpoint that was made here: which files, how long, with which SHA-256."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from kt_tui.catalog.safetensors_header import is_plain_name
from kt_tui.tomlfile import reason

NAME = "manifest.json"
_BLOCK = 4 << 20
_MAX_BYTES = 1 << 20


@dataclass(frozen=True)
class FileFacts:
    """Length in bytes and SHA-256 (hexadecimal) that a file must have."""

    bytes: int
    sha256: str


class ManifestError(Exception):
    """There is no manifest, or it cannot be understood."""


def read_manifest(folder: Path, recipe: int) -> Mapping[str, FileFacts]:
    """The files that the folder must hold.

    Raises:
        ManifestError: It has no manifest, a damaged one, or one of another recipe.
    """
    path = folder / NAME
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise ManifestError(f"{path} is damaged")
        document = json.loads(path.read_bytes())
        if document["recipe"] != recipe:
            raise ManifestError(f"{folder} was made by another version of kt-tui")
        files = {
            name: FileFacts(entry["bytes"], entry["sha256"]) for name, entry in document["files"].items()
        }
    except OSError as error:
        raise ManifestError(f"cannot read {path}: {reason(error)}") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ManifestError(f"{path} is damaged") from error
    for name, facts in files.items():
        if not is_plain_name(name) or type(facts.bytes) is not int or not isinstance(facts.sha256, str):
            raise ManifestError(f"{path} is damaged")
    return files


def size_problems(folder: Path, files: Mapping[str, FileFacts]) -> list[str]:
    """Files that are missing or of another length; takes microseconds."""
    problems: list[str] = []
    for name, facts in files.items():
        try:
            size = (folder / name).stat().st_size
        except OSError as error:
            problems.append(f"{folder / name} cannot be read: {reason(error)}")
            continue
        if size != facts.bytes:
            problems.append(f"{folder / name} has {size} bytes in place of {facts.bytes}")
    return problems


def touched_since(folder: Path, files: Mapping[str, FileFacts]) -> bool:
    """Whether a file was written after the manifest was, so that only its checksum can tell if it is still right."""
    try:
        proved = (folder / NAME).stat().st_mtime_ns
        return any((folder / name).stat().st_mtime_ns > proved for name in files)
    except OSError:
        return True


def mark_proved(folder: Path) -> None:
    """Note that all checksums have just been found right; see `touched_since`."""
    with contextlib.suppress(OSError):
        os.utime(folder / NAME)


def checksum_problems(
    folder: Path,
    files: Mapping[str, FileFacts],
    on_bytes: Callable[[int, int], None],
    cancel: threading.Event | None,
) -> list[str]:
    """Files whose content is not what was written; reads all of them. Stops early when cancelled."""
    problems: list[str] = []
    done, total = 0, sum(facts.bytes for facts in files.values())
    for name, facts in files.items():
        digest = hashlib.sha256()
        try:
            with (folder / name).open("rb") as file:
                while block := file.read(_BLOCK):
                    if cancel is not None and cancel.is_set():
                        return problems
                    digest.update(block)
                    done += len(block)
                    on_bytes(min(done, total), total)
        except OSError as error:
            problems.append(f"{folder / name} cannot be read: {reason(error)}")
            continue
        if digest.hexdigest() != facts.sha256:
            problems.append(f"{folder / name} is damaged (its checksum differs)")
    return problems
