"""``kt-tui config``: show, get, set, unset, path, edit."""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
from dataclasses import replace

from kt_tui.cli.actions import Actions, print_json, run_action
from kt_tui.cli.setting_checks import checked
from kt_tui.config import Config, Setting, default_text, load_config, set_value, unset_value
from kt_tui.errors import KtError, UsageError
from kt_tui.launch.configured import launch_notes
from kt_tui.paths import Paths, user_paths
from kt_tui.secret import MASK, is_secret
from kt_tui.settings import BY_NAME, KEYS, known_key
from kt_tui.text import one_line
from kt_tui.tomlfile import edit_toml


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    width = max(len(key.name) for key in KEYS)
    listed = "\n".join(f"  {key.name:<{width}}  {key.help}" for key in KEYS)
    parser.epilog = f"settings:\n{listed}\n  {'launch.OPTION':<{width}}  A launch option for every launch."
    actions = Actions(parser, default="show")
    actions.add("show", "every setting in force, and where it comes from")
    actions.add("get", "one setting in force").add_argument("key", metavar="KEY")
    setter = actions.add("set", "change one setting in config.toml; all else in the file stays as it is")
    setter.add_argument("key", metavar="KEY")
    setter.add_argument("value", metavar="VALUE")
    actions.add("unset", "take one setting out of config.toml").add_argument("key", metavar="KEY")
    actions.add("path", "where config.toml is, or would be")
    actions.add("edit", "open config.toml in $VISUAL or $EDITOR, then check it")


def run(arguments: argparse.Namespace) -> int:
    """Run one action; 1 when a problem was found."""
    actions = {"show": _show, "get": _get, "set": _set, "unset": _unset, "path": _path, "edit": _edit}
    return run_action(arguments, actions, "show")


def _load() -> tuple[Paths, Config]:
    paths = user_paths(os.environ)
    config = load_config(paths, os.environ)
    return paths, replace(config, notes=(*config.notes, *launch_notes(config)))


def _public(key: str, setting: Setting) -> object:
    return (
        MASK if is_secret(key) else list(setting.value) if isinstance(setting.value, tuple) else setting.value
    )


def _text(value: object) -> str:
    """A value as it would be typed for ``config set``."""
    if isinstance(value, bool):
        return str(value).lower()
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _show(arguments: argparse.Namespace) -> int:
    _, config = _load()
    values = {key: (_public(key, setting), setting.origin) for key, setting in config.settings.items()}
    if arguments.json:
        rows = {key: {"value": value, "origin": origin} for key, (value, origin) in values.items()}
        print_json(
            {
                "path": str(config.path),
                "values": rows,
                "notes": list(config.notes),
                "read_only": config.read_only,
            }
        )
        return 0
    width = max(map(len, values))
    for key, (value, origin) in values.items():
        print(f"{one_line(key):<{width}}  {one_line(_text(value), 120)}  ({origin})")
    _tell(config)
    if config.read_only and not config.notes:
        print(f"kt-tui: changes cannot be saved: {one_line(config.read_only, 400)}", file=sys.stderr)
    return 0


def _get(arguments: argparse.Namespace) -> int:
    paths, config = _load()
    known_key(arguments.key)
    setting = config.settings.get(arguments.key)
    if setting is None:
        raise KtError(f"{arguments.key} is not set in {paths.config_file}")
    value = _public(arguments.key, setting)
    if arguments.json:
        print_json({"key": arguments.key, "value": value, "origin": setting.origin})
    else:
        print(_text(value))
    return 0


def _set(arguments: argparse.Namespace) -> int:
    paths = user_paths(os.environ)
    value = set_value(paths, arguments.key, checked(arguments.key, arguments.value, paths))
    config = load_config(paths, os.environ)
    public = _public(arguments.key, Setting(value, "config"))
    if arguments.json:
        print_json({"key": arguments.key, "value": public, "path": str(paths.config_file)})
    else:
        print(f"{arguments.key} = {one_line(_text(public))}")
    if config.settings[arguments.key].origin == "environment":
        variable = BY_NAME[arguments.key].environ
        print(f"kt-tui: saved, but {variable} is set and goes before it in this shell", file=sys.stderr)
    return 0


def _unset(arguments: argparse.Namespace) -> int:
    paths = user_paths(os.environ)
    removed = unset_value(paths, arguments.key)
    if arguments.json:
        print_json({"key": arguments.key, "removed": removed, "path": str(paths.config_file)})
    else:
        print(f"{arguments.key}: {'removed' if removed else 'was not set'}")
    return 0


def _path(arguments: argparse.Namespace) -> int:
    path = user_paths(os.environ).config_file
    if arguments.json:
        print_json({"path": str(path), "exists": path.exists()})
    else:
        print(path)
    return 0


def _edit(arguments: argparse.Namespace) -> int:
    paths = user_paths(os.environ)
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if not editor:
        raise UsageError(f"no editor is set; set EDITOR, or edit {paths.config_file} yourself")
    if not paths.config_file.exists():
        edit_toml(paths.config_file, lambda _document: None, template=default_text())
    try:
        command = [*shlex.split(editor), str(paths.config_file)]
        code = subprocess.run(command, check=False).returncode
    except (OSError, ValueError) as error:
        raise KtError(f"cannot start the editor {editor!r}: {error}") from error
    _, config = _load()
    if arguments.json:
        print_json({"path": str(config.path), "notes": list(config.notes)})
    else:
        _tell(config)
    return 1 if code or config.notes else 0


def _tell(config: Config) -> None:
    for note in config.notes:
        print(f"kt-tui: {one_line(note, 400)}", file=sys.stderr)
