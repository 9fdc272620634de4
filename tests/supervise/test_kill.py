"""What is left when somebody is killed with SIGKILL: nothing, unless the user chose to keep the engine."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from supervise_help import all_gone, reach, ready, tree_of

from kt_tui.supervise import EngineState, Supervisor, running_engines

PANEL = Path(__file__).with_name("panel_process.py")


@pytest.fixture
def panel(paths, port):
    """Starts panels; each gives its process and what it told."""
    started = []

    def start(wait_for, *options, keep=False):
        home = str(paths.state.parent)
        command = [sys.executable, str(PANEL), home, str(port), wait_for, str(int(keep)), *options]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        started.append(process)
        return process, json.loads(process.stdout.readline())

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.mark.parametrize("wait_for", ["starting", "loading", "ready"])
def test_a_killed_panel_leaves_no_process(panel, wait_for, paths):
    process, told = panel(
        wait_for, "--steps", "30" if wait_for != "ready" else "2", "--delay", "0.2", "--spawn", "2"
    )
    tree = [psutil.Process(told["keeper"]), *tree_of(told["pid"])]
    process.kill()
    process.wait()
    assert all_gone(tree, patience=10)
    assert running_engines(paths) == []


def test_an_engine_deaf_to_sigterm_ends_with_a_killed_panel(panel):
    process, told = panel("ready", "--ignore-term", "--spawn", "2")
    tree = [psutil.Process(told["keeper"]), *tree_of(told["pid"])]
    process.kill()
    assert all_gone(tree, patience=15)


async def test_workers_that_outlived_panel_and_keeper_are_ended_by_the_next_panel(panel, supervisor):
    process, told = await asyncio.to_thread(panel, "ready", "--spawn", "1")
    keeper, tree = psutil.Process(told["keeper"]), tree_of(told["pid"])
    keeper.suspend()  # so that it cannot clean up when it sees the panel go
    process.kill()
    process.wait()
    keeper.kill()
    _, worker = tree
    assert all_gone([keeper, tree[0]])
    assert worker.is_running()  # it had detached itself, so nothing told it
    assert not await supervisor.attach()
    assert all_gone([worker])


async def test_a_kept_engine_survives_a_killed_panel_and_is_found_again(panel, supervisor):
    process, told = await asyncio.to_thread(panel, "ready", keep=True)
    process.kill()
    process.wait()
    assert await supervisor.attach()
    assert supervisor.status.pid == told["pid"]
    assert supervisor.status.kept
    assert supervisor.api_key == "sesame"
    await ready(supervisor)
    assert any("kt-engine phase=weights" in line.text for line in supervisor.log)
    tree = tree_of(told["pid"])
    assert (await supervisor.stop()).gone
    assert all_gone(tree, patience=0)


async def test_a_kept_engine_goes_on_when_the_panel_lets_go(supervisor, spec, paths):
    await supervisor.start(spec())
    await ready(supervisor)
    await supervisor.keep_running()
    pid = supervisor.status.pid
    await supervisor.close()
    assert psutil.pid_exists(pid)
    second = Supervisor(paths)
    assert await second.attach()
    await ready(second)
    # Taken back: now it ends with its panel again.
    await second.keep_running(False)
    tree = tree_of(pid)
    await second.close()
    assert all_gone(tree)


async def test_two_panels_may_hold_a_kept_engine_and_both_learn_of_its_end(supervisor, spec, paths):
    await supervisor.start(spec())
    await ready(supervisor)
    await supervisor.keep_running()
    second = Supervisor(paths)
    assert await second.attach()
    await ready(second)
    os.kill(supervisor.status.pid, signal.SIGKILL)
    await reach(supervisor, EngineState.FAILED)
    await reach(second, EngineState.FAILED)
    await second.close()


async def test_a_stop_by_one_panel_is_told_to_the_other(supervisor, spec, paths):
    await supervisor.start(spec())
    await ready(supervisor)
    await supervisor.keep_running()
    second = Supervisor(paths)
    assert await second.attach()
    assert (await second.stop()).gone
    await reach(supervisor, EngineState.STOPPED)
    assert "from outside" in supervisor.status.reason
    # Both can go on.
    await supervisor.start(spec())
    await ready(supervisor)
    assert not await second.attach()


async def test_a_kept_engine_that_ended_alone_is_told_once(supervisor, spec, paths):
    await supervisor.start(spec())
    await ready(supervisor)
    await supervisor.keep_running()
    pid = supervisor.status.pid
    tree = [psutil.Process(json.loads(next(paths.engines.glob("*.json")).read_text())["keeper_pid"])]
    await supervisor.close()
    os.kill(pid, signal.SIGKILL)
    assert await asyncio.to_thread(all_gone, tree)
    second = Supervisor(paths)
    assert not await second.attach()
    assert second.status.state is EngineState.FAILED
    assert "left running has ended" in second.status.reason
    third = Supervisor(paths)
    assert not await third.attach()
    assert third.status.state is EngineState.IDLE


async def test_a_killed_keeper_takes_the_whole_tree_with_it(supervisor, spec, paths):
    await supervisor.start(spec("--spawn", "1"))
    await ready(supervisor)
    tree = tree_of(supervisor.status.pid)
    keeper = json.loads(next(paths.engines.glob("*.json")).read_text())["keeper_pid"]
    os.kill(keeper, signal.SIGKILL)
    await reach(supervisor, EngineState.FAILED)
    assert "watches over the engine was killed" in supervisor.status.reason
    assert all_gone(tree)
    await supervisor.start(spec())
    await ready(supervisor)


@pytest.fixture
def bystander(spec):
    """A foreign process that looks like an engine and has nothing to do with us."""
    process = subprocess.Popen([*spec().argv[:2], "--port", "0"], start_new_session=True)
    yield process
    process.kill()
    process.wait()


async def test_a_state_file_whose_pid_went_to_another_process_harms_nobody(
    supervisor, spec, paths, bystander
):
    await supervisor.start(spec())
    await ready(supervisor)
    record_path = next(paths.engines.glob("*.json"))
    record = json.loads(record_path.read_text())
    await supervisor.stop()
    # As if the machine had lost power and the pids now belonged to someone else.
    record.update(pid=bystander.pid, session=bystander.pid, keeper_pid=bystander.pid, kept=True)
    record_path.write_text(json.dumps(record))
    assert running_engines(paths) == []
    second = Supervisor(paths)
    assert not await second.attach()
    assert bystander.poll() is None
    record_path.write_text(json.dumps(record))
    await second.start(spec())
    await ready(second)
    assert (await second.stop()).gone
    assert bystander.poll() is None


async def test_a_foreign_process_of_the_same_name_stays_alive(supervisor, spec, bystander):
    await supervisor.start(spec())
    await ready(supervisor)
    assert (await supervisor.stop()).gone
    assert bystander.poll() is None


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b'{"pid": "x", "port": -1}', b"\xff" * 100])
async def test_a_damaged_state_file_is_no_engine(paths, content, supervisor, port, spec):
    paths.engines.mkdir(parents=True)
    (paths.engines / f"port-{port}.json").write_bytes(content)
    assert running_engines(paths) == []
    assert not await supervisor.attach()
    await supervisor.start(spec())
    await ready(supervisor)
