import pytest

from kt_tui.supervise import EngineSpec, EngineState, LogLine
from kt_tui.supervise.health import Health
from kt_tui.supervise.tracker import Tracker

STARTED = {
    "pid": 5,
    "host": "0.0.0.0",  # noqa: S104
    "port": 30000,
    "model": "demo",
    "engine": "embedded",
    "started_at": 1.0,
    "log_path": "/x.log",
}


def line(text):
    return (LogLine(1, 0.0, text),)


@pytest.fixture
def tracker():
    made = Tracker()
    made.begin(EngineSpec(("x",), {}, "127.0.0.1", 30000, "demo"))
    made.started(STARTED)
    return made


def test_a_client_address_is_given_even_for_a_server_on_all_addresses(tracker):
    assert tracker.status.base_url == "http://127.0.0.1:30000"


def test_log_phases_count_until_the_server_tells_its_own(tracker):
    tracker.lines(line('kt-engine phase=checkpoint progress=0.5 detail="x"'))
    assert (tracker.status.state, tracker.status.phase) == (EngineState.LOADING, "checkpoint")
    tracker.health(Health(answered=True, phase="weights", progress=0.6))
    tracker.lines(line("kt-engine phase=weights progress=0.5"))
    assert tracker.status.progress == 0.6


def test_no_answer_changes_nothing_while_loading(tracker):
    before = tracker.status
    tracker.health(Health(answered=False))
    assert tracker.status == before


def test_a_ready_engine_that_falls_silent_stays_ready_and_says_so(tracker, monkeypatch):
    clock = [100.0]
    monkeypatch.setattr("kt_tui.supervise.tracker.time.monotonic", lambda: clock[0])
    tracker.health(Health(answered=True, ready=True))
    ready_at = tracker.status.ready_at
    tracker.health(Health(answered=False))
    assert tracker.status.detail == ""
    clock[0] += 12
    tracker.health(Health(answered=False))
    assert tracker.status.state is EngineState.READY
    assert tracker.status.detail == "no answer on /health for 12 s"
    tracker.health(Health(answered=True, ready=True))
    assert (tracker.status.detail, tracker.status.ready_at) == ("", ready_at)


def test_a_phase_line_of_a_ready_engine_is_only_a_line(tracker):
    tracker.health(Health(answered=True, ready=True))
    tracker.lines(line("kt-engine phase=weights progress=0.1"))
    assert tracker.status.state is EngineState.READY


def test_an_end_that_was_asked_for_is_no_failure(tracker):
    tracker.change(state=EngineState.STOPPING)
    tracker.exited({"exit_code": -9})
    assert (tracker.status.state, tracker.status.exit_code) == (EngineState.STOPPING, -9)


@pytest.mark.parametrize("event", [{}, {"exit_code": None}, {"exit_code": 1, "oom": 5, "peak_rss": "x"}])
def test_an_incomplete_exit_event_is_still_an_end(tracker, event):
    tracker.exited(event)
    assert tracker.status.state is EngineState.FAILED
    assert tracker.status.reason


async def test_a_failing_subscriber_does_not_keep_the_others_in_the_dark(tracker):
    import asyncio

    told, failures = [], []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context["exception"]))
    tracker.subscribe(lambda status: 1 / 0)
    leave = tracker.subscribe(told.append)
    tracker.change(detail="x")
    leave()
    tracker.change(detail="y")
    assert [status.detail for status in told] == ["x"]
    assert len(failures) == 2


def test_a_status_that_did_not_change_is_not_told_again(tracker):
    told = []
    tracker.subscribe(told.append)
    tracker.health(Health(answered=True, ready=True))
    tracker.health(Health(answered=True, ready=True))
    assert len(told) == 1
