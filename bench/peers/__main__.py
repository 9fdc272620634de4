"""This engine beside others, in one run: layers beside kt-kernel, models beside llama.cpp and any `llama-bench`.

    python -m bench.peers [--llama-bench PATH [--llama-bench-options=OPTIONS]] [--synthetic q4_0 ...] [--json]

kt-kernel and xllamacpp (llama.cpp) are installed from the package index into environments of their own at first use.
Layers: the same weights and routes on both sides, measured in turns beside this machine's limit. Models: the dense
demo, the mixture-of-experts demo (FP8 here, Q8_0 there), files given with --gguf, and synthetic ones; through HTTP
beside llama.cpp, and without a server beside each --llama-bench, which may be given more than once.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from bench import speed
from bench.kernel_cases import SHAPES
from bench.peers import layers, llama_bench, synthetic_moe
from bench.peers.environment import PeerError
from bench.peers.llama_bench import LlamaBench

PARTS = ("layers", "server", "bench")


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    cores = psutil.cpu_count(logical=False) or 1
    parser = argparse.ArgumentParser(description="this engine beside others, in one run")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="some of the parts")
    parser.add_argument("--threads", type=int, default=cores, help="of models (default: cores)")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    layer = parser.add_argument_group("layers, beside kt-kernel")
    layer.add_argument("--shape", choices=[shape.name for shape in SHAPES], default="Qwen3-30B-A3B")
    layer.add_argument("--formats", nargs="+", choices=[*layers.ALL_FORMATS], default=layers.FORMATS)
    layer.add_argument("--lengths", type=int, nargs="+", default=[1, 256, 1024], help="tokens of a call")
    layer.add_argument(
        "--layer-threads",
        type=int,
        nargs="+",
        default=sorted({max(1, cores - 1), cores}),
        help="default: cores, and one fewer because kt-kernel's queue wants a core for itself",
    )
    layer.add_argument("--memory", type=float, default=1.0, help="GiB of weights a layer")
    layer.add_argument("--seconds", type=float, default=0.3, help="for one measurement in one round")
    model = parser.add_argument_group("models")
    model.add_argument("--gguf", type=Path, nargs="+", default=[], help="more files to measure")
    model.add_argument(
        "--synthetic", nargs="+", choices=synthetic_moe.MIXES, default=[], help="Qwen3-MoE to make"
    )
    model.add_argument("--no-demo", action="store_true", help="leave out the two models of the catalog")
    model.add_argument("--llama-bench", type=Path, action="append", default=[], metavar="PATH")
    model.add_argument(
        "--llama-bench-options", action="append", default=[], metavar="OPTIONS", help="of each, in order"
    )
    model.add_argument("--prompt", type=int, default=512)
    model.add_argument("--tokens", type=int, default=128)
    model.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args(argv)
    if len(arguments.llama_bench_options) > len(arguments.llama_bench):
        parser.error("there are more --llama-bench-options than --llama-bench")
    for path in [*arguments.llama_bench, *arguments.gguf]:
        if not path.is_file():
            parser.error(f"{path} is no file")
    return arguments


def programs(arguments: argparse.Namespace) -> list[LlamaBench]:
    """The llama-bench programs with their options."""
    options = [tuple(shlex.split(words)) for words in arguments.llama_bench_options]
    options += [()] * (len(arguments.llama_bench) - len(options))
    return [
        LlamaBench(path.resolve(), words) for path, words in zip(arguments.llama_bench, options, strict=True)
    ]


@contextmanager
def made(mix: str) -> Iterator[Path]:
    """A synthetic model, for as long as the block lasts."""
    with tempfile.TemporaryDirectory(prefix="kt-tui-") as folder:
        path = Path(folder) / f"synthetic-{mix}.gguf"
        synthetic_moe.write(path, synthetic_moe.SHAPES["qwen3-30b"], mix, synthetic_moe.demo_vocabulary())
        yield path


def models(arguments: argparse.Namespace) -> Iterator[tuple[str, Path, Path]]:
    """(name, ours, the peers') of all models, each there until the next is asked for."""
    if not arguments.no_demo:
        for name, ours, theirs in speed.models(peer=True):
            assert theirs is not None
            yield name, ours, theirs
    for path in arguments.gguf:
        yield path.stem, path, path
    for mix in arguments.synthetic:
        with made(mix) as path:
            yield path.stem, path, path


def model_lines(arguments: argparse.Namespace) -> Iterator[str]:
    """Lines of all models."""
    benches = programs(arguments) if "bench" in arguments.only else []
    if not benches and "server" not in arguments.only:
        return
    for name, ours, theirs in models(arguments):
        if "server" in arguments.only:
            try:
                yield from speed.lines(name, ours, theirs, arguments)
            except PeerError as reason:
                print(f"note: {reason}", file=sys.stderr)
        if benches:
            numbers = arguments.threads, arguments.prompt, arguments.tokens, arguments.repeats
            for row in llama_bench.compare(name, ours, theirs, benches, *numbers):
                yield row.json() if arguments.json else str(row)


def layer_lines(arguments: argparse.Namespace) -> Iterator[str]:
    """Lines of the layers."""
    shape = next(shape for shape in SHAPES if shape.name == arguments.shape)
    numbers = arguments.lengths, arguments.layer_threads, arguments.memory * 2**30, arguments.seconds
    for row in layers.compare(shape, arguments.formats, *numbers):
        yield row.json() if arguments.json else str(row)


def main(argv: list[str] | None = None) -> int:
    """Measure and print."""
    arguments = parse(argv)
    try:
        if "layers" in arguments.only:
            for line in layer_lines(arguments):
                print(line, flush=True)
        for line in model_lines(arguments):
            print(line, flush=True)
    except (PeerError, OSError, ValueError) as reason:
        print(f"error: {reason}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
