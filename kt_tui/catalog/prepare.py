"""Make a model ready to run."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from kt_tui.catalog.entry import ModelEntry, PrepareProgress
from kt_tui.paths import Paths


def is_prepared(entry: ModelEntry) -> bool:
    """True when the model's files are all there with their right sizes (no hashing; milliseconds)."""
    raise NotImplementedError


def prepare(
    entry: ModelEntry,
    paths: Paths,
    on_progress: Callable[[PrepareProgress], None] | None = None,
    cancel: threading.Event | None = None,
) -> Path:
    """Give the path of a model that is ready to run, making or mending it first where needed.

    Blocking: call it from a worker thread. ``on_progress`` is called from this same thread.

    Raises:
        PrepareError: It cannot be made; says why and what to do.
        PrepareCancelled: ``cancel`` was set.
    """
    raise NotImplementedError


def verify(
    entry: ModelEntry,
    on_progress: Callable[[PrepareProgress], None] | None = None,
    cancel: threading.Event | None = None,
) -> list[str]:
    """Problems found by reading every byte; empty when the model is sound."""
    raise NotImplementedError
