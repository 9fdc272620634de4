import asyncio
import contextlib
import json
import os
import signal
import socket
import stat
import sys

import httpx
import psutil
import pytest
from supervise_help import all_gone, reach, ready, tree_of

from kt_tui.paths import user_paths
from kt_tui.supervise import EngineError, EngineState, Supervisor, running_engines
from kt_tui.supervise.launch import public_argv


async def test_start_passes_through_loading_to_ready_with_progress_and_reasons(supervisor, spec):
    statuses = []
    supervisor.subscribe(statuses.append)
    await supervisor.start(spec("--steps", "4", "--delay", "0.3"))
    await ready(supervisor)
    states = [status.state for status in statuses]
    assert states[0] is EngineState.STARTING
    loading = [status for status in statuses if status.state is EngineState.LOADING]
    assert {status.phase for status in loading} == {"weights"}
    shares = [status.progress for status in loading]
    assert shares == sorted(shares)
    assert all(status.reason for status in statuses)
    final = supervisor.status
    assert final.pid is not None
    assert final.ready_at >= final.started_at
    assert final.base_url.startswith("http://127.0.0.1:")


async def test_stop_ends_the_process_and_frees_the_port(supervisor, spec, port, paths):
    await supervisor.start(spec())
    await ready(supervisor)
    processes = tree_of(supervisor.status.pid)
    report = await supervisor.stop()
    assert report.gone
    assert report.survivors == ()
    assert supervisor.status.state is EngineState.STOPPED
    assert supervisor.status.exit_code == -signal.SIGTERM
    assert all_gone(processes, patience=0)
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", port), timeout=1)
    assert running_engines(paths) == []
    assert not list(paths.engines.glob("*.json"))


async def test_an_engine_can_be_started_again_on_the_same_port_after_a_stop(supervisor, spec):
    for _ in range(2):
        await supervisor.start(spec())
        await ready(supervisor)
        assert (await supervisor.stop()).gone


async def test_grandchildren_in_sessions_of_their_own_are_ended_too(supervisor, spec):
    await supervisor.start(spec("--spawn", "4"))
    await ready(supervisor)
    processes = tree_of(supervisor.status.pid)
    assert len(processes) == 5
    assert (await supervisor.stop(grace=1)).gone
    assert all_gone(processes, patience=0)


async def test_an_engine_deaf_to_sigterm_is_killed_after_the_grace(supervisor, spec):
    await supervisor.start(spec("--ignore-term"))
    await ready(supervisor)
    report = await supervisor.stop(grace=0.3)
    assert report.gone
    assert supervisor.status.exit_code == -signal.SIGKILL
    assert supervisor.status.state is EngineState.STOPPED


async def test_a_second_stop_shortens_the_grace(supervisor, spec):
    await supervisor.start(spec("--ignore-term"))
    await ready(supervisor)
    patient = asyncio.create_task(supervisor.stop(grace=120))
    await asyncio.sleep(0.2)
    assert not patient.done()
    reports = await asyncio.wait_for(asyncio.gather(patient, supervisor.stop(grace=0)), 20)
    assert all(report.gone for report in reports)


async def test_stop_while_loading(supervisor, spec):
    await supervisor.start(spec("--steps", "1000", "--delay", "0.1"))
    await reach(supervisor, EngineState.LOADING)
    assert (await supervisor.stop()).gone


async def test_sigkill_to_a_ready_engine_is_told_without_blaming_memory(supervisor, spec):
    await supervisor.start(spec("--spawn", "2"))
    await ready(supervisor)
    processes = tree_of(supervisor.status.pid)
    os.kill(supervisor.status.pid, signal.SIGKILL)
    await reach(supervisor, EngineState.FAILED, patience=5)
    assert supervisor.status.exit_code == -signal.SIGKILL
    assert "killed by SIGKILL from outside" in supervisor.status.reason
    assert "while it was ready" in supervisor.status.reason
    assert all_gone(processes)
    # The panel is usable: the same port can be used at once.
    await supervisor.start(spec())
    await ready(supervisor)


