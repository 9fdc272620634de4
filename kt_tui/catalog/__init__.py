"""Known models, models on disk, and how to get one ready."""

from kt_tui.catalog.entry import (
    ModelEntry,
    ModelState,
    PrepareCancelled,
    PrepareError,
    PrepareProgress,
    UnknownModel,
)
from kt_tui.catalog.prepare import is_prepared, prepare, verify
from kt_tui.catalog.resolve import find_model, list_models

__all__ = [
    "ModelEntry",
    "ModelState",
    "PrepareCancelled",
    "PrepareError",
    "PrepareProgress",
    "UnknownModel",
    "find_model",
    "is_prepared",
    "list_models",
    "prepare",
    "verify",
]
