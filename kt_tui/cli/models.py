"""``kt-tui models``: list, show, verify, prepare."""

from __future__ import annotations

import argparse
import os
import sys

from kt_tui.catalog import ModelEntry, PrepareProgress, find_model, list_models, prepare, verify
from kt_tui.catalog.resolve import catalogue_notes
from kt_tui.cli.actions import Actions, print_json, run_action
from kt_tui.cli.render import Section, known, show, size
from kt_tui.config import load_config
from kt_tui.paths import user_paths
from kt_tui.text import one_line


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    actions = Actions(parser, default="list")
    actions.add("list", "all known models and those in the folders of paths.models")
    for name, help_line in (
        ("show", "what is known about one model"),
        ("verify", "check a model's files, by checksum where one is known"),
        ("prepare", "make a model ready to run (builds the demo model, mends a damaged one)"),
    ):
        actions.add(name, help_line).add_argument("model", metavar="MODEL", help="name, alias or path")


def run(arguments: argparse.Namespace) -> int:
    """Run one action; 1 when a problem was found."""
    return run_action(
        arguments, {"list": _list, "show": _show, "verify": _verify, "prepare": _prepare}, "list"
    )


def _list(arguments: argparse.Namespace) -> int:
    paths = user_paths(os.environ)
    config = load_config(paths, os.environ)
    models = list_models(paths, config)
    notes = [*config.notes, *catalogue_notes(paths)]
    if arguments.json:
        print_json({"models": [entry.to_json() for entry in models], "notes": notes})
        return 0
    rows = [("NAME", "STATE", "SIZE", "FORMAT", "DESCRIPTION")]
    for entry in models:
        about = entry.problems[0] if entry.problems else entry.description
        rows.append((entry.name, str(entry.state), size(entry.bytes), known(entry.format), about))
    widths = [max(len(one_line(row[column])) for row in rows) for column in range(4)]
    for row in rows:
        cells = [f"{one_line(cell):<{width}}" for cell, width in zip(row[:4], widths, strict=True)]
        print("  ".join([*cells, one_line(row[4], 160)]).rstrip())
    _tell(notes)
    return 0


def _show(arguments: argparse.Namespace) -> int:
    entry = _entry(arguments)
    if arguments.json:
        print_json(entry.to_json())
        return 0
    rows = [
        ("state", str(entry.state)),
        ("aliases", ", ".join(entry.aliases) or "none"),
        ("family", known(entry.family)),
        ("format", known(entry.format)),
        ("size", size(entry.bytes)),
        ("parameters", f"{entry.parameters / 1e9:.1f} billion" if entry.parameters else "n/a"),
        ("repository", known(entry.repo)),
        ("path", known(entry.path)),
        *[(f"largest --{name}", str(value)) for name, value in entry.limits.items()],
        *[("note", note) for note in entry.notes],
        *[("problem", problem) for problem in entry.problems],
        *[(f"--{name}", str(value)) for name, value in entry.defaults.items()],
    ]
    show([Section(one_line(f"{entry.name}: {entry.description}" if entry.description else entry.name), rows)])
    return 0


def _verify(arguments: argparse.Namespace) -> int:
    entry = _entry(arguments)
    with _Bar(quiet=arguments.json) as bar:
        problems = verify(entry, bar.update)
    if arguments.json:
        path = None if entry.path is None else str(entry.path)
        print_json({"model": entry.name, "path": path, "ok": not problems, "problems": problems})
    else:
        print(
            f"{one_line(entry.name)}: sound"
            if not problems
            else "\n".join(one_line(p, 400) for p in problems)
        )
    return 1 if problems else 0


def _prepare(arguments: argparse.Namespace) -> int:
    entry = _entry(arguments)
    with _Bar(quiet=arguments.json) as bar:
        path = prepare(entry, user_paths(os.environ), bar.update)
    if arguments.json:
        print_json({"model": entry.name, "path": str(path), "state": "complete"})
    else:
        print(one_line(str(path), 4096))
    return 0


def _entry(arguments: argparse.Namespace) -> ModelEntry:
    paths = user_paths(os.environ)
    return find_model(arguments.model, paths, load_config(paths, os.environ))


def _tell(notes: list[str]) -> None:
    for note in notes:
        print(f"kt-tui: {one_line(note, 400)}", file=sys.stderr)


class _Bar:
    """A progress bar on standard error while a model is made; nothing where that is no terminal."""

    WIDTH = 30

    def __init__(self, *, quiet: bool) -> None:
        self.active = not quiet and sys.stderr.isatty()
        self.drawn = False

    def __enter__(self) -> _Bar:
        return self

    def __exit__(self, *_: object) -> None:
        if self.drawn:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    def update(self, progress: PrepareProgress) -> None:
        """Draw one step."""
        if not self.active:
            return
        part = min(progress.done / progress.total, 1.0) if progress.total > 0 else 0.0
        filled = round(part * self.WIDTH)
        bar = "█" * filled + "░" * (self.WIDTH - filled)
        line = (
            f"\r{progress.phase:<10} {bar} {part:4.0%}  {size(progress.done)} of {size(progress.total)}\x1b[K"
        )
        print(line, end="", file=sys.stderr, flush=True)
        self.drawn = True
