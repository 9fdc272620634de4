"""TOML files that a user owns: read with line and column of a mistake, changed without losing anything.

A change is made under a lock, on what the file holds at that moment, and the new text takes the old one's place in
one step; so writers never lose each other's keys, and a crash or a full disk leaves the old file. Comments, order,
layout, unknown keys, permissions and symbolic links stay.
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import os
import re
import shlex
import stat
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import Any

from kt_tui.errors import KtError
from kt_tui.secret import holds_secret

MAX_BYTES = 4 << 20
LOCK_SECONDS = 10.0
PRIVATE = 0o600
_BOM = "\ufeff"

Change = Callable[[MutableMapping[str, Any]], None]
"""Changes a parsed document in place; called once on plain data and once on the styled document."""


class FileError(KtError):
    """A file that cannot be read or written; says which and why."""


class TomlError(FileError):
    """A file whose text is no TOML; the message starts with path:line:column."""


def read_text(path: Path) -> str | None:
    """The file's text, or None when there is no file.

    Raises:
        FileError: It is unreadable, no regular file, or too long to be a configuration.
        TomlError: It is not UTF-8.
    """
    try:
        info = path.stat()
        # Opening a pipe would wait for ever, a device might never end.
        if not stat.S_ISREG(info.st_mode):
            raise FileError(
                f"{path} is not a regular file; move it away or name another folder with KT_TUI_HOME"
            )
        if info.st_size > MAX_BYTES:
            raise FileError(f"{path} is {info.st_size} bytes long; a configuration has at most {MAX_BYTES}")
        raw = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise FileError(f"cannot read {path}: {reason(error)}") from error
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line, column = _position(raw[: error.start].decode("utf-8"))
        raise TomlError(f"{path}:{line}:{column}: byte 0x{raw[error.start]:02x} is not UTF-8 text") from error


def parse(text: str, path: Path) -> dict[str, Any]:
    """The text as plain data.

    Raises:
        TomlError: With path, line and column.
    """
    text = text.removeprefix(_BOM)
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = re.fullmatch(
            r"(.*) \(at (?:line (\d+), column (\d+)|end of document)\)", str(error), re.DOTALL
        )
        why = found[1] if found else str(error)
        line, column = (found[2], found[3]) if found and found[2] else _position(text)
        raise TomlError(f"{path}:{line}:{column}: {why[:1].lower()}{why[1:]}") from error
    except RecursionError as error:
        raise TomlError(f"{path}:1:1: brackets are nested too deeply") from error


def read_toml(path: Path) -> dict[str, Any]:
    """The file as plain data; empty when there is none. Raises as `read_text` and `parse` do."""
    text = read_text(path)
    return {} if text is None else parse(text, path)


def edit_toml(
    path: Path,
    change: Change,
    *,
    template: str = "",
    backup: Callable[[Mapping[str, Any]], str] | None = None,
) -> None:
    """Apply ``change`` to a file and put the result in its place.

    A new file is private (mode 0600), and one that holds a secret becomes so; others keep their mode.

    Args:
        path: The file; a symbolic link stays one, and what it points to is changed.
        change: See `Change`. What it raises is passed on, and nothing is written.
        template: Text to start from when there is no file.
        backup: From what the file held: ending of a copy to keep beside it, unless there is one; empty for none.

    Raises:
        FileError: It cannot be read or written, or is write-protected.
        TomlError: It is no TOML; it is left as it was.
    """
    import tomlkit

    target = Path(os.path.realpath(path))
    try:
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with locked_folder(target.parent):
            found = read_text(target)
            text = template if found is None else found
            wanted = parse(text, path)
            ending = backup(wanted) if backup is not None and found is not None else ""
            change(wanted)
            private = holds_secret(wanted)
            document = tomlkit.parse(text.removeprefix(_BOM))
            change(document)
            changed = _in_style_of(text, tomlkit.dumps(document))
            if not _same(parse(changed, path), wanted):
                raise FileError(f"{path} has a layout that cannot be changed safely; edit it by hand")
            copy = target.with_name(target.name + ending)
            if ending and found is not None and changed != found and not copy.exists():
                replace_file(copy, found.encode(), private=True)
            if changed != found or (private and target.stat().st_mode & ~PRIVATE & 0o777):
                replace_file(target, changed.encode(), private=private)
    except OSError as error:
        raise FileError(f"cannot save {path}: {reason(error)}") from error


@contextlib.contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Holds the one lock of a folder; the kernel drops it when the process ends, so none is ever stale.

    Some network file systems cannot lock; there the block runs unlocked.

    Raises:
        FileError: Another process has held it for `LOCK_SECONDS`.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        deadline = time.monotonic() + LOCK_SECONDS
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise FileError(f"{folder} is being written by another program; try again") from None
                time.sleep(0.01)
            except OSError:
                break
        yield
    finally:
        os.close(descriptor)


def replace_file(target: Path, data: bytes, *, private: bool) -> None:
    """Put new bytes in the place of a file in one step. The caller holds the folder's lock.

    Raises:
        FileError: The file is write-protected.
        OSError: The disk is full, the folder cannot be written ...; the old file is then as it was.
    """
    existing = target.stat() if target.exists() else None
    if problem := write_protection(target):
        raise FileError(f"cannot save {target}: {problem}")
    # Only a killed writer leaves one of these, and none is alive while we hold the lock.
    for leftover in target.parent.glob(f".{glob.escape(target.name)}.*.tmp"):
        leftover.unlink(missing_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent)
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            if existing is not None:
                mode = stat.S_IMODE(existing.st_mode)
                os.fchmod(descriptor, mode & PRIVATE if private else mode)
                if (existing.st_uid, existing.st_gid) != (os.geteuid(), os.getegid()):
                    with contextlib.suppress(OSError):
                        os.fchown(descriptor, existing.st_uid, existing.st_gid)
            file.flush()
            os.fsync(descriptor)
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(target.parent)


def sync_folder(folder: Path) -> None:
    """Make a rename in this folder survive a power cut, where the file system can."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def write_protection(path: Path) -> str | None:
    """Why a file (there or to be made) cannot be written, as far as that can be told without trying.

    A file whose owner took the writing right away is left alone, even where the folder would allow to replace it.
    """
    target = Path(os.path.realpath(path))
    try:
        if not target.stat().st_mode & 0o222 or not _allowed(target, os.W_OK):
            return f"{target} is read-only"
    except OSError:
        pass
    folder = target.parent
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return None if _allowed(folder, os.W_OK | os.X_OK) else f"the folder {folder} is not writable"


