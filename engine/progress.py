"""How loading tells where it stands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

PHASES = ("start", "checkpoint", "weights", "warmup")
"""The phases of a start, in order."""


@dataclass(frozen=True, slots=True)
class Progress:
    """One report of a running phase.

    Attributes:
        phase: One of `PHASES`.
        done: Units done; bytes in the phase ``weights``, steps elsewhere.
        total: Units in all, 0 when not known yet.
        detail: What is being worked on, for people.
    """

    phase: str
    done: int
    total: int
    detail: str = ""

    @property
    def fraction(self) -> float | None:
        """The part done, from 0 to 1, or None when the total is not known."""
        return min(1.0, self.done / self.total) if self.total > 0 else None


ProgressCallback = Callable[[Progress], None]


def ignore(_: Progress) -> None:
    """Take a report and do nothing with it."""
