"""``kt-tui`` and ``kt-tui MODEL``: opens the full screen where there is one."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import TextIO

from kt_tui.errors import KtError, UsageError
from kt_tui.services import LaunchRequest, build_services

_INSTEAD = "use `kt-tui run MODEL` to start an engine and `kt-tui chat` to talk to it"


def terminal_problem(stdin: TextIO, stdout: TextIO, stderr: TextIO, environ: Mapping[str, str]) -> str | None:
    """Why the full screen cannot be shown, in one sentence; None if it can. Textual draws on standard error."""
    for which, stream in (("input", stdin), ("output", stdout), ("error", stderr)):
        if not stream.isatty():
            return f"the full screen needs a terminal, and standard {which} is none; {_INSTEAD}"
    if environ.get("TERM") == "dumb":
        return f"this terminal cannot place text on the screen (TERM=dumb); {_INSTEAD}"
    return None


def opening_request(model: str, extra: Sequence[str]) -> LaunchRequest:
    """The launch that ``kt-tui MODEL OPTIONS`` names; options that are not ours go to the engine.

    Raises:
        UsageError: A launch option has a bad value.
    """
    if not extra:
        return LaunchRequest(model)
    import argparse

    from kt_tui.launch import add_launch_arguments, options_from

    class Parser(argparse.ArgumentParser):
        def error(self, message: str) -> None:  # type: ignore[override]
            raise UsageError(f"{message}; see `kt-tui plan --help`")

    parser = Parser(prog="kt-tui MODEL", add_help=False)
    add_launch_arguments(parser)
    arguments, unknown = parser.parse_known_args(list(extra))
    return LaunchRequest(
        model, options_from(arguments), tuple(unknown), profile=arguments.profile, engine=arguments.engine
    )


def open_panel(model: str | None, extra: Sequence[str]) -> int:
    """Show the panel until the user leaves it; gives the exit code.

    Args:
        model: Opens the launch form of this model; None opens Home.
        extra: Launch options for that form.

    Raises:
        UsageError: No terminal, an unknown model, or a bad launch option.
    """
    if problem := terminal_problem(sys.stdin, sys.stdout, sys.stderr, os.environ):
        raise UsageError(problem)
    services = build_services(os.environ)
    opening = None
    if model is not None:
        services.find_model(model)  # a typo is told on the command line, not on a full screen
        opening = opening_request(model, extra)

    from kt_tui.ui.app import KtApp

    app = KtApp(services, opening)
    try:
        app.run()
    except KtError as error:
        print(f"kt-tui: {error}", file=sys.stderr)  # noqa: T201
        return error.exit_code
    if app.last_words is not None:
        print(app.last_words, file=sys.stderr)  # noqa: T201
    return app.return_code or 0
