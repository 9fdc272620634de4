"""From what a user typed to a model."""

from __future__ import annotations

from kt_tui.catalog.entry import ModelEntry
from kt_tui.config import Config
from kt_tui.paths import Paths


def list_models(paths: Paths, config: Config) -> list[ModelEntry]:
    """Every known model and every checkpoint in the folders of ``paths.models``, in a stable order."""
    raise NotImplementedError


def find_model(name_or_path: str, paths: Paths, config: Config) -> ModelEntry:
    """The one model that a user means by a name, an alias, an unambiguous prefix or a path.

    Raises:
        UnknownModel: Nothing fits; names near misses.
    """
    raise NotImplementedError
