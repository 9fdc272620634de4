import os
import signal
import subprocess
import sys
import time

import pytest

from kt_tui import processes

SLEEP = "import time; time.sleep(60)"


@pytest.fixture
def child():
    process = subprocess.Popen(
        [sys.executable, "-c", SLEEP], start_new_session=True, env={"MARK": "one", "OTHER": "MARK=two"}
    )
    yield process
    process.kill()
    process.wait()


def test_a_process_is_named_by_pid_and_start_time(child):
    stat = processes.read_stat(child.pid)
    assert (stat.parent, stat.session, stat.group) == (os.getpid(), child.pid, child.pid)
    assert processes.is_running(child.pid, stat.started)
    assert not processes.is_running(child.pid, stat.started + 1)
    child.kill()
    while processes.read_stat(child.pid).alive:
        time.sleep(0.01)
    assert not processes.is_running(child.pid, stat.started)  # a zombie does not run
    child.wait()
    assert processes.read_stat(child.pid) is None


def test_a_signal_goes_to_exactly_that_process(child):
    stat = processes.read_stat(child.pid)
    assert not processes.send_signal(stat._replace(started=stat.started - 1), signal.SIGKILL)
    assert child.poll() is None
    assert processes.send_signal(stat, signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL
    assert not processes.send_signal(stat, signal.SIGKILL)


def test_family_by_session_mark_and_earlier_knowledge(child):
    stat = processes.read_stat(child.pid)

    def pids(*arguments):
        return [found.pid for found in processes.family(*arguments)]

    while not processes.has_environment(child.pid, b"MARK=one"):  # until it has executed
        time.sleep(0.01)
    assert pids((stat.pid, stat.started), b"X=none") == [child.pid]
    assert pids((0, 0), b"MARK=one") == [child.pid]
    assert pids((0, 0), b"MARK=two") == []  # a part of another entry's value is no mark
    assert pids((0, 0), b"X=none", [stat]) == [child.pid]
    # A session number that went to another process since counts for nothing.
    assert pids((stat.pid, stat.started - 1), b"X=none") == []
    assert pids((0, 0), b"X=none", [stat._replace(started=1)]) == []


def test_descendants_of_any_depth():
    code = (
        f"import subprocess, sys; subprocess.run([sys.executable, '-c', {SLEEP!r}], start_new_session=True)"
    )
    process = subprocess.Popen([sys.executable, "-c", code])
    try:
        found = []
        while len(found) < 2:
            found = [
                s
                for s in processes.descendants(os.getpid())
                if s.parent == process.pid or s.pid == process.pid
            ]
        assert [stat.parent for stat in found] == [os.getpid(), process.pid]
        by_scan = {stat.pid for stat in processes._descendants_by_parent(process.pid)}
        assert by_scan == {found[1].pid}
    finally:
        for stat in processes.descendants(process.pid):
            processes.send_signal(stat, signal.SIGKILL)
        process.kill()
        process.wait()


def test_a_name_with_parentheses_and_spaces(tmp_path):
    odd = tmp_path / "a) R (b"
    odd.symlink_to("/bin/sleep")
    process = subprocess.Popen([str(odd), "60"])
    try:
        while (stat := processes.read_stat(process.pid)).name != "a) R (b":
            time.sleep(0.01)
        assert stat.parent == os.getpid()
        # An exec sets the name before the arguments: for a moment only the name is there.
        deadline = time.monotonic() + 10
        while processes.command_line(process.pid) != f"{odd} 60":
            assert time.monotonic() < deadline, processes.command_line(process.pid)
            time.sleep(0.01)
    finally:
        process.kill()
        process.wait()
    assert processes.command_line(process.pid) == ""
