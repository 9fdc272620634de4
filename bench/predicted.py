"""Predicted speed beside measured: calibrate, plan, run the engine, and tell the error of each prediction.

usage: python -m bench.predicted [--models demo smollm2] [--rounds 3] [--tokens 96] [--save]

A machine that others use changes its speed from minute to minute, so a calibration stands before and after each run,
and their mean is what the run is compared with. With --save the figures are kept as launches of this machine, so that
plans show the error so far.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.speed import free_port, measure, serving
from kt_tui.catalog import find_model, prepare
from kt_tui.catalog.entry import ModelEntry
from kt_tui.config import load_config
from kt_tui.hardware import Machine, read_machine
from kt_tui.hardware.fingerprint import fingerprint
from kt_tui.launch import plan_launch
from kt_tui.launch.record import Measured, add_measured
from kt_tui.launch.speed import with_speed
from kt_tui.paths import Paths, user_paths
from kt_tui.tune.calibrate import calibrate

WHATS = ("decode", "prefill")


def ceilings(entry: ModelEntry, machine: Machine, paths: Paths) -> dict[str, float]:
    """Calibrate and plan: the ceiling of each figure."""
    calibrate(machine, paths)
    speed: dict[str, Any] = dict(
        with_speed(plan_launch(entry, machine, environ={}), entry, machine, paths).speed
    )
    return {what: speed[what]["ceiling_tokens_per_s"] for what in WHATS}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--models", nargs="+", default=["demo", "smollm2"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--prompt", type=int, default=2000)
    parser.add_argument("--save", action="store_true")
    arguments = parser.parse_args()
    own = user_paths(os.environ)
    machine = read_machine(environ=os.environ)
    with tempfile.TemporaryDirectory() as folder:
        paths = dataclasses.replace(own, cache=Path(folder), state=Path(folder))
        for name in arguments.models:
            entry = find_model(name, own, load_config(own, os.environ))
            checkpoint = prepare(entry, own)
            entry = find_model(name, own, load_config(own, os.environ))
            ratios: dict[str, list[float]] = {what: [] for what in WHATS}
            before = ceilings(entry, machine, paths)
            for _ in range(arguments.rounds):
                port = free_port()
                argv = [
                    sys.executable,
                    "-m",
                    "engine",
                    "serve",
                    "--model",
                    str(checkpoint),
                    "--port",
                    str(port),
                ]
                with serving(argv, port) as base:
                    speed = measure(base, arguments.prompt, arguments.tokens, 1)
                after = ceilings(entry, machine, paths)
                found = {"decode": speed.decode_tokens_per_s, "prefill": speed.prefill_tokens_per_s}
                for what in WHATS:
                    predicted = (before[what] + after[what]) / 2
                    ratios[what].append(found[what] / predicted)
                    print(
                        f"{name:10} {what:8} at most {predicted:7.1f}, measured {found[what]:7.1f} tokens/s "
                        f"({found[what] / predicted:.0%})",
                        flush=True,
                    )
                    if arguments.save:
                        mark = fingerprint(machine)
                        add_measured(
                            own,
                            Measured(name, mark, "embedded", what, found[what], predicted, time.time()),
                        )
                before = after
            for what, values in ratios.items():
                middle = statistics.median(values)
                worst = max(abs(value / middle - 1) for value in values)
                print(f"{name:10} {what:8} reaches {middle:.0%} of the ceiling, within {worst:.0%} of that")


if __name__ == "__main__":
    main()
