"""Commands of commands (``models list``), each taking ``--json`` before or after its name."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping

Action = Callable[[argparse.Namespace], int]


class Actions:
    """The second-level commands of one command.

    Args:
        parser: The command's parser.
        default: The one that a bare command means; None requires a choice.
    """

    def __init__(self, parser: argparse.ArgumentParser, default: str | None) -> None:
        parser.add_argument("--json", action="store_true", help="one JSON document on standard output")
        parser.set_defaults(action=default)
        self._subparsers = parser.add_subparsers(dest="action", metavar="ACTION", required=default is None)

    def add(self, name: str, help_line: str) -> argparse.ArgumentParser:
        """Add one; give it its arguments on the parser returned."""
        parser = self._subparsers.add_parser(
            name, help=help_line, description=help_line[0].upper() + help_line[1:] + "."
        )
        # SUPPRESS: a missing --json here must not undo one given before the name.
        parser.add_argument(
            "--json",
            action="store_true",
            default=argparse.SUPPRESS,
            help="one JSON document on standard output",
        )
        return parser


def run_action(arguments: argparse.Namespace, actions: Mapping[str, Action], default: str) -> int:
    """Run what the user chose, or ``default``."""
    return actions[arguments.action or default](arguments)


def print_json(document: object) -> None:
    """The one JSON document of a command."""
    print(json.dumps(document, ensure_ascii=False))
