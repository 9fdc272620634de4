"""What a saved launch is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from kt_tui.errors import KtError
from kt_tui.secret import MASK, is_secret, masked_arguments

ENGINES = ("embedded", "sglang")


class ProfileError(KtError):
    """A profile that is not there, cannot be read or cannot be written."""


class UnknownProfile(ProfileError):
    """No profile of that name, as no model of a name (exit code 2)."""

    exit_code = 2


@dataclass(frozen=True)
class Conditions:
    """On what a launch was saved and measured; elsewhere its values may be wrong.

    Attributes:
        hardware: Fingerprint of the machine; empty when it is not known.
        machine: The facts that went into the fingerprint, by name, so that a difference can be told.
        model: Hash of the checkpoint; empty when it is not known.
    """

    hardware: str = ""
    machine: Mapping[str, object] = field(default_factory=dict)
    model: str = ""

    def __bool__(self) -> bool:
        return bool(self.hardware or self.model)


@dataclass(frozen=True)
class Profile:
    """A launch to come back to.

    Attributes:
        name: File name without ``.toml``.
        model: Model name or path.
        engine: ``embedded`` or ``sglang``; None leaves the choice open.
        options: Launch option (long name without dashes) -> value, only those that the user set.
        created: When it was saved (UTC).
        note: The user's own words.
        measured: Figures of a launch that worked, by name with the unit (``tokens_per_s``, ``ttft_s``,
            ``peak_memory_bytes``), and ``at``, when that was (ISO 8601); empty when there are none.
        extra: Options for the engine that kt-tui does not know, as typed.
        conditions: On which machine and checkpoint it was saved.
        notes: What was changed or left out when its file was read; never saved.
    """

    name: str
    model: str
    engine: str | None = None
    options: Mapping[str, object] = field(default_factory=dict)
    created: datetime | None = None
    note: str = ""
    measured: Mapping[str, object] = field(default_factory=dict)
    extra: tuple[str, ...] = ()
    conditions: Conditions = Conditions()
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The profile as the ``profile`` command prints it; secrets masked."""
        return {
            "name": self.name,
            "model": self.model,
            "engine": self.engine,
            "options": {name: MASK if is_secret(name) else value for name, value in self.options.items()},
            "created": self.created.isoformat() if self.created else None,
            "note": self.note,
            "measured": dict(self.measured),
            "extra": masked_arguments(self.extra),
            "conditions": {
                "hardware": self.conditions.hardware or None,
                "machine": dict(self.conditions.machine),
                "model": self.conditions.model or None,
            },
            "notes": list(self.notes),
        }

    def run_arguments(self) -> list[str]:
        """The arguments after ``kt-tui`` that launch it."""
        return ["run", self.model, "--profile", self.name]
