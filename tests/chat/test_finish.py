import pytest

from kt_tui.chat.events import Usage
from kt_tui.chat.finish import Stopwatch, finish_note


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def timed(pieces, tokens, streamed=True):
    clock = Clock()
    watch = Stopwatch(clock)
    clock.now += 5  # settling the model does not count
    watch.restart()
    start = clock.now
    for at in pieces:
        clock.now = start + at
        watch.piece()
    clock.now = start + 10
    usage = None if tokens is None else Usage(completion_tokens=tokens)
    return watch.metrics(usage, streamed=streamed)


def test_times_count_tokens_by_the_servers_usage_not_by_pieces():
    # Three pieces, eleven tokens: ten steps in two seconds.
    metrics = timed([1.0, 2.0, 3.0], 11)
    assert metrics.ttft_s == pytest.approx(1.0)
    assert metrics.tpot_s == pytest.approx(0.2)
    assert metrics.tokens_per_s == pytest.approx(5.0)
    assert metrics.total_s == pytest.approx(10.0)


@pytest.mark.parametrize(
    ("pieces", "tokens"), [([1, 2], None), ([1, 2], 1), ([1, 2], 0), ([1], 50), ([1, 1], 50)]
)
def test_what_cannot_be_known_is_none(pieces, tokens):
    metrics = timed(pieces, tokens)
    assert metrics.ttft_s == pytest.approx(1.0)
    assert metrics.tpot_s is None
    assert metrics.tokens_per_s is None


def test_without_a_piece_or_a_stream_there_is_no_first_token_time():
    assert timed([], 5).ttft_s is None
    assert timed([1, 2], 5, streamed=False).ttft_s is None


def test_notes():
    assert finish_note("stop") == ""
    assert finish_note("tool_calls") == ""
    assert "truncated" in finish_note("length")
    assert finish_note("strange") == "ended with: strange"
    assert "did not close" in finish_note("stop", unclosed_reasoning=True)
