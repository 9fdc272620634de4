from __future__ import annotations

import pytest

from kt_tui.supervise.log import LogLine, LogRing
from kt_tui.ui.logmodel import Level, LogModel, Pattern, level_of


def lines(*texts: str, first: int = 1) -> list[LogLine]:
    return [LogLine(first + at, 0.0, text) for at, text in enumerate(texts)]


def shown(model: LogModel) -> list[str]:
    return [row.line.text for row in model.shown]


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ("INFO:     Application startup complete.", Level.INFO),
        ("[2026-11-30 10:00:00 TP0] WARNING: slow", Level.WARNING),
        ("/x/y.py:3: UserWarning: deprecated", Level.WARNING),
        ("ERROR: could not bind", Level.ERROR),
        ("torch.OutOfMemoryError: CUDA out of memory.", Level.ERROR),
        ("Traceback (most recent call last):", Level.ERROR),
        ("Illegal instruction (core dumped)", Level.ERROR),
        ("DEBUG engine: step", Level.DEBUG),
        ("0 errors, 0 warnings", Level.INFO),
        ("E0411 12:00:00.000 1 x.cc:1] boom", Level.ERROR),
        ("memory 12 GiB of 24 GiB", Level.INFO),
    ],
)
def test_levels_are_read_from_the_words_of_a_line(text: str, level: Level) -> None:
    assert level_of(text) is level


def test_a_progress_line_takes_the_place_of_the_one_before() -> None:
    ring, model = LogRing(), LogModel()
    ring.subscribe(model.extend)
    ring.feed(b"start\n")
    for percent in range(0, 101, 10):
        ring.feed(f"\rLoading {percent}%".encode())
    ring.feed(b"\ndone\n")
    assert shown(model) == ["start", "Loading 100%", "done"]


def test_the_newest_lines_are_kept_and_the_lost_ones_counted() -> None:
    model = LogModel(capacity=3)
    model.extend(lines("ERROR one", "two", "three", "four", "five"))
    assert shown(model) == ["three", "four", "five"]
    assert (len(model), model.removed, model.errors) == (3, 2, 0)


def test_filters_by_pattern_and_level() -> None:
    model = LogModel()
    model.extend(lines("load a", "WARNING load b", "ERROR other", "load c"))
    model.filter(pattern=Pattern.of("load"), only_matches=True, threshold=Level.DEBUG)
    assert shown(model) == ["load a", "WARNING load b", "load c"]
    model.filter(pattern=Pattern.of("load"), only_matches=True, threshold=Level.WARNING)
    assert shown(model) == ["WARNING load b"]
    model.extend(lines("WARNING load d", "WARNING x", first=5))
    assert shown(model) == ["WARNING load b", "WARNING load d"]
    model.filter(pattern=None, only_matches=True, threshold=Level.DEBUG)
    assert len(model.shown) == 6


def test_filtered_lines_leave_with_the_oldest() -> None:
    model = LogModel(capacity=2)
    model.filter(pattern=Pattern.of("keep"), only_matches=True, threshold=Level.DEBUG)
    model.extend(lines("keep 1", "x", "keep 2", "y"))
    assert shown(model) == ["keep 2"]


def test_patterns() -> None:
    assert Pattern.of("") is None
    regex, broken, capital = Pattern.of(r"l\d+"), Pattern.of("[/some"), Pattern.of("Load")
    assert regex
    assert broken
    assert capital
    assert regex.spans("L12 l3") == [(0, 3), (4, 6)]
    assert broken.literal
    assert broken.spans("at [/some/path]") == [(3, 9)]
    assert capital.spans("load Load") == [(5, 9)]
    empty = Pattern.of("x*")
    assert empty
    assert empty.spans("abc") == []


def test_matches_are_found_both_ways_and_around() -> None:
    model = LogModel()
    model.extend(lines("a", "hit 1", "b", "hit 2"))
    model.filter(pattern=Pattern.of("hit"), only_matches=False, threshold=Level.DEBUG)
    assert [model.next_match(0, 1), model.next_match(1, 1), model.next_match(3, 1)] == [1, 3, 1]
    assert [model.next_match(0, -1), model.next_match(3, -1)] == [3, 1]
    model.filter(pattern=None, only_matches=True, threshold=Level.DEBUG)
    assert model.next_match(0, 1) is None


def test_the_first_error_is_the_earliest() -> None:
    model = LogModel()
    assert model.first_error() is None
    model.extend(lines("fine", "ValueError: cause", "RuntimeError: consequence"))
    assert model.first_error() == 1
    model.clear()
    assert (len(model), model.errors) == (0, 0)
