"""What planning asks of a model and of a profile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol


class Model(Protocol):
    """What planning asks of a model (`kt_tui.catalog.ModelEntry` is one)."""

    @property
    def name(self) -> str:
        """Its name in the catalogue, or its path."""

    @property
    def path(self) -> Path | None:
        """Where it is."""

    @property
    def target(self) -> Path | None:
        """Where kt-tui makes it, if it does."""

    @property
    def state(self) -> str:
        """``known complete incomplete offline wrong downloading``."""

    @property
    def problems(self) -> Sequence[str]:
        """What is wrong with it."""

    @property
    def preparable(self) -> bool:
        """Whether kt-tui can make it."""

    @property
    def served_name(self) -> str:
        """Name for clients."""

    @property
    def defaults(self) -> Mapping[str, object]:
        """Its own launch parameters."""


class SavedLaunch(Protocol):
    """What planning asks of a profile (`kt_tui.profiles.Profile` is one)."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def model(self) -> str:
        """The model that it was saved for."""

    @property
    def engine(self) -> str | None:
        """The engine that it was saved for."""

    @property
    def options(self) -> Mapping[str, object]:
        """Its launch options."""

    @property
    def extra(self) -> Sequence[str]:
        """Its options for the engine that kt-tui does not know."""
