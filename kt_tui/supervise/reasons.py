"""Why an engine ended, in one sentence that claims no more than the evidence shows."""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field

from kt_tui.text import share

_PHASE = re.compile(
    r"kt-engine phase=(?P<phase>[\w-]+)(?: progress=(?P<progress>[\d.eE+-]+))?(?: detail=(?P<detail>.*))?"
)
_ERROR = re.compile(r"kt-engine error: (?P<message>.+)")

_SIGNALS = {
    signal.SIGSEGV: "it reached for memory that is not its own (a bug, or memory that could not be allocated)",
    signal.SIGILL: "the processor does not know one of its instructions (built for another one)",
    signal.SIGBUS: "a mapped file could not be read (a file cut short under it, a full /dev/shm, a failing disk)",
    signal.SIGABRT: "it gave up by itself (an assertion or a failed allocation)",
    signal.SIGFPE: "an arithmetic error",
}


@dataclass(frozen=True)
class PhaseLine:
    """What one ``kt-engine phase=`` line says."""

    phase: str
    progress: float | None
    detail: str


def parse_phase(line: str) -> PhaseLine | None:
    """The loading phase told by a log line, if it tells one."""
    match = _PHASE.search(line)
    if match is None:
        return None
    return PhaseLine(match["phase"], share(match["progress"]), (match["detail"] or "").strip().strip('"'))


def parse_error(line: str) -> str | None:
    """The engine's own last word (``kt-engine error: ...``), if the line is that."""
    match = _ERROR.search(line)
    return match["message"].strip() if match else None


@dataclass(frozen=True)
class Ending:
    """What is known of an engine's end.

    Attributes:
        exit_code: Negative for a signal, as in subprocess.
        was_ready: It had been answering.
        error: Its own error line, if it wrote one.
        last_line: The last thing that it wrote at all.
        oom: Out-of-memory kills that the kernel counted since the start (`evidence.increases`).
        peak_rss: The most memory that it had, in bytes; 0 if unknown.
    """

    exit_code: int
    was_ready: bool
    error: str = ""
    last_line: str = ""
    oom: Mapping[str, int] = field(default_factory=dict)
    peak_rss: int = 0


def explain(ending: Ending) -> str:
    """The reason for an end that nobody asked for."""
    when = "while it was ready" if ending.was_ready else "before it was ready"
    if ending.exit_code < 0:
        return f"The engine ended {when}: {_signal_words(ending)}{_said(ending)}"
    if ending.error:
        return f"The engine ended {when}: {ending.error}"
    return f"The engine ended {when} with exit code {ending.exit_code}{_said(ending)}"


def _said(ending: Ending) -> str:
    words = ending.error or ending.last_line
    if not words:
        return "; it wrote nothing"
    return f"; its last line was: {words[:300]}"


def _signal_words(ending: Ending) -> str:
    number = -ending.exit_code
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    if number == signal.SIGKILL:
        return _kill_words(ending)
    if number in {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}:
        return f"it was told to stop from outside ({name})"
    meaning = _SIGNALS.get(signal.Signals(number)) if name.startswith("SIG") else None
    return f"killed by {name}" + (f": {meaning}" if meaning else "")


def _kill_words(ending: Ending) -> str:
    peak = f"; it had used up to {ending.peak_rss / 2**30:.1f} GiB" if ending.peak_rss >= 2**30 else ""
    if ending.oom.get("group"):
        return (
            "killed by SIGKILL, and the kernel counted an out-of-memory kill in this control group: its memory limit "
            f"was reached{peak}; use fewer resident experts or tokens, or raise the limit"
        )
    if ending.oom.get("machine"):
        return (
            "killed by SIGKILL, and the kernel counted an out-of-memory kill on this machine during the run: it most "
            f"likely ran out of memory{peak}; choose a smaller model, fewer tokens, or close other programs"
        )
    return f"killed by SIGKILL from outside (the kernel counted no out-of-memory kill){peak}"
