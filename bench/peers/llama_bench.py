"""A model here and in any program that is used like llama.cpp's `llama-bench`, in turns: prompt and generation."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.peers.answering import answering
from bench.peers.environment import PeerError
from engine.errors import EngineError
from engine.gguf_header import read_gguf_header


@dataclass(frozen=True)
class ModelRow:
    """One engine's speed with one model; medians over the rounds."""

    model: str
    engine: str
    options: str
    threads: int
    prompt: int
    tokens: int
    prefill_tokens_per_s: float
    decode_tokens_per_s: float
    decode_gb_per_s: float
    """Of the weights that a token needs; 0 where that is not known."""
    limit_gb_per_s: float
    prefill_ratio: float
    """Our speed over this engine's; 1 for ourselves."""
    decode_ratio: float

    def __str__(self) -> str:
        share = f" = {self.decode_gb_per_s / self.limit_gb_per_s:.2f}" if self.decode_gb_per_s else ""
        limit = f" ({self.decode_gb_per_s:4.1f} of {self.limit_gb_per_s:4.1f} GB/s{share})" if share else ""
        beside = (
            f"   ours x {self.prefill_ratio:.2f}, x {self.decode_ratio:.2f}"
            if self.engine != "kt-tui"
            else ""
        )
        return (
            f"{self.model:22} {self.engine:34} {self.threads} threads  prefill {self.prompt}: "
            f"{self.prefill_tokens_per_s:7.1f} tok/s   decode {self.tokens}: {self.decode_tokens_per_s:6.1f} tok/s"
            f"{limit}{beside}"
        )

    def json(self) -> str:
        """One JSON object."""
        values = asdict(self).items()
        return json.dumps(
            {key: round(value, 4) if isinstance(value, float) else value for key, value in values}
        )


@dataclass(frozen=True)
class LlamaBench:
    """A program and its options."""

    program: Path
    options: tuple[str, ...] = ()

    def run(self, model: Path, threads: int, prompt: int, tokens: int) -> tuple[float, float, str]:
        """Run it once: tokens a second of prefill and of decode (0 if not asked for), and its build.

        Raises:
            PeerError: It failed, or answered what llama-bench does not.
        """
        argv = [str(self.program), "-m", str(model), "-t", str(threads), "-p", str(prompt), "-n", str(tokens)]
        argv += ["-r", "1", "-o", "json", *self.options]
        try:
            result = subprocess.run(argv, capture_output=True, text=True, errors="replace", check=False)
        except OSError as reason:
            raise PeerError(f"{self.program} cannot be run: {reason.strerror}") from None
        if result.returncode:
            said = " ".join(result.stderr.split())[-400:]
            raise PeerError(f"{self.program} failed with {model} (exit status {result.returncode}): {said}")
        return parse(result.stdout, self.program)


def parse(text: str, program: Path) -> tuple[float, float, str]:
    """Speeds and build out of llama-bench's JSON, which other lines may stand before.

    Raises:
        PeerError: There is no such JSON.
    """
    begin = 0 if text.startswith("[") else text.find("\n[") + 1
    prefill = decode = 0.0
    build = ""
    try:
        rows = json.loads(text[begin:])
        for row in rows:
            build = str(row["build_commit"])
            if row["n_prompt"]:
                prefill = float(row["avg_ts"])
            else:
                decode = float(row["avg_ts"])
    except (ValueError, KeyError, TypeError, AttributeError):
        raise PeerError(
            f"{program} did not print llama-bench's JSON (-o json), but: {text[:200]!r}"
        ) from None
    return prefill, decode, build


def touched_bytes(model: Path) -> float:
    """Bytes of weights that one token of a GGUF needs: all but the experts not chosen and the table of embeddings.

    0 for anything else, or where the file does not tell.
    """
    try:
        header = read_gguf_header(model)
    except (EngineError, OSError):
        return 0.0
    name, total = header.architecture, 0.0
    for tensor in header.tensors.values():
        if tensor.name == "token_embd.weight" and "output.weight" in header.tensors:
            continue
        share = 1.0
        if "_exps." in tensor.name:
            used, count = (
                header.metadata.get(f"{name}.expert_used_count"),
                header.metadata.get(f"{name}.expert_count"),
            )
            if not used or not count:
                return 0.0
            share = used / count
        total += tensor.nbytes * share
    return total


def compare(
    name: str,
    ours: Path,
    theirs: Path,
    peers: Sequence[LlamaBench],
    threads: int,
    prompt: int,
    tokens: int,
    rounds: int,
) -> Iterator[ModelRow]:
    """Measure in turns; a peer that fails is told on the error output and left out.

    Args:
        name: Of the model, in the rows.
        ours: What our engine loads.
        theirs: The GGUF for the peers, perhaps the same.
        peers: Programs to run.
        threads: For all.
        prompt: Tokens of the prompt.
        tokens: Tokens to generate.
        rounds: How often each is run.

    Raises:
        PeerError: Our own engine cannot run the model.
    """
    speeds: dict[str, list[tuple[float, float]]] = {"kt-tui": []}
    options = {"kt-tui": ""}
    limits = []
    argv = [
        sys.executable,
        "-m",
        "bench.peers.engine_worker",
        str(ours),
        str(threads),
        str(max(1024, prompt + 64)),
    ]
    alive = list(peers)
    with answering("kt-tui", argv) as engine:
        for _ in range(rounds):
            answer = engine.ask(prompt=prompt, tokens=tokens)
            limits.append(float(answer["limit"]) / 1e9)
            speeds["kt-tui"].append((prompt / answer["prefill"], tokens / answer["decode"]))
            for peer in tuple(alive):
                try:
                    prefill, decode, build = peer.run(theirs, threads, prompt, tokens)
                except PeerError as reason:
                    print(f"note: {reason}", file=sys.stderr)
                    alive.remove(peer)
                    continue
                label = f"{peer.program.name} {build} {' '.join(peer.options)}".strip()
                options[label] = " ".join(peer.options)
                speeds.setdefault(label, []).append((prefill, decode))
    needed = touched_bytes(theirs) if ours == theirs else 0.0
    limit = statistics.median(limits)
    medians = {
        label: tuple(statistics.median(part) for part in zip(*found, strict=True))
        for label, found in speeds.items()
    }
    mine = medians["kt-tui"]
    for label, (prefill, decode) in medians.items():
        yield ModelRow(
            name,
            label,
            options[label],
            threads,
            prompt,
            tokens,
            prefill,
            decode,
            decode * needed / 1e9,
            limit,
            mine[0] / prefill,
            mine[1] / decode,
        )
