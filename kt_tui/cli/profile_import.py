"""``kt-tui profile import``: a saved launch from a file, or all that the kt command line keeps."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from kt_tui.cli.actions import print_json
from kt_tui.cli.here import conditions_here
from kt_tui.errors import KtError, UsageError
from kt_tui.paths import Paths, user_paths
from kt_tui.profiles import Profile, profile_from_toml, profile_path, save_profile
from kt_tui.text import one_line
from kt_tui.tomlfile import MAX_BYTES, read_text

KT_FOLDER = "~/.ktransformers"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the action."""
    parser.add_argument(
        "file", metavar="FILE", nargs="?", help="file of `profile export`; - reads standard input"
    )
    parser.add_argument("--name", help="name to save it under; default: the file's")
    parser.add_argument("--force", action="store_true", help="replace what is there already, unasked")
    parser.add_argument(
        "--from-kt",
        metavar="DIR",
        nargs="?",
        const=KT_FOLDER,
        help=f"take over models and saved runs of the kt command line (default: {KT_FOLDER}); its files are only read",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="with --from-kt: tell what would be taken over"
    )


def run(arguments: argparse.Namespace) -> int:
    """Import; 1 if something was left as it is, or could not be read."""
    if (arguments.file is None) == (arguments.from_kt is None):
        raise UsageError("name a FILE to import, or --from-kt for what the kt command line keeps")
    if arguments.from_kt is not None:
        if arguments.name:
            raise UsageError("--name is for one FILE; what comes from kt keeps its names")
        return _from_kt(arguments)
    if arguments.dry_run:
        raise UsageError("--dry-run goes with --from-kt")
    return _from_file(arguments)


def _from_file(arguments: argparse.Namespace) -> int:
    from_stdin = arguments.file == "-"
    path = Path("standard input" if from_stdin else arguments.file)
    name = arguments.name or (None if from_stdin else path.stem)
    if name is None:
        raise UsageError("a launch from standard input needs a name: --name NAME")
    text = _standard_input() if from_stdin else read_text(path)
    if text is None:
        raise KtError(f"there is no file {path}")
    profile = replace(profile_from_toml(name, text, path), name=name)
    paths = user_paths(os.environ)
    target = profile_path(paths, name)
    replaces = target.exists() and _may_replace(arguments, f"There is a profile {name} already")
    if target.exists() and not replaces:
        raise KtError(f"there is a profile {name!r} already; take another name (--name) or --force")
    saved = save_profile(paths, profile, overwrite=replaces)
    notes = [*profile.notes, *_foreign(profile, paths)]
    for note in notes:
        _tell(note)
    if arguments.json:
        print_json({"name": profile.name, "path": str(saved), "notes": notes})
    else:
        print(f"{profile.name}: saved; {shlex.join(['kt-tui', *profile.run_arguments()])} starts it")
    return 0


def _standard_input() -> str:
    try:
        text = sys.stdin.read(MAX_BYTES + 1)
    except UnicodeDecodeError as error:
        raise KtError(f"standard input is no text: {error.reason}") from error
    if len(text) > MAX_BYTES:
        raise KtError("standard input is too long for a saved launch")
    return text


def _foreign(profile: Profile, paths: Paths) -> list[str]:
    """What differs here for a profile that was made on another machine."""
    from kt_tui.catalog import UnknownModel, find_model
    from kt_tui.config import load_config
    from kt_tui.launch.conditions import condition_warnings

    notes = []
    try:
        find_model(profile.model, paths, load_config(paths, os.environ))
    except UnknownModel as error:
        notes.append(f"its model is not known here: {error}")
    if profile.conditions:
        notes += condition_warnings(profile, conditions_here(profile.model, paths))
    return notes


def _from_kt(arguments: argparse.Namespace) -> int:
    from kt_tui.kt_import import read_kt, take_over

    paths = user_paths(os.environ)
    folder = Path(arguments.from_kt).expanduser()
    found = read_kt(folder, paths)
    for note in found.notes:
        _tell(note)
    if arguments.dry_run:
        models, profiles = [one.name for one in found.models], [one.name for one in found.profiles]
        if arguments.json:
            print_json(
                {"folder": str(folder), "models": models, "profiles": profiles, "notes": list(found.notes)}
            )
        else:
            print(f"would take over {_listed(models, 'model')} and {_listed(profiles, 'saved launch', 'es')}")
        return 1 if found.unreadable else 0
    outcome = take_over(found, paths, lambda sentence: _may_replace(arguments, sentence))
    kept = (*outcome.kept_models, *outcome.kept_profiles)
    if arguments.json:
        print_json(
            {
                "folder": str(folder),
                "models": {"saved": list(outcome.saved_models), "kept": list(outcome.kept_models)},
                "profiles": {"saved": list(outcome.saved_profiles), "kept": list(outcome.kept_profiles)},
                "notes": list(found.notes),
            }
        )
    else:
        saved = _listed(outcome.saved_models, "model")
        print(f"took over {saved} and {_listed(outcome.saved_profiles, 'saved launch', 'es')}")
    if kept:
        _tell(f"left as they are here: {', '.join(kept)}; --force replaces them")
    return 1 if kept or found.unreadable else 0


def _may_replace(arguments: argparse.Namespace, sentence: str) -> bool:
    """Asks at a terminal; --force is a yes, and a script without it a no."""
    if arguments.force:
        return True
    if arguments.json or arguments.file == "-" or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    print(f"{sentence}. Replace it? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def _listed(names: Sequence[str], word: str, plural: str = "s") -> str:
    return f"{len(names)} {word}{'' if len(names) == 1 else plural}" + (
        f" ({', '.join(names)})" if names else ""
    )


def _tell(text: str) -> None:
    print(f"kt-tui: {one_line(text, 600)}", file=sys.stderr)
