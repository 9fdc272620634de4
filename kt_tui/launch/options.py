"""The launch options of the command line, made from the parameter table."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from kt_tui.launch.schema import ENGINES, SCHEMA, Kind, Parameter, Value


def add_launch_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare every launch option, ``--engine``, ``--profile`` and ``--force`` on a command's parser.

    Options may not be abbreviated, since an unknown option belongs to the engine.
    """
    parser.allow_abbrev = False
    parser.add_argument("--engine", choices=ENGINES, help="engine to launch (default: embedded)")
    parser.add_argument("--profile", metavar="NAME", help="start from a saved launch")
    parser.add_argument(
        "--force", action="store_true", help="go on in spite of predictions (memory), never of facts"
    )
    groups: dict[str, argparse._ArgumentGroup] = {}
    for parameter in SCHEMA:
        group = groups.get(parameter.group) or parser.add_argument_group(f"{parameter.group} options".lower())
        groups[parameter.group] = group
        names = [name for name in (parameter.short, f"--{parameter.name}", *parameter.aliases) if name]
        group.add_argument(
            *names,
            dest=_destination(parameter),
            type=_reader(parameter),
            metavar=_metavar(parameter),
            help=_help(parameter),
        )


def options_from(arguments: argparse.Namespace) -> dict[str, object]:
    """The launch options that the user gave, by name."""
    found = {parameter.name: getattr(arguments, _destination(parameter), None) for parameter in SCHEMA}
    return {name: value for name, value in found.items() if value is not None}


def _destination(parameter: Parameter) -> str:
    return "launch_" + parameter.name.replace("-", "_")


def _reader(parameter: Parameter) -> Callable[[str], Value]:
    def read(text: str) -> Value:
        try:
            value = parameter.read(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
        # A path counts from the folder in which it was typed, wherever the engine runs.
        return str(Path(str(value)).expanduser().absolute()) if parameter.kind is Kind.PATH else value

    return read


def _metavar(parameter: Parameter) -> str:
    if parameter.choices:
        return "|".join(parameter.choices)
    return {Kind.INTEGER: "N", Kind.PATH: "PATH", Kind.SECRET: "KEY"}.get(parameter.kind, "TEXT")


def _help(parameter: Parameter) -> str:
    default = "" if parameter.default is None else f" (default {parameter.default})"
    return (parameter.help + default).replace("%", "%%")