def open_secret(path: Path, document: Mapping[str, Any]) -> str | None:
    """The sentence that a file holds a secret which others may read; None when that is not so."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return None
    if not mode & 0o077 or not holds_secret(document):
        return None
    return f"{path} holds a secret, and others may read it; close it with: chmod 600 {shlex.quote(str(path))}"


def _allowed(path: Path, mode: int) -> bool:
    return os.access(path, mode, effective_ids=os.access in os.supports_effective_ids)


def locate(text: str, keys: tuple[str, ...]) -> tuple[int, int] | None:
    """Line and column (from 1) where a dotted key gets its value; None when that cannot be told.

    The line is the one that ends the first part of the file which already holds the key.
    """
    lines = text.removeprefix(_BOM).splitlines(keepends=True)
    for number in range(1, min(len(lines), 5000) + 1):
        if keys[-1] not in lines[number - 1]:
            continue
        try:
            held: Any = tomllib.loads("".join(lines[:number]))
            for key in keys:
                held = held[key]
        except (tomllib.TOMLDecodeError, KeyError, TypeError, RecursionError):
            continue
        return number, lines[number - 1].index(keys[-1]) + 1
    return None


def reason(error: OSError) -> str:
    """The system's words for an error, in a sentence."""
    return (error.strerror or type(error).__name__).lower()


def _in_style_of(old: str, new: str) -> str:
    """Line ends and byte-order mark as they were."""
    if "\r\n" in old and not re.search(r"(?<!\r)\n", old):
        new = re.sub(r"(?<!\r)\n", "\r\n", new)
    return _BOM + new if old.startswith(_BOM) else new


def _same(left: Any, right: Any) -> bool:
    """Equality in which a value that is not a number equals itself."""
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_same(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_same, left, right))
    return type(left) is type(right) and (left == right or (left != left and right != right))  # noqa: PLR0124


def _position(text: str) -> tuple[int, int]:
    """Line and column, from 1, just after a text."""
    return text.count("\n") + 1, len(text) - text.rfind("\n")
