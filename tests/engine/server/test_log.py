"""Log lines stay lines, whatever is in them."""

from __future__ import annotations

import io
import json
import re

from engine.progress import Progress
from engine.server.log import Log


def written(*args: object, level: str = "info", **values: object) -> str:
    stream = io.StringIO()
    Log(level, stream).line(*args, **values)  # type: ignore[arg-type]
    return stream.getvalue()


def test_a_line() -> None:
    assert written("ready", host="127.0.0.1", port=30000, load_s=1.23456, none=None) == (
        "kt-engine ready host=127.0.0.1 port=30000 load_s=1.235\n"
    )


def test_strange_values_are_quoted_and_harmless() -> None:
    line = written(model='a "b"\n\x1b[31mred\x9b0m \u202e你好')
    assert line.count("\n") == 1
    assert not set(line[:-1]) & {"\x1b", "\x9b", "\u202e"}
    assert "你好" in line
    value = line.partition("model=")[2]
    assert json.loads(value) == 'a "b"\n\x1b[31mred\x9b0m \u202e你好'


def test_levels() -> None:
    assert written("x", "debug") == ""
    assert written("x", "error", level="error") == "kt-engine x\n"
    assert written("x", level="warning") == ""


def test_progress_is_told_at_the_start_of_a_phase_at_its_end_and_seldom_between() -> None:
    stream = io.StringIO()
    log = Log("info", stream)
    for done in range(1001):
        log.progress(Progress("weights", done, 1000, f"tensor {done}"))
    log.progress(Progress("warmup", 0, 0))
    lines = stream.getvalue().splitlines()
    assert lines[0] == 'kt-engine phase=weights progress=0.00 detail="tensor 0"'
    assert lines[-2] == 'kt-engine phase=weights progress=1.00 detail="tensor 1000"'
    assert lines[-1] == 'kt-engine phase=warmup detail=""'
    assert len(lines) < 20
    pattern = re.compile(r'kt-engine phase=(\w+)(?: progress=([\d.]+))? detail="(.*)"')
    assert all(pattern.fullmatch(line) for line in lines)


class Gone(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError(5, "Input/output error")


def test_a_terminal_that_went_away_is_no_fault() -> None:
    Log("info", Gone()).line("x")
