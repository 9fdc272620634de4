from __future__ import annotations

import pytest

from kt_tui.chat import Message, Metrics, Status, Usage
from kt_tui.ui.turn_text import footer_text, seconds, thinking_text


def test_a_full_footer() -> None:
    message = Message(
        "assistant", "x", usage=Usage(3104, 96, cached_tokens=3000), metrics=Metrics(1.21, 0.0543, 18.42, 7)
    )
    assert footer_text(message) == "TTFT 1.21 s · TPOT 54 ms · 18.4 tok/s · 3,104 in + 96 out (3000 cached)"


def test_what_is_unknown_is_left_out() -> None:
    assert footer_text(Message("assistant", "x", metrics=Metrics(0.5))) == "TTFT 0.50 s"
    assert footer_text(Message("assistant", "x", usage=Usage(None, 5))) == "? in + 5 out"
    assert footer_text(Message("assistant", "x")) == ""


def test_an_end_that_is_not_ordinary_is_said() -> None:
    assert footer_text(Message("assistant", "x", status=Status.STOPPED, note="stopped")) == "stopped by you"
    assert footer_text(Message("assistant", "x", note="truncated at max tokens")) == "truncated at max tokens"


@pytest.mark.parametrize(
    ("value", "text"), [(0.041, "0.04 s"), (8.4, "8.40 s"), (12.34, "12.3 s"), (125, "2 min 5 s")]
)
def test_durations(value: float, text: str) -> None:
    assert seconds(value) == text


def test_thinking_handles() -> None:
    assert thinking_text(8.4, 212, exact=True) == "thinking  8.40 s · 212 tok"
    assert thinking_text(8.4, 212, exact=False) == "thinking  8.40 s · ~212 tok"
    assert thinking_text(None, None, exact=False) == "thinking"
