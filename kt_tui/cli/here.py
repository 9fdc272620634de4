"""What saved launches are compared with: this machine and a model's files as they are now."""

from __future__ import annotations

import os

from kt_tui.paths import Paths
from kt_tui.profiles import Conditions


def conditions_here(model: str, paths: Paths) -> Conditions:
    """This machine, and the files of a model as they are now."""
    from kt_tui.catalog import UnknownModel, find_model
    from kt_tui.config import load_config
    from kt_tui.hardware import read_machine
    from kt_tui.launch.conditions import conditions_of

    try:
        path = find_model(model, paths, load_config(paths, os.environ)).path
    except UnknownModel:
        path = None
    return conditions_of(read_machine(environ=os.environ), path)
