"""Our engine without its server, asked as llama-bench does: random tokens, a prompt at once, then one at a time.

usage: python -m bench.peers.engine_worker MODEL THREADS CONTEXT

Answers JSON lines (see `bench.peers.answering`): `{"prompt": 512, "tokens": 128}` -> seconds of each, and the read
bandwidth measured just before with the same threads.
"""

from __future__ import annotations

import json
import random
import sys
import time
from pathlib import Path

from engine.config import EngineConfig
from engine.cpu import Team
from engine.errors import EngineError
from engine.runner import Row, Runner

STEP_TOKENS = 512
"""Most tokens of a step of a prompt, as in llama-bench (its `-ub`)."""


def timed(runner: Runner, lengths: list[int], dice: random.Random) -> float:
    """Seconds for steps of these lengths, in a conversation of its own."""
    sequence = runner.open_sequence()
    steps = [dice.choices(range(runner.vocab_size), k=length) for length in lengths]
    start = time.perf_counter()
    for number, tokens in enumerate(steps):
        last = number == len(steps) - 1
        runner.step([Row(sequence, tokens, want_logits=last or len(tokens) == 1)])
    seconds = time.perf_counter() - start
    runner.close_sequence(sequence)
    return seconds


def main() -> None:
    """Answer until the input ends."""
    model, threads, context = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    try:
        runner = Runner.load(EngineConfig(model=model, cpu_threads=threads, max_total_tokens=context))
    except EngineError as reason:
        print(json.dumps({"refused": str(reason)}), flush=True)
        return
    meter = Team(threads)
    dice = random.Random(7)
    timed(runner, [16, 1], dice)
    print(json.dumps({"isa": meter.isa}), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        prompt, tokens = asked["prompt"], asked["tokens"]
        limit = meter.read_bandwidth(1 << 28, 3)
        chunks = [min(STEP_TOKENS, prompt - done) for done in range(0, prompt, STEP_TOKENS)]
        answer = {
            "limit": limit,
            "prefill": timed(runner, chunks, dice) if prompt else 0.0,
            "decode": timed(runner, [1] * tokens, dice) if tokens else 0.0,
        }
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
