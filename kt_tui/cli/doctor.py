"""``kt-tui doctor``: what is wrong with this machine for running models, and what mends it."""

from __future__ import annotations

import argparse
import dataclasses
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kt_tui.cli.actions import print_json
from kt_tui.cli.hardware import model_folders
from kt_tui.cli.render import Section, show

if TYPE_CHECKING:
    from kt_tui.hardware.checks import Check, Context

STYLES = {"error": "bold red", "warning": "bold yellow", "ok": "bold green", "skipped": "dim"}
TITLES = {"error": "Errors", "warning": "Warnings", "ok": "In order", "skipped": "Nothing to judge"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument("--json", action="store_true", help="one JSON document on standard output")
    parser.add_argument(
        "--deep", action="store_true", help="also start what takes a minute: sglang's own --help"
    )
    parser.add_argument(
        "--python",
        type=Path,
        metavar="FILE",
        help="interpreter of the environment that has sglang-kt (default: ours)",
    )
    parser.add_argument(
        "--sysroot", type=Path, metavar="DIR", help="read DIR/proc and DIR/sys in place of /proc and /sys"
    )
    parser.add_argument(
        "--gpus", type=Path, metavar="FILE", help="read the GPUs from a JSON file in place of the driver"
    )


def run(arguments: argparse.Namespace) -> int:
    """Check, print, and say by the exit code whether anything is an error."""
    from kt_tui.hardware import read_machine
    from kt_tui.hardware.checks import Status, run_checks

    machine = read_machine(arguments.sysroot, arguments.gpus, os.environ, model_folders(os.environ))
    checks = run_checks(machine, _context(arguments))
    if arguments.json:
        print_json({"checks": [dataclasses.asdict(check) for check in checks]})
    else:
        show(sections(checks))
        print(f"\n{summary(checks)}")
    return 1 if any(check.status is Status.ERROR for check in checks) else 0


def _context(arguments: argparse.Namespace) -> Context:
    from kt_tui.config import load_config
    from kt_tui.hardware.checks import Context
    from kt_tui.paths import user_paths
    from kt_tui.supervise.records import running_engines

    paths = user_paths(os.environ)
    config = load_config(paths, os.environ)
    host, port = config.get("server.host"), config.get("server.port")
    ours = [one.model for one in running_engines(paths) if one.port == port]
    size = shutil.get_terminal_size()
    return Context(
        here=arguments.sysroot is None,
        host=host if isinstance(host, str) else "127.0.0.1",
        port=port if isinstance(port, int) else 30000,
        environ=dict(os.environ),
        python=arguments.python,
        deep=arguments.deep,
        running=ours[0] if ours else None,
        terminal=(size.columns, size.lines) if sys.stdout.isatty() else None,
    )


def sections(checks: Sequence[Check]) -> list[Section]:
    """The verdicts in words, worst first, each followed by what mends it."""
    found = []
    for status, title in TITLES.items():
        rows: list[tuple[str, str]] = []
        for check in checks:
            if check.status == status:
                rows.append((check.id, check.evidence))
                if check.fix:
                    rows.append(("", f"-> {check.fix}"))
        found.append(Section(title, rows, style=STYLES[status]))
    return found


def summary(checks: Sequence[Check]) -> str:
    """One line with the counts."""
    counts = {status: sum(check.status == status for check in checks) for status in TITLES}
    if not counts["error"] and not counts["warning"]:
        return f"Nothing to mend; {counts['ok']} checks in order."
    return f"{counts['error']} error(s), {counts['warning']} warning(s), {counts['ok']} in order."
