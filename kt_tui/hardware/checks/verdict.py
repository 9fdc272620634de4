"""One check's verdict: what was found, on what evidence, and what mends it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

GIB = 1 << 30


class Status(StrEnum):
    """How a check ended; ``skipped`` means that there is nothing to judge here."""

    ERROR = "error"
    WARNING = "warning"
    OK = "ok"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class Check:
    """A verdict.

    Attributes:
        id: Stable name.
        status: The verdict.
        evidence: What was seen; one sentence or a list of facts.
        fix: The exact command or step that mends it; empty when nothing needs mending.
    """

    id: str
    status: Status
    evidence: str
    fix: str = ""


@dataclass(frozen=True)
class Context:
    """What the checks know beside the machine.

    Attributes:
        here: Whether the machine is the one we run on, so that its software, port and terminal can be looked at.
        host: Address that an engine would listen on.
        port: Port that an engine would listen on.
        environ: Environment of the program.
        python: Interpreter with sglang in it.
        deep: Whether checks that take many seconds run too.
        terminal: Columns and lines; None when the output is no terminal.
        running: Model of our own engine that holds the port; None if none does.
    """

    here: bool = True
    host: str = "127.0.0.1"
    port: int = 30000
    environ: Mapping[str, str] = field(default_factory=dict)
    python: Path | None = None
    deep: bool = False
    terminal: tuple[int, int] | None = None
    running: str | None = None


def ok(name: str, evidence: str) -> Check:
    """All is well."""
    return Check(name, Status.OK, evidence)


def warning(name: str, evidence: str, fix: str) -> Check:
    """It works, but worse than it could."""
    return Check(name, Status.WARNING, evidence, fix)


def error(name: str, evidence: str, fix: str) -> Check:
    """It does not work."""
    return Check(name, Status.ERROR, evidence, fix)


def skipped(name: str, evidence: str, fix: str = "") -> Check:
    """There is nothing to judge."""
    return Check(name, Status.SKIPPED, evidence, fix)


def gib(count: int) -> str:
    """Bytes in words."""
    return f"{count / GIB:.1f} GiB" if count >= GIB // 10 else f"{count / (1 << 20):.0f} MiB"
