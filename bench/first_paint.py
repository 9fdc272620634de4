"""The panel's start: process start to first byte and to the first painted screen, beside a minimal Textual program.

    python -m bench.first_paint [--runs N] [--json]

Both run in the same pseudo-terminal of 120x40, turn by turn, with warm file caches and bytecode: the first turn,
which makes both, is not counted.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time

from bench.terminal import Terminal, environment, program

GOAL_MS = 400


def start(command: list[str], marker: str, home: str) -> tuple[float, float, float]:
    """Milliseconds to the first byte and to the marker, and the resident memory then in MiB."""
    terminal = Terminal(command, environment(home))
    try:
        while not terminal.output:
            terminal.read(10)
        first = time.perf_counter() - terminal.started
        painted = terminal.wait_for(marker)
        memory = terminal.process.memory_info().rss / 2**20
        terminal.run(0.3)
        return first * 1000, painted * 1000, memory
    finally:
        terminal.close()


def minimal() -> None:
    """The reference: a header, a footer, one text."""
    from textual.app import App, ComposeResult
    from textual.widgets import Footer, Header, Static

    class Minimal(App[None]):
        def compose(self) -> ComposeResult:
            yield Header()
            yield Static("painted-now")
            yield Footer()

    Minimal().run()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--minimal", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.minimal:
        minimal()
        return
    programs = {
        "kt-tui": (program("kt_tui"), "Home"),
        "minimal Textual": (program("bench.first_paint", "--minimal"), "painted-now"),
    }
    found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in programs}
    with tempfile.TemporaryDirectory() as home:
        for turn in range(arguments.runs + 1):
            for name, (command, marker) in programs.items():
                figures = start(command, marker, home)
                if turn:
                    found[name].append(figures)
    names = ("first_byte_ms", "painted_ms", "rss_mib")
    rows = {
        name: dict(zip(names, map(statistics.median, zip(*runs, strict=True)), strict=True))
        for name, runs in found.items()
    }
    ratio = rows["kt-tui"]["painted_ms"] / rows["minimal Textual"]["painted_ms"]
    if arguments.json:
        print(json.dumps({"programs": rows, "ratio": ratio, "goal_ms": GOAL_MS}))
        return
    print(f"{'':<18}{'first byte':>12}{'painted':>12}{'memory':>12}")
    for name, row in rows.items():
        print(
            f"{name:<18}{row['first_byte_ms']:>9.0f} ms{row['painted_ms']:>9.0f} ms{row['rss_mib']:>8.0f} MiB"
        )
    print(f"ratio {ratio:.2f}; goal {GOAL_MS} ms warm (median of {arguments.runs} runs)")


if __name__ == "__main__":
    main()