async def test_a_segfault_is_named(supervisor, spec):
    await supervisor.start(spec())
    await ready(supervisor)
    async with httpx.AsyncClient(trust_env=False) as client:
        with contextlib.suppress(httpx.HTTPError):
            await client.get(supervisor.status.base_url + "/crash")
    await reach(supervisor, EngineState.FAILED)
    assert "SIGSEGV" in supervisor.status.reason


async def test_the_engines_own_error_line_is_the_reason(supervisor, spec):
    await supervisor.start(spec("--fail", "tensor a.b is cut short"))
    await reach(supervisor, EngineState.FAILED)
    assert supervisor.status.reason == "The engine ended before it was ready: tensor a.b is cut short"
    assert supervisor.status.exit_code == 3


async def test_without_an_error_line_the_last_words_are_told(supervisor, spec):
    await supervisor.start(
        spec(argv=(sys.executable, "-c", "print('first'); raise SystemExit('no such thing')"))
    )
    await reach(supervisor, EngineState.FAILED)
    assert "exit code 1" in supervisor.status.reason
    assert "no such thing" in supervisor.status.reason


async def test_a_program_that_is_not_there_is_one_sentence(supervisor, spec):
    with pytest.raises(EngineError, match=r"/nowhere/engine: No such file"):
        await supervisor.start(spec(argv=("/nowhere/engine",)))
    assert supervisor.status.state is EngineState.FAILED
    await supervisor.start(spec())
    await ready(supervisor)


async def test_a_busy_port_is_refused_before_anything_starts_and_names_its_owner(supervisor, spec, port):
    with socket.create_server(("127.0.0.1", port)):
        with pytest.raises(EngineError) as caught:
            await supervisor.start(spec())
        assert f"port {port} is in use by process {os.getpid()}" in str(caught.value)
        assert "is free" in str(caught.value)


async def test_a_second_panel_sees_the_first_ones_engine_and_leaves_it_alone(supervisor, spec, paths):
    await supervisor.start(spec())
    await ready(supervisor)
    second = Supervisor(paths)
    with pytest.raises(EngineError, match=r"belongs to another kt-tui \(process \d+\)"):
        await second.start(spec())
    assert not await second.attach()  # not kept, so it is the first one's
    await second.close()
    (seen,) = running_engines(paths)
    assert seen.pid == supervisor.status.pid
    assert supervisor.status.state is EngineState.READY


async def test_standard_input_is_closed_and_the_session_is_its_own(supervisor, spec):
    await supervisor.start(spec())
    await ready(supervisor)
    async with httpx.AsyncClient(trust_env=False) as client:
        answer = (await client.get(supervisor.status.base_url + "/stdin")).json()
    assert answer == {"stdin": "", "sid": supervisor.status.pid}


async def test_the_api_key_reaches_the_engine_but_no_file(supervisor, spec, paths):
    secret = "sesame-open-2718"
    await supervisor.start(spec(env={"KT_ENGINE_API_KEY": secret}, api_key=secret))
    await ready(supervisor)
    async with httpx.AsyncClient(trust_env=False) as client:
        answer = (await client.get(supervisor.status.base_url + "/key")).json()
    assert answer["key"] == secret
    for path in paths.state.rglob("*"):
        if path.is_file():
            assert secret.encode() not in path.read_bytes()
    keeper = json.loads(next(paths.engines.glob("*.json")).read_text())["keeper_pid"]
    for pid in (keeper, supervisor.status.pid):
        assert not any(secret in word for word in psutil.Process(pid).cmdline())


def test_secrets_in_arguments_are_blanked_in_the_state_file(spec):
    shown = public_argv(
        spec(argv=("engine", "--api-key", "abc", "--hf-token=def", "--max-total-tokens", "5"))
    )
    assert shown == ["engine", "--api-key", "(hidden)", "--hf-token=(hidden)", "--max-total-tokens", "5"]


@pytest.mark.parametrize("ending", ["err", "lock", "sock"])
async def test_a_file_that_cannot_be_made_is_named(supervisor, spec, port, paths, ending):
    """A full disk, or anything else in the way of a state file: the sentence names that file, not the program."""
    path = paths.engines / f"port-{port}.{ending}"
    path.mkdir(parents=True)
    with pytest.raises(EngineError, match=r"^The engine cannot be started: ") as caught:
        await supervisor.start(spec())
    assert f" {path}: " in str(caught.value)
    assert sys.executable not in str(caught.value)
    assert supervisor.status.state is EngineState.FAILED


