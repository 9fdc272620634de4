"""``kt-tui profile``: list, show, save, apply, delete, export, import."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from pathlib import Path

from kt_tui.cli import profile_import
from kt_tui.cli.actions import Actions, print_json, run_action
from kt_tui.cli.here import conditions_here
from kt_tui.cli.render import Section, known, show
from kt_tui.errors import KtError, UsageError
from kt_tui.launch.options import add_launch_arguments, options_from
from kt_tui.launch.saving import compose_profile, measured_from_json
from kt_tui.paths import user_paths
from kt_tui.profiles import (
    Profile,
    delete_profile,
    export_text,
    list_profiles,
    load_profile,
    save_profile,
)
from kt_tui.text import one_line
from kt_tui.tomlfile import MAX_BYTES, read_text, reason

PASSES_UNKNOWN = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    actions = Actions(parser, default="list")
    actions.add("list", "all saved launches")
    actions.add("show", "one saved launch").add_argument("name", metavar="NAME")
    save = actions.add("save", "save a launch under a name; unknown options are kept for the engine")
    save.add_argument("name", metavar="NAME")
    save.add_argument("model", metavar="MODEL", nargs="?", help="model; default: that of --profile")
    save.add_argument("--note", help="your own words about it")
    save.add_argument(
        "--measured",
        metavar="FILE",
        help="keep what was measured with it: what `kt-tui chat --once TEXT --json` printed; - reads standard input",
    )
    add_launch_arguments(save)
    actions.add("apply", "print the command that starts a saved launch").add_argument("name", metavar="NAME")
    actions.add("delete", "remove a saved launch").add_argument("name", metavar="NAME")
    export = actions.add("export", "write a saved launch as one TOML file for someone else, without secrets")
    export.add_argument("name", metavar="NAME")
    export.add_argument("file", metavar="FILE", nargs="?", help="file to write; default: standard output")
    export.add_argument("--force", action="store_true", help="replace the file")
    profile_import.add_arguments(
        actions.add("import", "save a launch from a file, or take over what the kt command line keeps")
    )


def run(arguments: argparse.Namespace) -> int:
    """Run one action; 1 when a problem was found."""
    if arguments.unknown and arguments.action != "save":
        raise UsageError(f"unknown option {arguments.unknown[0]}; kt-tui profile --help lists what there is")
    actions = {
        "list": _list,
        "show": _show,
        "save": _save,
        "apply": _apply,
        "delete": _delete,
        "export": _export,
        "import": profile_import.run,
    }
    return run_action(arguments, actions, "list")


def _list(arguments: argparse.Namespace) -> int:
    found = list_profiles(user_paths(os.environ))
    if arguments.json:
        print_json(
            {"profiles": [profile.to_json() for profile in found.profiles], "notes": list(found.notes)}
        )
        return 0
    width = max((len(profile.name) for profile in found.profiles), default=0)
    for profile in found.profiles:
        print(f"{profile.name:<{width}}  {one_line(profile.model)}  {one_line(_options(profile))}".rstrip())
    if not found.profiles:
        print(
            "no launch is saved yet; kt-tui profile save NAME MODEL [launch options] saves one",
            file=sys.stderr,
        )
    for note in found.notes:
        print(f"kt-tui: {one_line(note, 400)}", file=sys.stderr)
    return 0


def _show(arguments: argparse.Namespace) -> int:
    from kt_tui.launch.conditions import condition_warnings, measured_text

    paths = user_paths(os.environ)
    profile = load_profile(paths, arguments.name)
    document = profile.to_json()
    warnings = (
        condition_warnings(profile, conditions_here(profile.model, paths)) if profile.conditions else ()
    )
    if arguments.json:
        print_json({**document, "warnings": list(warnings)})
        return 0
    rows = [
        ("model", profile.model),
        ("engine", known(profile.engine)),
        ("saved", known(document["created"])),
        *([("note", profile.note)] if profile.note else []),
        *[(f"--{name}", str(value)) for name, value in document["options"].items()],
        *([("for the engine", shlex.join(document["extra"]))] if profile.extra else []),
    ]
    machine = profile.conditions.machine
    made_on = [("processor", str(machine["cpu"]))] if "cpu" in machine else []
    made_on += [("GPUs", str(machine["gpus"]))] if "gpus" in machine else []
    made_on += [("hardware", profile.conditions.hardware)] if profile.conditions.hardware else []
    made_on += [("model files", profile.conditions.model)] if profile.conditions.model else []
    show(
        [
            Section(profile.name, rows),
            Section("Measured", list(measured_text(profile.measured).items())),
            Section("Made on", made_on),
            Section("Warnings", [("", text) for text in warnings], style="yellow"),
        ]
    )
    for note in profile.notes:
        print(f"kt-tui: {one_line(note, 400)}", file=sys.stderr)
    return 0


def _save(arguments: argparse.Namespace) -> int:
    paths = user_paths(os.environ)
    base = load_profile(paths, arguments.profile) if arguments.profile else None
    model = arguments.model or (base.model if base else None)
    if not model:
        raise UsageError("a saved launch needs a model: kt-tui profile save NAME MODEL [launch options]")
    if _absolute_path(model) == model and not Path(model).is_absolute():
        from kt_tui.catalog import find_model
        from kt_tui.config import load_config

        # A mistyped name would be noticed at the launch only, long after its options were thought out.
        find_model(model, paths, load_config(paths, os.environ))
    model = _absolute_path(model)
    profile = compose_profile(
        arguments.name,
        model,
        engine=arguments.engine,
        options=options_from(arguments),
        extra=tuple(arguments.unknown),
        base=base,
        note=arguments.note,
        measured=measured_from_json(_document(arguments.measured)) if arguments.measured else None,
        conditions=conditions_here(model, paths),
    )
    path = save_profile(paths, profile, overwrite=arguments.force)
    return _saved(arguments, profile, path)


def _document(name: str) -> str:
    text = sys.stdin.read(MAX_BYTES) if name == "-" else read_text(Path(name))
    if text is None:
        raise KtError(f"there is no file {name}")
    return text


def _apply(arguments: argparse.Namespace) -> int:
    profile = load_profile(user_paths(os.environ), arguments.name)
    command = ["kt-tui", *profile.run_arguments()]
    if arguments.json:
        print_json({"name": profile.name, "command": command})
    else:
        print(shlex.join(command))
    return 0


def _delete(arguments: argparse.Namespace) -> int:
    delete_profile(user_paths(os.environ), arguments.name)
    if arguments.json:
        print_json({"name": arguments.name, "deleted": True})
    else:
        print(f"{arguments.name}: deleted")
    return 0


def _export(arguments: argparse.Namespace) -> int:
    text = export_text(load_profile(user_paths(os.environ), arguments.name))
    if arguments.file:
        path = Path(arguments.file)
        try:
            with path.open("w" if arguments.force else "x", encoding="utf-8") as file:
                file.write(text)
        except FileExistsError:
            raise KtError(f"{path} is there already; name another file, or --force") from None
        except OSError as error:
            raise KtError(f"cannot write {path}: {reason(error)}") from error
    if arguments.json:
        print_json({"name": arguments.name, "toml": text, "path": arguments.file})
    elif arguments.file:
        print(
            f"{arguments.name}: written to {arguments.file}; "
            f"kt-tui profile import {shlex.quote(arguments.file)} saves it"
        )
    else:
        print(text, end="")
    return 0


def _saved(arguments: argparse.Namespace, profile: Profile, path: Path) -> int:
    if arguments.json:
        print_json({"name": profile.name, "path": str(path)})
    else:
        print(f"{profile.name}: saved; {shlex.join(['kt-tui', *profile.run_arguments()])} starts it")
    return 0


def _options(profile: Profile) -> str:
    return " ".join(f"--{name} {value}" for name, value in profile.to_json()["options"].items())


def _absolute_path(model: str) -> str:
    """A model given by a path is kept by its full path; a name stays a name."""
    return str(Path(model).expanduser().absolute()) if "/" in model or model.startswith("~") else model
