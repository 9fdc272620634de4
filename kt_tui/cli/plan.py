"""``kt-tui plan MODEL``: a launch worked out in full; nothing is started."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from kt_tui.cli.render import Section, known, show, size
from kt_tui.errors import KtError, UsageError
from kt_tui.launch.options import add_launch_arguments, options_from
from kt_tui.launch.speed import speed_lines

if TYPE_CHECKING:
    from kt_tui.hardware import Machine
    from kt_tui.launch import DeviceMemory, LaunchPlan
    from kt_tui.paths import Paths

PASSES_UNKNOWN = True
MAXIMUM_DOCUMENT = 64 << 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    add_model_argument(parser)
    parser.add_argument("--json", action="store_true", help="one JSON document on standard output")
    parser.add_argument(
        "--machine",
        type=Path,
        metavar="FILE",
        help="plan for a machine described by `kt-tui hardware --json`",
    )
    add_launch_arguments(parser)


def add_model_argument(parser: argparse.ArgumentParser) -> None:
    """Declare MODEL, which a saved launch may stand for."""
    parser.add_argument(
        "model",
        metavar="MODEL",
        nargs="?",
        help="name of a known model, or path of a checkpoint; --profile NAME knows its own",
    )


def model_of(arguments: argparse.Namespace, paths: Paths) -> str:
    """The model that the command line names, by itself or by a saved launch.

    Raises:
        KtError: It names none, or there is no such saved launch.
    """
    from kt_tui.profiles import load_profile

    if arguments.model is not None:
        return str(arguments.model)
    if arguments.profile:
        return load_profile(paths, arguments.profile).model
    raise UsageError("name a MODEL (kt-tui models lists them), or a saved launch with --profile NAME")


def run(arguments: argparse.Namespace) -> int:
    """Print the plan; 1 if something speaks against the launch."""
    plan = make_plan(arguments)
    if arguments.json:
        print(json.dumps(plan.to_json()))
    else:
        show(sections(plan))
    return 1 if plan.blocking(force=arguments.force) else 0


def make_plan(arguments: argparse.Namespace) -> LaunchPlan:
    """The plan that the command line asks for.

    Raises:
        KtError: The model, profile or machine document is not to be found or cannot be read.
    """
    from kt_tui.catalog import find_model
    from kt_tui.config import load_config
    from kt_tui.hardware import read_machine
    from kt_tui.launch import plan_launch
    from kt_tui.launch.conditions import checkpoint_of, conditions_of, with_condition_warnings
    from kt_tui.launch.sglang_outlook import with_sglang_memory
    from kt_tui.launch.speed import with_speed
    from kt_tui.net import bind_problem
    from kt_tui.paths import user_paths
    from kt_tui.profiles import load_profile

    paths = user_paths(os.environ)
    settings = load_config(paths, os.environ)
    elsewhere = getattr(arguments, "machine", None)
    profile = load_profile(paths, arguments.profile) if arguments.profile else None
    entry = find_model(model_of(arguments, paths), paths, settings)
    machine = load_machine(elsewhere) if elsewhere else read_machine(environ=os.environ)
    plan = plan_launch(
        entry,
        machine,
        settings,
        profile,
        environ=os.environ,
        options=options_from(arguments),
        extra=arguments.unknown,
        engine=arguments.engine,
        bind_problem=None if elsewhere else bind_problem,
    )
    plan = with_sglang_memory(plan, entry, machine)
    plan = with_speed(plan, entry, machine, paths)
    if profile is None or not profile.conditions:
        return plan
    # With another model than its own, a profile's files cannot be compared.
    own = arguments.model is None or profile.model in {arguments.model, entry.name}
    return with_condition_warnings(
        plan, profile, conditions_of(machine, checkpoint_of(plan) if own else None)
    )


def load_machine(path: Path) -> Machine:
    """Read a machine document.

    Raises:
        KtError: The file cannot be read or is none.
    """
    from kt_tui.hardware import machine_from_json

    try:
        if path.stat().st_size > MAXIMUM_DOCUMENT:
            raise KtError(f"{path} is too large for a machine document")
        document = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise KtError(f"cannot read the machine document {path}: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise KtError(f"{path} is not valid JSON: {str(error)[:200]}") from None
    try:
        return machine_from_json(document)
    except KtError as error:
        raise KtError(f"{path}: {error}") from None


def sections(plan: LaunchPlan) -> list[Section]:
    """The plan in words."""
    parameters = []
    for name, resolved in plan.to_json()["parameters"].items():
        shown = "not set" if resolved["value"] is None else known(resolved["value"])
        parameters.append((name, f"{shown} ({resolved['origin']})"))
    fits = {True: "it fits", False: "it does not fit", None: "whether it fits is not known"}[plan.fits]
    memory = [row for device in (plan.memory.host, *plan.memory.gpus) for row in _device(device)]
    speed = (
        [("read a token", size(plan.speed.get("bytes_per_token")))] if "bytes_per_token" in plan.speed else []
    )
    speed += speed_lines(plan.speed)
    return [
        Section(f"{plan.model} on the {plan.engine} engine", text=plan.preview or "nothing to run"),
        Section("Parameters (where each value comes from)", parameters),
        Section(f"Memory: {fits}", memory),
        Section("Speed", [*speed, ("", str(plan.speed.get("note", "")))] if plan.speed else []),
        Section("Warnings", [("", text) for text in plan.warnings], style="yellow"),
        Section(
            "Errors", [("prediction" if e.prediction else "", e.text) for e in plan.errors], style="bold red"
        ),
    ]


def _device(device: DeviceMemory) -> list[tuple[str, str]]:
    name = "main memory" if device.index is None else f"GPU {device.index}"
    rows = [(name, f"{size(device.total)} in all, {size(device.available)} available")]
    rows.extend((f"  {part.replace('_', ' ')}", size(count)) for part, count in device.parts.items())
    if device.parts:
        rows.append(("  left", size(device.free_after)))
    return rows
