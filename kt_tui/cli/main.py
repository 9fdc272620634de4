"""``kt-tui``: picks the subcommand and imports only that one, so that each starts at once."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

from kt_tui import __version__
from kt_tui.errors import KtError

# name -> one line of help. The module kt_tui.cli.NAME has add_arguments(parser) and run(arguments) -> int.
COMMANDS = {
    "hardware": "show what this machine is and what of it may be used",
    "doctor": "check this machine and its software, with what mends each finding",
    "models": "list, inspect and prepare models",
    "plan": "work out a launch: parameters with their origin, memory, warnings",
    "run": "launch an engine in the foreground",
    "chat": "talk to a running engine or any OpenAI-compatible server",
    "profile": "saved launches: list, show, save, delete",
    "config": "show and change settings",
    "version": "print versions",
}

EXIT_OK, EXIT_PROBLEM, EXIT_USAGE = 0, 1, 2


def parser_for(command: str | None) -> argparse.ArgumentParser:
    """The argument parser; only the subparser of ``command`` is filled in."""
    parser = argparse.ArgumentParser(
        prog="kt-tui",
        description="Run a huge mixture-of-experts model on one machine. Without a command: the full screen.",
        epilog="kt-tui MODEL opens the full screen with that model's launch form.",
    )
    parser.add_argument("-V", "--version", action="version", version=f"kt-tui {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name, help_line in COMMANDS.items():
        sub = subparsers.add_parser(
            name, help=help_line, description=help_line[0].upper() + help_line[1:] + "."
        )
        if name == command:
            importlib.import_module(f"kt_tui.cli.{name}").add_arguments(sub)
    return parser


def wants_json(arguments: Sequence[str]) -> bool:
    """Whether ``--json`` is among our own options, which end at a bare ``--``."""
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "--json" in own


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 success, 1 a found problem, 2 wrong usage."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    first = arguments[0] if arguments else None
    try:
        if first is None or (first not in COMMANDS and not first.startswith("-")):
            from kt_tui.ui.launcher import open_panel

            return open_panel(model=first, extra=arguments[1:])
        parser = parser_for(first)
        command = importlib.import_module(f"kt_tui.cli.{first}") if first in COMMANDS else None
        if command is None:
            parser.parse_args(arguments)
            return EXIT_OK
        if getattr(command, "PASSES_UNKNOWN", False):
            parsed, unknown = parser.parse_known_args(arguments)
            parsed.unknown = unknown
        else:
            parsed = parser.parse_args(arguments)
        return int(command.run(parsed))
    except KtError as error:
        print(f"kt-tui: {error}", file=sys.stderr)
        if wants_json(arguments):
            import json

            # The promise of --json, one document on standard output, holds for a refusal as well.
            print(json.dumps({"errors": [str(error)]}, ensure_ascii=False))
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of our output went away (kt-tui ... | head); that is not an error of ours.
        sys.stderr.close()
        return EXIT_OK
