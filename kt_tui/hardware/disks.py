"""Disks: file system, free space, and (when asked) how fast a folder's largest files read."""

from __future__ import annotations

import contextlib
import mmap
import os
import stat
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from kt_tui.errors import KtError
from kt_tui.hardware.files import SystemFiles

BLOCK = 8 << 20
MEASURE_BYTES = 4 << 30
MEASURE_SECONDS = 5.0
MAXIMUM_ENTRIES = 20_000
NETWORK = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "ceph", "fuse.sshfs", "lustre", "glusterfs", "9p", "virtiofs"}
)
"""File systems whose files are elsewhere."""


@dataclass(frozen=True)
class Disk:
    """One folder's file system.

    Attributes:
        path: The folder that was asked about.
        filesystem: Type (``ext4``, ``nfs4``).
        rotational: Whether it turns; ``None`` when the block device does not tell.
        read_bytes_per_s: Sequential read around the page cache, if it was measured.
    """

    path: str
    mount: str | None = None
    filesystem: str | None = None
    total: int | None = None
    free: int | None = None
    rotational: bool | None = None
    read_bytes_per_s: int | None = None


def _unescape(text: str) -> str:
    for code, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, char)
    return text


def find_mount(mountinfo: str | None, path: str) -> tuple[str, str, str] | None:
    """The mount that a resolved path is on: (mount point, type, ``major:minor``); later mounts hide earlier ones."""
    best: tuple[str, str, str] | None = None
    for line in (mountinfo or "").splitlines():
        before, separator, after = line.partition(" - ")
        fields, tail = before.split(), after.split()
        if not separator or len(fields) < 5 or not tail:
            continue
        point = _unescape(fields[4])
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and (best is None or len(point) >= len(best[0])):
            best = (point, tail[0], fields[2])
    return best


def read_disks(files: SystemFiles, folders: Iterable[Path], notes: list[str]) -> tuple[Disk, ...]:
    """The disks of folders, one for each file system; of a captured machine nothing can be known."""
    if not files.live:
        notes.append("disks: n/a, a captured machine's files do not tell free space")
        return ()
    mountinfo = files.text("/proc/self/mountinfo", keep=False)
    found: dict[str, Disk] = {}
    for folder in folders:
        present = next((place for place in (folder, *folder.parents) if place.exists()), None)
        if present is None:
            notes.append(f"disks: {folder} n/a, no such place")
            continue
        try:
            space, resolved = os.statvfs(present), str(present.resolve())
        except OSError as error:
            notes.append(f"disks: {folder} n/a, {error.strerror or error}")
            continue
        mount = find_mount(mountinfo, resolved)
        turning = files.number(f"/sys/dev/block/{mount[2]}/queue/rotational") if mount else None
        disk = Disk(
            path=str(folder),
            mount=mount[0] if mount else None,
            filesystem=mount[1] if mount else None,
            total=space.f_frsize * space.f_blocks,
            free=space.f_frsize * space.f_bavail,
            rotational=None if turning is None else turning == 1,
        )
        found.setdefault(disk.mount or disk.path, disk)
    return tuple(found.values())


def _largest(folder: Path) -> list[tuple[int, Path]]:
    sizes = []
    walked = (Path(root, name) for root, _, names in os.walk(folder) for name in names)
    for file, _ in zip(walked, range(MAXIMUM_ENTRIES), strict=False):
        with contextlib.suppress(OSError):
            status = file.stat()
            if stat.S_ISREG(status.st_mode):
                sizes.append((status.st_size, file))
    return sorted(sizes, reverse=True)


def measure_read(folder: Path, seconds: float = MEASURE_SECONDS) -> int:
    """Bytes a second at which the folder's largest files read, around the page cache.

    Raises:
        KtError: There is no folder, nothing large enough in it, or its files cannot be read past the cache.
    """
    if not folder.is_dir():
        raise KtError(f"cannot measure {folder}: it is no folder")
    read = 0
    spent = 0.0
    buffer = mmap.mmap(-1, BLOCK)  # page-aligned, as O_DIRECT asks
    try:
        for size, file in _largest(folder):
            if size < BLOCK or read >= MEASURE_BYTES or spent >= seconds:
                break
            started = time.monotonic()
            read += _read_direct(file, buffer, size, MEASURE_BYTES - read, seconds - spent)
            spent += time.monotonic() - started
    finally:
        buffer.close()
    if not read:
        raise KtError(f"cannot measure {folder}: it holds no file of {BLOCK >> 20} MiB or more")
    return int(read / max(spent, 1e-9))


def _read_direct(file: Path, buffer: mmap.mmap, size: int, most: int, seconds: float) -> int:
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC)
    except OSError as error:
        raise KtError(
            f"cannot measure {file.parent}: its file system does not read past the page cache "
            f"({error.strerror or error})"
        ) from None
    end = time.monotonic() + seconds
    done = 0
    try:
        while done + BLOCK <= min(size, most) and time.monotonic() < end:
            got = os.preadv(descriptor, [buffer], done)
            if got < BLOCK:
                break
            done += got
    except OSError as error:
        raise KtError(f"cannot measure {file}: {error.strerror or error}") from None
    finally:
        os.close(descriptor)
    return done


def with_speed(disks: tuple[Disk, ...], folder: Path) -> tuple[Disk, ...]:
    """The disks, the folder's own with its measured speed."""
    speed = measure_read(folder)
    mount = find_mount(SystemFiles().text("/proc/self/mountinfo"), str(folder.resolve()))
    point = mount[0] if mount else str(folder)
    return tuple(
        replace(disk, read_bytes_per_s=speed) if (disk.mount or disk.path) == point else disk
        for disk in disks
    )
