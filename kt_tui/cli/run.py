"""``kt-tui run MODEL``: launch an engine in the foreground; Ctrl+C ends the whole tree."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TextIO

from kt_tui.cli.plan import add_model_argument, make_plan, model_of, sections
from kt_tui.cli.render import show
from kt_tui.errors import KtError
from kt_tui.launch.options import add_launch_arguments

if TYPE_CHECKING:
    from kt_tui.catalog import PrepareProgress
    from kt_tui.launch import LaunchPlan
    from kt_tui.paths import Paths
    from kt_tui.supervise import EngineStatus, LogLine, StopReport

PASSES_UNKNOWN = True
_GRACE = 10.0
_STEP = 0.1  # progress is told again after this much of it


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    add_model_argument(parser)
    parser.add_argument(
        "--dry-run", action="store_true", help="print the plan and the exact command; start nothing"
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="one JSON document on standard output: the plan (--dry-run), or at the end how it ended",
    )
    add_launch_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the plan, or run the engine until it ends or is stopped; 1 if it failed."""
    if arguments.dry_run:
        plan = make_plan(arguments)
        if arguments.json:
            print(json.dumps(plan.to_json()))
        else:
            show(sections(plan))
        return 1 if plan.blocking(force=arguments.force) else 0
    from kt_tui.paths import user_paths

    paths = user_paths(os.environ)
    _prepare(model_of(arguments, paths), paths)
    plan = make_plan(arguments)
    if problems := plan.blocking(force=arguments.force):
        way = "" if any(not p.prediction for p in problems) else " (--force launches in spite of predictions)"
        raise KtError("; ".join(problem.text for problem in problems) + way)
    for warning in plan.warnings:
        _tell(f"warning: {warning}")
    return asyncio.run(_Foreground(paths, plan, as_json=arguments.json).run())


def _tell(text: str) -> None:
    from kt_tui.text import one_line

    print(f"kt-tui: {one_line(text, 1000)}", file=sys.stderr, flush=True)


def _prepare(name: str, paths: Paths) -> None:
    """Make the model if it is one that kt-tui makes itself; Ctrl+C leaves nothing half-made."""
    from kt_tui.catalog import find_model, prepare
    from kt_tui.config import load_config

    entry = find_model(name, paths, load_config(paths, os.environ))
    if not entry.preparable:
        return
    cancel = threading.Event()
    previous = signal.signal(signal.SIGINT, lambda *_: cancel.set())
    try:
        prepare(entry, paths, _progress_teller(entry.name), cancel)
    finally:
        signal.signal(signal.SIGINT, previous)


def _progress_teller(name: str) -> Callable[[PrepareProgress], None]:
    last = ("", -1.0)

    def tell(progress: PrepareProgress) -> None:
        nonlocal last
        share = progress.done / progress.total if progress.total else 0.0
        if progress.phase != last[0] or share >= last[1] + _STEP:
            last = (progress.phase, share)
            _tell(f"preparing {name}: {progress.phase} {share:.0%}")

    return tell


class _Foreground:
    """One engine in the foreground of a terminal or a service manager."""

    def __init__(self, paths: Paths, plan: LaunchPlan, *, as_json: bool) -> None:
        from kt_tui.supervise import Supervisor

        self.plan = plan
        self.supervisor = Supervisor(paths)
        self.as_json = as_json
        # Standard output is the engine's log; with --json it is the document alone.
        self.log_out: TextIO = sys.stderr if as_json else sys.stdout
        self.ended = asyncio.Event()
        self.asked = 0
        self.told = ("", "", -1.0)

    async def run(self) -> int:
        """Start, follow, end; the exit code."""
        from kt_tui.supervise import spec_from_plan

        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._ask)
        self.supervisor.subscribe(self._status)
        self.supervisor.log.subscribe(self._lines)
        report: StopReport | None = None
        try:
            await self.supervisor.start(spec_from_plan(self.plan))
            await self.ended.wait()
            if self.asked:
                _tell("stopping the engine")
                report = await self._stop()
        finally:
            await self.supervisor.close()
        status = self.supervisor.status
        good = self.asked > 0 and report is not None and report.gone
        if self.as_json:
            print(json.dumps(_document(status, report)))
        _tell(status.reason)
        return 0 if good else 1

    def _ask(self) -> None:
        self.asked += 1
        self.ended.set()

    async def _stop(self) -> StopReport:
        # A second Ctrl+C means at once.
        stopping = asyncio.create_task(self.supervisor.stop(_GRACE))
        while not stopping.done():
            await asyncio.wait({stopping}, timeout=0.1)
            if self.asked > 1 and not stopping.done():
                return await self.supervisor.stop(grace=0.0)
        return stopping.result()

    def _status(self, status: EngineStatus) -> None:
        from kt_tui.supervise import EngineState

        if status.state is EngineState.STARTING and status.pid is None:
            return
        phase, share = status.phase, status.progress if status.progress is not None else 0.0
        if (status.state, phase) != self.told[:2] or share >= self.told[2] + _STEP:
            self.told = (status.state, phase, share)
            if status.state is EngineState.READY:
                _tell(f"ready: {status.model} answers on {status.base_url} (Ctrl+C stops it)")
            elif status.state is EngineState.LOADING and phase:
                _tell(f"loading: {phase} {share:.0%}" + (f" ({status.detail})" if status.detail else ""))
            elif status.state is EngineState.STARTING:
                _tell(f"starting: process {status.pid}, log {status.log_path}")
        if not status.state.active:
            self.ended.set()

    def _lines(self, lines: tuple[LogLine, ...]) -> None:
        try:
            for line in lines:
                self.log_out.write(line.text + "\n")
            self.log_out.flush()
        except (BrokenPipeError, ValueError):
            # Nobody reads the log any more (kt-tui run ... | head); the engine goes on.
            self.log_out = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115


def _document(status: EngineStatus, report: StopReport | None) -> dict[str, Any]:
    survivors = [] if report is None else [{"pid": s.pid, "name": s.name} for s in report.survivors]
    return {
        "model": status.model,
        "engine": status.engine,
        "state": str(status.state),
        "reason": status.reason,
        "exit_code": status.exit_code,
        "base_url": status.base_url,
        "log_path": str(status.log_path) if status.log_path else None,
        "started_at": status.started_at,
        "ready_at": status.ready_at,
        "survivors": survivors,
    }
