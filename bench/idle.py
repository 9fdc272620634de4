"""What the panel costs while nothing happens: processor share and bytes to the terminal.

    python -m bench.idle [--seconds S] [--json]

The real panel in a pseudo-terminal of 120x40, its guard process included, on Home, Monitor and Chat, at the refresh
rate of the settings (1 Hz unless changed); beside it, in the same run, a minimal Textual program.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time

import psutil

from bench.terminal import Terminal, environment, program

GOALS_CPU = {"Home": 2.0, "Monitor": 2.0, "Chat": 0.5}
GOAL_KB_PER_S = 25.0
MODES = {"Home": ("1", "Next step"), "Monitor": ("4", "Cores"), "Chat": ("5", "Nothing said yet")}
"""What is measured -> the key that opens it and what it shows."""
SETTLE_S = 3.0


def cpu_seconds(pid: int) -> float:
    """Processor time of a process and of all below it so far."""
    process = psutil.Process(pid)
    times = [one.cpu_times() for one in (process, *process.children(recursive=True))]
    return sum(one.user + one.system for one in times)


def watch(terminal: Terminal, seconds: float) -> dict[str, float]:
    """CPU percent of one core and KB/s on the terminal while the program is left alone."""
    terminal.run(SETTLE_S)
    before, began, written = cpu_seconds(terminal.pid), time.perf_counter(), len(terminal.output)
    terminal.run(seconds)
    elapsed = time.perf_counter() - began
    return {
        "cpu_percent": 100 * (cpu_seconds(terminal.pid) - before) / elapsed,
        "kb_per_s": (len(terminal.output) - written) / elapsed / 1000,
    }


def panel(home: str, seconds: float) -> dict[str, dict[str, float]]:
    """Each mode in turn, in one process."""
    terminal = Terminal(program("kt_tui"), environment(home))
    rows = {}
    try:
        terminal.wait_for("Home")
        for name, (key, shown) in MODES.items():
            start = 0 if name == "Home" else len(terminal.output)
            os.write(terminal.fd, f"\x1b{key}".encode())  # alt+digit works wherever the focus is
            terminal.wait_for(shown, start=start)
            rows[name] = watch(terminal, seconds)
    finally:
        terminal.close()
    return rows


def minimal(home: str, seconds: float) -> dict[str, float]:
    """The reference of `bench.first_paint`: a header, a footer, one text."""
    terminal = Terminal(program("bench.first_paint", "--minimal"), environment(home))
    try:
        terminal.wait_for("painted-now")
        return watch(terminal, seconds)
    finally:
        terminal.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        rows = panel(home, arguments.seconds)
        rows["minimal Textual"] = minimal(home, arguments.seconds)
    if arguments.json:
        print(json.dumps({"programs": rows, "goals_cpu_percent": GOALS_CPU, "goal_kb_per_s": GOAL_KB_PER_S}))
        return
    print(f"{'':<18}{'CPU':>8}{'output':>13}{'goal':>9}")
    for name, row in rows.items():
        goal = f"{GOALS_CPU[name]:>7.1f} %" if name in GOALS_CPU else ""
        print(f"{name:<18}{row['cpu_percent']:>6.2f} %{row['kb_per_s']:>8.2f} KB/s{goal}")
    print(f"{arguments.seconds:g} s each; goal for the output {GOAL_KB_PER_S:g} KB/s")


if __name__ == "__main__":
    main()
