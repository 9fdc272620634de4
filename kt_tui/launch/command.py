"""The command that starts an engine: what is previewed is what is run."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence

from kt_tui.launch.resolve import Resolved
from kt_tui.launch.schema import EMBEDDED, parameters_for

API_KEY_VARIABLE = "KT_ENGINE_API_KEY"


def embedded_argv(values: Mapping[str, Resolved], extra: Sequence[str]) -> tuple[str, ...]:
    """The embedded engine's argument vector: every value that is set, then the user's unknown options.

    Secrets are left out; they travel in the environment.
    """
    argv = [sys.executable, "-m", "engine", "serve"]
    for parameter in parameters_for(EMBEDDED):
        value = values[parameter.name].value
        if value is None or parameter.is_secret:
            continue
        text = str(value)
        flag = parameter.flags[EMBEDDED]
        # A value that begins with a dash would be read as an option of its own.
        argv.extend([f"{flag}={text}"] if text.startswith("-") else [flag, text])
    return (*argv, *extra)


def engine_environment(environ: Mapping[str, str], *, gpus: bool) -> dict[str, str]:
    """Variables that the engine gets on top of this process's own."""
    added = {"PYTHONSAFEPATH": "1"}  # -m must not find a package "engine" in whatever folder we are in
    if gpus and "CUDA_DEVICE_ORDER" not in environ:
        added["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"  # so that CUDA numbers GPUs as the panel and nvidia-smi do
    return added


def preview(argv: Sequence[str], env: Mapping[str, str]) -> str:
    """The command as a line for a shell."""
    return shlex.join([*(f"{name}={value}" for name, value in env.items()), *argv])
