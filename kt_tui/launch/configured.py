"""The launch options of ``config.toml`` against the parameter table, which the configuration itself does not know."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from kt_tui.config import Config
from kt_tui.errors import UsageError
from kt_tui.launch.schema import SCHEMA, Parameter
from kt_tui.tomlfile import locate, read_text


def check_option(name: str, value: object) -> None:
    """Whether ``launch.NAME`` can have a value, as typed or as a TOML file has it.

    Raises:
        UsageError: No launch option has that name, another setting sets it, or the value is none for it.
    """
    key = f"launch.{name}"
    parameter = _by_config_key().get(key)
    if parameter is None:
        raise UsageError(_no_such(name))
    try:
        read = parameter.read(value)
    except ValueError as error:
        raise UsageError(f"{key}: {error}") from error
    if problem := parameter.range_problem(read):
        raise UsageError(problem)


def launch_notes(config: Config) -> list[str]:
    """What is wrong with the ``launch.*`` keys of the user's file, one sentence each, with line and column."""
    notes = []
    text: str | None = None
    for name, value in config.launch_options().items():
        try:
            check_option(name, value)
        except UsageError as error:
            text = text if text is not None else read_text(config.path) or ""
            place = locate(text, ("launch", name))
            notes.append(
                f"{config.path}:{place[0]}:{place[1]}: {error}" if place else f"{config.path}: {error}"
            )
    return notes


def _by_config_key() -> Mapping[str, Parameter]:
    return {parameter.config_key: parameter for parameter in SCHEMA}


def _no_such(name: str) -> str:
    own = {parameter.name: parameter.config_key for parameter in SCHEMA}
    if name in own:
        return f"--{name} is set by {own[name]}, not by launch.{name}"
    aliases = {alias.lstrip("-"): parameter for parameter in SCHEMA for alias in parameter.aliases}
    if name in aliases:
        return f"--{name} is set by {aliases[name].config_key}, not by launch.{name}"
    near = difflib.get_close_matches(f"launch.{name}", _by_config_key(), n=1)
    return f"there is no launch option --{name}" + (f"; did you mean {near[0]}?" if near else "")
