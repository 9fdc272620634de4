"""``kt-tui`` and ``kt-tui MODEL``: opens the full screen where there is one."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Mapping, Sequence
from typing import TextIO

from kt_tui.errors import KtError, UsageError
from kt_tui.services import ChatSession, LaunchRequest, build_services
from kt_tui.ui.guard import run_guarded

AFTER_KILL = (
    "an engine that it had started is stopped, unless it was left running; start kt-tui again to go on"
)

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
    _need_terminal()
    opening = None
    if model is not None:
        # A typo is told on the command line, not on a full screen.
        _find(model)
        opening = opening_request(model, extra)
    return run_guarded(lambda: _show(opening, None), AFTER_KILL)


def open_chat(session: ChatSession) -> int:
    """Show the panel with a chat with the server of ``session``; gives the exit code.

    Raises:
        UsageError: There is no terminal.
    """
    _need_terminal()
    return run_guarded(lambda: _show(None, session), AFTER_KILL)


def _need_terminal() -> None:
    if problem := terminal_problem(sys.stdin, sys.stdout, sys.stderr, os.environ):
        raise UsageError(problem)


def _find(model: str) -> None:
    from kt_tui.catalog import find_model
    from kt_tui.config import load_config
    from kt_tui.paths import user_paths

    paths = user_paths(os.environ)
    find_model(model, paths, load_config(paths, os.environ))


def _show(opening: LaunchRequest | None, session: ChatSession | None) -> int:
    """The panel itself, in the guarded process."""
    gc.disable()  # until the first paint: what is loaded till then stays
    from kt_tui.ui.app import KtApp

    app = KtApp(build_services(os.environ), opening, session, on_painted=_collect_garbage)
    try:
        app.run()
    except KtError as error:
        print(f"kt-tui: {error}", file=sys.stderr)  # noqa: T201
        return error.exit_code
    if app.last_words is not None:
        print(app.last_words, file=sys.stderr)  # noqa: T201
    return app.return_code or 0


def _collect_garbage() -> None:
    """From now on, and not again and again through what was loaded so far."""
    gc.freeze()
    gc.enable()
