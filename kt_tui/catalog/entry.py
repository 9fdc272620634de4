"""What the catalogue says about one model, and the errors it raises."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from kt_tui.catalog.published import Published
from kt_tui.catalog.shape import ModelShape
from kt_tui.errors import KtError


class ModelState(StrEnum):
    """Where a model stands on this machine."""

    KNOWN = "known"
    """In the catalogue, not on disk."""
    COMPLETE = "complete"
    """All files are there and their sizes agree with their own headers."""
    INCOMPLETE = "incomplete"
    """Files are missing or cut short."""
    OFFLINE = "offline"
    """Registered by the user, but its path is not there now (a disk that is not mounted)."""
    WRONG = "wrong"
    """There are files, but no engine could read them."""
    DOWNLOADING = "downloading"
    """Being made or fetched right now."""


@dataclass(frozen=True)
class ModelEntry:
    """One model: known by name, found on disk, or both.

    Attributes:
        name: Canonical name, or the path itself for a model that was given by its path.
        aliases: Other names, any case.
        path: Checkpoint folder or GGUF file; None when it is not on this machine (or cannot be, yet).
        state: Where it stands.
        format: ``safetensors-fp8``, ``safetensors-bf16``, ``gguf-q4_1`` ...; None when unknown.
        bytes: Real bytes on disk of the weight files; for a model not on disk, what it will take; None when
            unknown.
        family: Architecture family as its own header names it (``minimax_m2``, ``llama``); None when unknown.
        problems: One sentence each; empty for a model without any.
        description: One line for a list.
        preparable: True when `kt_tui.catalog.prepare` can make it on this machine.
        target: Where `prepare` makes it; None for a model that is not made here.
        recipe: Version that a made model must have.
        sha256: Of a model that is one file, as published; empty when not known.
        served_name: Name under which an engine should serve it.
        defaults: The model's own launch parameters (option name without dashes -> value).
        notes: Facts for a user who is about to run it.
        repo: Its home on the model hub; empty when it has none.
        parameters: Published number of parameters; None when unknown.
        shape: Its dimensions as the catalogue knows them; None when they are not known for certain.
        formats: How ``experts`` and ``other`` weights are stored, by the names of `kt_tui.catalog.shape.BITS`.
        limits: Largest useful value of a launch option.
        published: Speeds that others measured.
    """

    name: str
    aliases: tuple[str, ...] = ()
    path: Path | None = None
    state: ModelState = ModelState.KNOWN
    format: str | None = None
    bytes: int | None = None
    family: str | None = None
    problems: tuple[str, ...] = ()
    description: str = ""
    preparable: bool = False
    target: Path | None = None
    recipe: int = 0
    sha256: str = ""
    served_name: str = ""
    defaults: Mapping[str, object] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    repo: str = ""
    parameters: int | None = None
    shape: ModelShape | None = None
    formats: Mapping[str, str] = field(default_factory=dict)
    limits: Mapping[str, int] = field(default_factory=dict)
    published: tuple[Published, ...] = ()

    @property
    def runnable(self) -> bool:
        """True when an engine can be started on it, after `prepare` where that is needed."""
        return self.state is ModelState.COMPLETE or self.preparable

    def to_json(self) -> dict[str, Any]:
        """The entry as the ``models`` command prints it."""
        return {
            "name": self.name,
            "aliases": list(self.aliases),
            "path": None if self.path is None else str(self.path),
            "state": str(self.state),
            "format": self.format,
            "bytes": self.bytes,
            "family": self.family,
            "problems": list(self.problems),
            "description": self.description,
            "preparable": self.preparable,
            "defaults": dict(self.defaults),
            "notes": list(self.notes),
            "repo": self.repo or None,
            "parameters": self.parameters,
            "shape": None if self.shape is None else dataclasses.asdict(self.shape),
            "formats": dict(self.formats),
            "limits": dict(self.limits),
            "published": [row.to_json() for row in self.published],
        }


@dataclass(frozen=True)
class PrepareProgress:
    """How far the making of a model has come, in bytes.

    Attributes:
        phase: ``source``, ``weights``, ``tokenizer``, ``ready`` or ``verify``; later versions may have others.
        done: Bytes of this phase done.
        total: Bytes of this phase in all; 0 when not known.
    """

    phase: str
    done: int
    total: int


class UnknownModel(KtError):
    """No model of that name, and no checkpoint at that path."""

    exit_code = 2

    def __init__(self, message: str, near: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.near = near


class PrepareError(KtError):
    """A model could not be made."""


class PrepareCancelled(PrepareError):
    """The user stopped the making of a model; nothing half-made is left."""
