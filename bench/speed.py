"""The engine's decode and prefill speed through its HTTP server, beside llama.cpp's in the same run.

usage: python -m bench.speed [--gguf PATH ...] [--threads N] [--prompt 512] [--tokens 128] [--repeats 3] [--json]

The dense model is the same GGUF on both sides. The MoE demo is FP8 here and Q8_0 there: the peer has no FP8, and
8.25 against 8.5 bits a weight is as near as its formats come. Engines are measured in turns, never at once. With
--gguf these files are measured instead, the same on both sides. `python -m bench.peers` measures without servers.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import httpx
import psutil

from bench.peers.environment import peer_python

WORDS = [
    "river",
    "stone",
    "cloud",
    "engine",
    "paper",
    "winter",
    "orange",
    "signal",
    "window",
    "garden",
    "copper",
    "planet",
    "silver",
    "number",
    "letter",
]


@dataclass(frozen=True)
class Speed:
    """Medians over the repeats."""

    prefill_tokens_per_s: float
    decode_tokens_per_s: float
    prompt_tokens: int


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def serving(argv: list[str], port: int) -> Iterator[str]:
    """Run a server until its health says ready; end it afterwards."""
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(argv, stdout=log, stderr=subprocess.STDOUT)
        base = f"http://127.0.0.1:{port}"
        try:
            for _ in range(600):
                try:
                    if httpx.get(base + "/health", timeout=5).status_code == 200:
                        break
                except httpx.HTTPError:
                    pass
                if process.poll() is not None:
                    break
                time.sleep(0.2)
            else:
                process.kill()
            if process.poll() is not None:
                log.seek(0)
                raise SystemExit(f"{argv[:4]} did not start:\n{log.read()[-2000:].decode(errors='replace')}")
            yield base
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


def stream(base: str, model: str, prompt: str, tokens: int) -> tuple[float, float, int, int]:
    """One request: (seconds to the first token, seconds after it, prompt tokens, output tokens)."""
    body = {
        "model": model,
        "prompt": prompt,
        "max_tokens": tokens,
        "temperature": 0,
        "stream": True,
        "ignore_eos": True,
        "stream_options": {"include_usage": True},
    }
    start = time.perf_counter()
    first = last = None
    usage: dict[str, int] = {}
    with httpx.stream("POST", base + "/v1/completions", json=body, timeout=600) as response:
        response.raise_for_status()
        for line in response.iter_lines():
            if not line.startswith("data: ") or line == "data: [DONE]":
                continue
            event = json.loads(line[6:])
            usage = event.get("usage") or usage
            if event.get("choices"):
                last = time.perf_counter()
                first = first or last
    assert first is not None
    assert last is not None
    return first - start, last - first, usage["prompt_tokens"], usage["completion_tokens"]


def measure(base: str, prompt_tokens: int, tokens: int, repeats: int) -> Speed:
    """Prefill from the time to the first token of long prompts, decode from the time after it."""
    dice = random.Random(7)
    prefill, decode, seen = [], [], 0
    model = httpx.get(base + "/v1/models", timeout=30).json()["data"][0]["id"]
    for repeat in range(repeats + 1):  # the first warms up
        prompt = " ".join(dice.choices(WORDS, k=prompt_tokens))  # fresh, so that no prefix cache helps
        first_s, _, seen, _ = stream(base, model, prompt, 1)
        _, rest_s, _, made = stream(base, model, " ".join(dice.choices(WORDS, k=16)), tokens)
        if repeat:
            prefill.append(seen / first_s)
            decode.append((made - 1) / rest_s)
    return Speed(statistics.median(prefill), statistics.median(decode), seen)


def ours(model: Path, threads: int, arguments: argparse.Namespace) -> Speed:
    port = free_port()
    argv = [sys.executable, "-m", "engine", "serve", "--model", str(model), "--port", str(port)]
    argv += ["--cpu-threads", str(threads), "--max-total-tokens", "4096"]
    with serving(argv, port) as base:
        return measure(base, arguments.prompt, arguments.tokens, arguments.repeats)


def llama_cpp(gguf: Path, threads: int, arguments: argparse.Namespace) -> Speed:
    port = free_port()
    script = Path(__file__).parent / "peers" / "llama_cpp_server.py"
    argv = [
        str(peer_python("llama-cpp", "xllamacpp")),
        str(script),
        str(gguf),
        str(port),
        str(threads),
        "4096",
        "1",
    ]
    with serving(argv, port) as base:
        return measure(base, arguments.prompt, arguments.tokens, arguments.repeats)


def models(peer: bool) -> Iterator[tuple[str, Path, Path | None]]:
    """(name, our checkpoint, the peer's GGUF) of both models."""
    from kt_tui.catalog import find_model, prepare
    from kt_tui.config import load_config
    from kt_tui.paths import user_paths

    paths = user_paths(os.environ)
    config = load_config(paths, os.environ)
    dense = prepare(find_model("smollm2", paths, config), paths)
    demo = prepare(find_model("demo", paths, config), paths)
    yield "smollm2", dense, dense if peer else None
    if not peer:
        yield "demo", demo, None
        return
    from bench.peers.moe_gguf import write

    with tempfile.TemporaryDirectory() as folder:
        converted = Path(folder) / "demo-q8_0.gguf"
        write(demo, dense, converted)
        yield "demo", demo, converted


def lines(name: str, checkpoint: Path, gguf: Path | None, arguments: argparse.Namespace) -> Iterator[str]:
    """Measure one model and tell of it, as text or JSON."""
    rows = {"kt-tui": ours(checkpoint, arguments.threads, arguments)}
    if gguf:
        rows["llama.cpp"] = llama_cpp(gguf, arguments.threads, arguments)
    for engine, speed in rows.items():
        if arguments.json:
            about = {"model": name, "engine": engine, "way": "http", "threads": arguments.threads}
            yield json.dumps(about | asdict(speed))
        else:
            yield (
                f"{name:22} {engine:10} {arguments.threads} threads  prefill ({speed.prompt_tokens} tokens) "
                f"{speed.prefill_tokens_per_s:7.0f} tok/s   decode {speed.decode_tokens_per_s:6.1f} tok/s"
            )
    if gguf and not arguments.json:
        a, b = rows["kt-tui"], rows["llama.cpp"]
        yield (
            f"{name:22} ratio to llama.cpp: prefill {a.prefill_tokens_per_s / b.prefill_tokens_per_s:.2f}, "
            f"decode {a.decode_tokens_per_s / b.decode_tokens_per_s:.2f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--threads", type=int, default=psutil.cpu_count(logical=False) or 1)
    parser.add_argument(
        "--prompt", type=int, default=512, help="words of the long prompt (about as many tokens)"
    )
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--gguf", type=Path, nargs="+", help="files to measure instead of the two models")
    parser.add_argument("--no-peer", action="store_true")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    peer = not arguments.no_peer
    given = [(path.stem, path, path if peer else None) for path in arguments.gguf or []]
    for name, checkpoint, gguf in given or models(peer):
        for line in lines(name, checkpoint, gguf, arguments):
            print(line, flush=True)


if __name__ == "__main__":
    main()
