"""A folder that appears whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from engine.demo.options import DemoError

MARGIN = 32 << 20
"""Bytes that stay free on the disk beyond what is written."""

_FULL = {errno.ENOSPC, errno.EDQUOT}


def free_bytes(folder: Path) -> int:
    """Bytes that this user may still write on the disk of ``folder``."""
    return shutil.disk_usage(folder).free


def check_space(target: Path, needed: int) -> None:
    """Raises `DemoError` when the disk of ``target`` is too full for ``needed`` more bytes."""
    free = free_bytes(target.parent)
    if free < needed + MARGIN:
        raise no_space(target, needed, free)


def no_space(target: Path, needed: int, free: int) -> DemoError:
    """The sentence for a full disk."""
    return DemoError(
        f"not enough disk space for {target}: {megabytes(needed + MARGIN)} needed, {megabytes(free)} free; "
        f"free some space or choose another folder"
    )


def megabytes(count: int) -> str:
    """Bytes as a user reads them, exactly where they are few."""
    return f"{count / 1e6:.0f} MB" if count >= 1_000_000 else f"{count} bytes"


@contextlib.contextmanager
def new_folder(target: Path, needed: int) -> Iterator[Path]:
    """A folder beside ``target`` to write into; it takes the place of ``target`` when the block ends well.

    Whatever ends the block early (an error, a signal turned into an exception) removes it, and what a killed
    build left behind is removed by the next one. A full disk becomes a `DemoError`.

    Args:
        target: Where the folder shall appear; an older one is replaced.
        needed: Bytes that will be written, checked against the free space first.
    """
    partial = target.with_name(f"{target.name}.partial-{os.getpid()}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(target)
        check_space(target, needed)
        partial.mkdir()
    except OSError as error:
        raise _unwritable(target, error) from error
    lock = os.open(partial, os.O_RDONLY | os.O_DIRECTORY)
    try:
        # Tells other builders that this one is alive; the kernel drops it however this process ends.
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield partial
        os.fsync(lock)
        _swap(partial, target)
    except BrokenPipeError:
        raise  # whoever reads the progress went away; that says nothing about the disk
    except OSError as error:
        if error.errno in _FULL:
            shutil.rmtree(partial, ignore_errors=True)
            raise no_space(target, needed, free_bytes(target.parent)) from error
        raise _unwritable(target, error) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        os.close(lock)


def remove_leftovers(target: Path) -> None:
    """Remove what earlier builds of ``target`` left when they were killed; a living build's folder stays."""
    for pattern in ("partial", "old"):
        for leftover in target.parent.glob(f"{target.name}.{pattern}-*"):
            if _is_abandoned(leftover):
                shutil.rmtree(leftover, ignore_errors=True)


def _is_abandoned(folder: Path) -> bool:
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def _swap(partial: Path, target: Path) -> None:
    old = target.with_name(f"{target.name}.old-{os.getpid()}")
    with contextlib.suppress(FileNotFoundError):
        target.rename(old)
    partial.rename(target)
    if old.is_dir() and not old.is_symlink():
        shutil.rmtree(old, ignore_errors=True)
    else:
        old.unlink(missing_ok=True)
    parent = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(parent)
    finally:
        os.close(parent)


def _unwritable(target: Path, error: OSError) -> DemoError:
    return DemoError(
        f"cannot write {target}: {(error.strerror or str(error)).lower()}; choose another folder"
    )
