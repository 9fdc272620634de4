import signal

import pytest

from kt_tui.supervise import evidence
from kt_tui.supervise.reasons import Ending, explain, parse_error, parse_phase
from kt_tui.text import share


def test_sigkill_is_blamed_on_memory_only_with_the_kernels_word_for_it():
    killed = Ending(-signal.SIGKILL, was_ready=True)
    assert "counted no out-of-memory kill" in explain(killed)
    group = explain(Ending(-signal.SIGKILL, was_ready=True, oom={"group": 1}, peak_rss=3 * 2**30))
    assert "memory limit was reached" in group
    assert "3.0 GiB" in group
    assert "most likely ran out of memory" in explain(
        Ending(-signal.SIGKILL, was_ready=False, oom={"machine": 2})
    )


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (signal.SIGSEGV, "SIGSEGV"),
        (signal.SIGILL, "does not know one of its instructions"),
        (signal.SIGBUS, "mapped file"),
        (signal.SIGTERM, "told to stop from outside (SIGTERM)"),
        (63, "killed by signal 63"),
        (200, "signal 200"),
    ],
)
def test_signals_are_told_in_words(number, words):
    assert words in explain(Ending(-number, was_ready=False))


def test_an_exit_without_any_output_says_so():
    assert "it wrote nothing" in explain(Ending(0, was_ready=False))


def test_phase_lines():
    line = parse_phase('kt-engine phase=weights progress=0.42 detail="model.layers.3"')
    assert (line.phase, line.progress, line.detail) == ("weights", 0.42, "model.layers.3")
    assert parse_phase("kt-engine phase=start").progress is None
    assert parse_phase("kt-engine phase=x progress=7e9").progress is None
    assert parse_phase("phase=weights") is None
    assert parse_error("[x] kt-engine error: no such file") == "no such file"


@pytest.mark.parametrize("value", [None, "x", float("nan"), float("inf"), -0.1, 1.1, [], 10**400, True])
def test_a_progress_from_outside_that_is_no_share_is_unknown(value):
    assert share(value) in (None, 1.0 if value is True else None)


def test_kill_counters_that_grew():
    assert evidence.increases({"machine": 3, "group": 1}, {"machine": 5, "group": 1}) == {"machine": 2}
    assert evidence.increases({"machine": 3}, {}) == {}
    assert evidence.increases({}, {"group": 4}) == {}
    assert all(count >= 0 for count in evidence.oom_kills().values())
