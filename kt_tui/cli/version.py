"""``kt-tui version``."""

from __future__ import annotations

import argparse
import json
import platform

from kt_tui import __version__


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument("--json", action="store_true", help="one JSON document on standard output")


def run(arguments: argparse.Namespace) -> int:
    """Print the versions that a bug report needs."""
    versions = {"kt_tui": __version__, "python": platform.python_version(), "platform": platform.platform()}
    if arguments.json:
        print(json.dumps(versions))
    else:
        print(f"kt-tui {__version__} (Python {versions['python']}, {versions['platform']})")
    return 0
