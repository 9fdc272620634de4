"""Port, disks and terminal."""

from __future__ import annotations

from collections.abc import Mapping

from kt_tui.hardware.checks.verdict import GIB, Check, Context, error, gib, ok, skipped, warning
from kt_tui.hardware.disks import NETWORK
from kt_tui.hardware.machine import Machine
from kt_tui.net import bind_problem, free_port

LITTLE_SPACE = 20 * GIB
NO_SPACE = GIB
COLUMNS, LINES = 80, 24


def check_system(machine: Machine, context: Context) -> list[Check]:
    """All of them."""
    return [_port(context), *_disks(machine, context), _terminal(context)]


def _port(context: Context) -> Check:
    if not context.here:
        return skipped("port", "a captured machine's ports are not known")
    if context.running is not None:
        return ok("port", f"{context.host}:{context.port} is held by our own engine with {context.running}")
    problem = bind_problem(context.host, context.port)
    if problem is None:
        return ok("port", f"{context.host}:{context.port} is free")
    free = free_port(context.host, context.port + 1) if context.port < 65535 else None
    fix = f"kt-tui config set server.port {free}" if free else "kt-tui config set server.host 127.0.0.1"
    return warning("port", problem, fix)


def _disks(machine: Machine, context: Context) -> list[Check]:
    if not context.here or not machine.disks:
        return [skipped("disk", "no disk is known")]
    found = []
    for disk in machine.disks:
        if disk.free is None or disk.total is None:
            found.append(skipped("disk", f"{disk.path}: not known"))
            continue
        facts = (
            f"{disk.path}: {gib(disk.free)} free of {gib(disk.total)}, {disk.filesystem or 'file system n/a'}"
        )
        if disk.free < NO_SPACE:
            found.append(error("disk", f"{facts}: full", f"free space in {disk.mount or disk.path}"))
        elif disk.free < LITTLE_SPACE:
            found.append(
                warning(
                    "disk", f"{facts}: little for models", "kt-tui config set paths.models a folder elsewhere"
                )
            )
        elif disk.filesystem in NETWORK:
            found.append(
                warning(
                    "disk",
                    f"{facts}: read over the network, so loading is slow",
                    "copy models to a local disk",
                )
            )
        else:
            found.append(ok("disk", facts))
    return found


def _utf8(environ: Mapping[str, str]) -> bool:
    locale = next((environ[name] for name in ("LC_ALL", "LC_CTYPE", "LANG") if environ.get(name)), "")
    return "utf-8" in locale.lower() or "utf8" in locale.lower() or locale in {"", "C", "POSIX"}


def _colours(environ: Mapping[str, str]) -> str:
    if environ.get("NO_COLOR"):
        return "no colours, as NO_COLOR asks"
    if environ.get("COLORTERM", "").lower() in {"truecolor", "24bit"}:
        return "16 million colours"
    return "256 colours" if "256" in environ.get("TERM", "") else "few colours"


def _terminal(context: Context) -> Check:
    environ = context.environ
    if not context.here or context.terminal is None:
        return skipped(
            "terminal", "the output is no terminal" if context.here else "a captured machine's is not known"
        )
    if not _utf8(environ):
        told = "the locale is not UTF-8, so graphs and frames look wrong"
        return warning("terminal", told, "export LC_ALL=C.UTF-8")
    if environ.get("TERM") in {None, "", "dumb"}:
        return warning(
            "terminal", f"TERM is {environ.get('TERM') or 'not set'}", "export TERM=xterm-256color"
        )
    columns, lines = context.terminal
    facts = f"{columns}x{lines}, {_colours(environ)}, UTF-8"
    if columns < COLUMNS or lines < LINES:
        return warning(
            "terminal", f"{facts}: smaller than the panel's {COLUMNS}x{LINES}", "make the window larger"
        )
    if _colours(environ) == "few colours":
        return warning(
            "terminal", facts, "export TERM=xterm-256color COLORTERM=truecolor, if the terminal can"
        )
    return ok("terminal", facts)