async def test_a_state_folder_that_cannot_be_made_is_named(supervisor, spec, paths):
    paths.state.parent.mkdir(parents=True)
    paths.state.write_text("in the way")
    with pytest.raises(EngineError, match=f"{paths.engines}: not a directory") as caught:
        await supervisor.start(spec())
    assert "[Errno" not in str(caught.value)


async def test_state_files_are_private(supervisor, spec, paths):
    await supervisor.start(spec())
    for path in (paths.engines, paths.logs):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    for path in paths.state.rglob("*"):
        if not path.is_dir():
            assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


async def test_a_flood_of_output_is_bounded_and_its_end_is_kept(paths, spec):
    supervisor = Supervisor(paths, log_limit=200_000)
    batches = []
    last = asyncio.Event()

    def note(lines):
        batches.append(lines)
        if any(line.text.startswith("line 49999") for line in lines):
            last.set()

    supervisor.log.subscribe(note)
    await supervisor.start(spec("--flood", "50000"))
    await ready(supervisor)
    await asyncio.wait_for(last.wait(), 30)
    assert len(supervisor.log) <= 10_000
    assert len(batches) < 5_000  # told in batches, not line by line
    log_files = list(paths.logs.iterdir())
    assert {path.name.split(".log")[1] for path in log_files} == {"", ".1"}
    assert sum(path.stat().st_size for path in log_files) < 2 * 200_000 + 4096
    assert (await supervisor.stop()).gone


async def test_control_sequences_in_output_do_not_reach_a_reader(supervisor, spec):
    await supervisor.start(spec())
    await ready(supervisor)
    await supervisor.stop()
    texts = [line.text for line in supervisor.log]
    assert not any("\x1b" in text or "\r" in text for text in texts)
    assert any(text.endswith(" done") for text in texts)


async def test_closing_stops_an_engine_that_is_not_kept(supervisor, spec):
    await supervisor.start(spec())
    await ready(supervisor)
    processes = tree_of(supervisor.status.pid)
    await supervisor.close()
    assert all_gone(processes, patience=0)


async def test_starting_twice_is_refused(supervisor, spec):
    await supervisor.start(spec("--steps", "1000"))
    with pytest.raises(EngineError, match="stop it first"):
        await supervisor.start(spec())


async def test_folders_with_very_long_names_work(tmp_path, spec):
    # The path of a Unix socket may have 107 bytes only.
    long = tmp_path / ("x" * 120) / ("y" * 120)
    supervisor = Supervisor(user_paths({"KT_TUI_HOME": str(long)}))
    await supervisor.start(spec())
    await ready(supervisor)
    await supervisor.keep_running()
    second = Supervisor(user_paths({"KT_TUI_HOME": str(long)}))
    assert await second.attach()
    assert (await second.stop()).gone
    await supervisor.close()


async def test_a_cancelled_start_leaves_no_process(supervisor, spec, port):
    starting = asyncio.create_task(supervisor.start(spec()))
    await reach(supervisor, EngineState.STARTING)
    await asyncio.sleep(0.1)
    starting.cancel()
    await asyncio.gather(starting, return_exceptions=True)
    if supervisor.status.pid is None:
        assert supervisor.status.state is EngineState.STOPPED
    else:  # it was faster than the cancellation
        assert (await supervisor.stop()).gone
    await reach_no_process(port)


async def test_a_stop_during_the_start_takes_effect(supervisor, spec, port):
    starting = asyncio.create_task(supervisor.start(spec()))
    await reach(supervisor, EngineState.STARTING)
    report = await supervisor.stop()
    await starting
    assert report.gone
    assert supervisor.status.state is EngineState.STOPPED
    await reach_no_process(port)


async def reach_no_process(port):
    def left():
        return [p for p in psutil.process_iter(["cmdline"]) if str(port) in (p.info["cmdline"] or [])]

    async with asyncio.timeout(10):
        while left():  # noqa: ASYNC110 - processes of others give no event
            await asyncio.sleep(0.1)
