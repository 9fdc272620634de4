"""Make a model ready to run, and prove that it is sound."""

from __future__ import annotations

import contextlib
import fcntl
import json
import selectors
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from kt_tui.catalog.entry import ModelEntry, ModelState, PrepareCancelled, PrepareError, PrepareProgress
from kt_tui.catalog.inspect import inspect_path
from kt_tui.catalog.manifest import (
    FileFacts,
    ManifestError,
    checksum_problems,
    mark_proved,
    read_manifest,
    size_problems,
    touched_since,
)
from kt_tui.paths import Paths
from kt_tui.tomlfile import reason

ProgressCallback = Callable[[PrepareProgress], None]

POLL_SECONDS = 0.1
GRACE_SECONDS = 5.0


def is_prepared(entry: ModelEntry) -> bool:
    """True when the model's files are all there with their right sizes (no hashing; milliseconds).

    A made model whose files were written to since their checksums were last found right is not prepared: `prepare`
    then proves it again.
    """
    if entry.target is None:
        return entry.path is not None and inspect_path(entry.path).state is ModelState.COMPLETE
    try:
        files = read_manifest(entry.target, entry.recipe)
    except ManifestError:
        return False
    return not size_problems(entry.target, files) and not touched_since(entry.target, files)


def prepare(
    entry: ModelEntry,
    paths: Paths,
    on_progress: ProgressCallback | None = None,
    cancel: threading.Event | None = None,
) -> Path:
    """Give the path of a model that is ready to run, making or mending it first where needed.

    A model that is made here is proved by its checksums each time, and made again if one differs. Blocking: call it
    from a worker thread. ``on_progress`` is called from this same thread.

    Raises:
        PrepareError: It cannot be made; says why and what to do.
        PrepareCancelled: ``cancel`` was set.
    """
    tell = on_progress or _nobody
    if entry.target is None:
        if entry.path is not None and is_prepared(entry):
            return entry.path
        raise PrepareError(
            f"{entry.name} cannot be run: {'; '.join(entry.problems) or 'it is not on this machine'}"
        )
    try:
        entry.target.parent.mkdir(parents=True, exist_ok=True)
        with _only_builder(entry.target, cancel):
            problems = verify(entry, tell, cancel)
            if problems:
                _build(entry.target, tell, cancel)
                problems = verify(entry, tell, cancel)
            if not problems:
                mark_proved(entry.target)
                return entry.target
    except OSError as error:
        where = error.filename or entry.target
        raise PrepareError(f"cannot make {entry.name}: {where}: {reason(error)}") from error
    raise PrepareError(
        f"{entry.name} was made but is not sound ({problems[0]}); check the disk under {paths.models}"
    )


def verify(
    entry: ModelEntry,
    on_progress: ProgressCallback | None = None,
    cancel: threading.Event | None = None,
) -> list[str]:
    """Problems found by reading every byte where checksums are known, else every header; empty when it is sound.

    Raises:
        PrepareCancelled: ``cancel`` was set.
    """
    tell = on_progress or _nobody
    folder = entry.target or entry.path
    if folder is None:
        return list(entry.problems) or [f"{entry.name} is not on this machine"]
    if entry.target is not None:
        try:
            files = read_manifest(folder, entry.recipe)
        except ManifestError as error:
            return [str(error)]
    else:
        found = inspect_path(folder)
        if found.state is not ModelState.COMPLETE:
            return list(found.problems)
        if not entry.sha256:
            return []
        files = {folder.name: FileFacts(folder.stat().st_size, entry.sha256)}
        folder = folder.parent
    problems = size_problems(folder, files) or checksum_problems(
        folder, files, lambda done, total: tell(PrepareProgress("verify", done, total)), cancel
    )
    _stop_if(cancel)
    return problems


def _build(target: Path, tell: ProgressCallback, cancel: threading.Event | None) -> None:
    """Run the builder as a child process, so that it can be stopped and its memory goes when it ends."""
    # -P: a folder named "engine" where the user happens to be must not be imported in place of ours.
    argv = [sys.executable, "-P", "-m", "engine.demo", "build", "--out", str(target), "--progress-json"]
    with tempfile.TemporaryFile() as errors:
        child = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, start_new_session=True
        )
        try:
            if child.stdout is not None:
                for line in _lines(child.stdout, cancel):
                    _report(line, tell)
            code = child.wait()
        finally:
            _end(child)
        if code != 0:
            raise PrepareError(_last_words(errors, code))


def _lines(stream: IO[bytes], cancel: threading.Event | None) -> Iterator[bytes]:
    """Lines of a pipe until it closes; looks at ``cancel`` all the while."""
    buffer = b""
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        while True:
            _stop_if(cancel)
            if not selector.select(POLL_SECONDS):
                continue
            block = stream.read1(1 << 16)  # type: ignore[attr-defined]
            if not block:
                return
            *lines, buffer = (buffer + block).split(b"\n")
            yield from lines


def _report(line: bytes, tell: ProgressCallback) -> None:
    with contextlib.suppress(ValueError, KeyError, TypeError):
        step = json.loads(line)
        tell(PrepareProgress(str(step["phase"]), int(step["done"]), int(step["total"])))


def _end(child: subprocess.Popen[bytes]) -> None:
    """Ask the builder to go, so that it tidies up; kill it if it does not. Returns when it is gone."""
    if child.stdout is not None:
        child.stdout.close()
    if child.poll() is None:
        child.terminate()
        try:
            child.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def _last_words(errors: IO[bytes], code: int) -> str:
    errors.seek(0)
    lines = errors.read(1 << 20).decode("utf-8", "replace").strip().splitlines()
    last = lines[-1].removeprefix("engine.demo: ") if lines else ""
    if code > 0 and last:
        # The builder knows of folders only; which one it gets is kt-tui's setting.
        return last.replace("choose another folder", "set KT_TUI_HOME to a folder on another disk")
    ended = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
    return f"the program that makes the demo model {ended}; is there enough memory (1 GB)?"


@contextlib.contextmanager
def _only_builder(target: Path, cancel: threading.Event | None) -> Iterator[None]:
    """Holds the right to make this model, so that two panels make it once. Ends with the process."""
    with target.with_name(f".{target.name}.lock").open("a") as file:
        while True:
            _stop_if(cancel)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(POLL_SECONDS)
            except OSError:  # a file system without locks: two would only do the same work twice
                break
        yield


def _stop_if(cancel: threading.Event | None) -> None:
    if cancel is not None and cancel.is_set():
        raise PrepareCancelled("stopped; nothing half-made is left")


def _nobody(_progress: PrepareProgress) -> None:
    pass
