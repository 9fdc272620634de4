import json
import os
import socket
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import psutil
import pytest

from kt_tui.errors import KtError
from kt_tui.monitor import EngineTarget, GpuSample, History, Sampler, Snapshot
from kt_tui.monitor.host import read_main_memory, read_nodes
from kt_tui.monitor.tree import TreeReader


@pytest.fixture
def sampler_of():
    made = []

    def build(**options):
        sampler = Sampler(**{"interval": 0.1, **options})
        made.append(sampler)
        return sampler

    yield build
    for sampler in made:
        sampler.stop()


def snapshots(sampler, count, patience=20):
    """The next ``count`` snapshots."""
    found, enough = [], threading.Event()

    def take(snapshot):
        found.append(snapshot)
        if len(found) >= count:
            enough.set()

    leave = sampler.subscribe(take)
    sampler.start()
    assert enough.wait(patience)
    leave()
    return found


def test_snapshots_hold_what_the_machine_says(sampler_of):
    sampler = sampler_of()
    snapshot = snapshots(sampler, 2)[-1]
    assert len(snapshot.cpu.per_cpu) == psutil.cpu_count()
    assert all(0 <= percent <= 100 for percent in snapshot.cpu.per_cpu)
    memory = psutil.virtual_memory()
    assert snapshot.memory.total <= memory.total
    assert snapshot.memory.used == snapshot.memory.total - snapshot.memory.available
    assert snapshot.engine is None
    assert snapshot.reasons["engine"] == "no engine is running"
    assert sampler.latest is not None
    assert len(sampler.history) >= 2


def test_it_stops_and_starts_again(sampler_of):
    sampler = sampler_of()
    snapshots(sampler, 1)
    sampler.stop()
    names = {thread.name for thread in threading.enumerate()}
    assert not names & {"sampler", "engine-figures"}
    sampler.stop()
    snapshots(sampler, 1)


def test_a_missing_driver_is_a_reason_and_is_not_asked_at_each_tick(sampler_of):
    asked = []

    def no_driver():
        asked.append(1)
        raise KtError("no NVIDIA driver")

    snapshot = snapshots(sampler_of(gpus=no_driver), 5)[-1]
    assert snapshot.gpus == ()
    assert snapshot.reasons["gpus"] == "no NVIDIA driver"
    assert len(asked) == 1


def test_gpu_readings_are_kept_for_their_lifetime(sampler_of):
    asked = []

    def one_gpu():
        asked.append(1)
        return [GpuSample(0, "H", 80, 8)]

    snapshot = snapshots(sampler_of(gpus=one_gpu), 5)[-1]
    assert snapshot.gpus == (GpuSample(0, "H", 80, 8),)
    assert len(asked) == 1
    assert snapshot.ages["gpus"] > 0


def test_one_failing_part_spoils_no_other(sampler_of):
    def broken():
        raise RuntimeError("driver \x1b[31m said no")

    snapshot = snapshots(sampler_of(gpus=broken), 1)[-1]
    assert snapshot.cpu is not None
    assert "\x1b" not in snapshot.reasons["gpus"]
    assert "said no" in snapshot.reasons["gpus"]


def test_a_server_that_never_answers_holds_up_nothing(sampler_of):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        target = EngineTarget(os.getpid(), f"http://127.0.0.1:{silent.getsockname()[1]}")
        found = snapshots(sampler_of(target=lambda: target), 8, patience=10)
    assert found[-1].process is not None
    assert found[-1].engine is None


def test_a_subscriber_that_fails_is_dropped_and_the_others_go_on(sampler_of):
    sampler = sampler_of()
    calls = []

    def broken(snapshot):
        calls.append(snapshot)
        raise RuntimeError("the screen is gone")

    sampler.subscribe(broken)
    assert len(snapshots(sampler, 4)) >= 4
    assert len(calls) == 1


class Handler(BaseHTTPRequestHandler):
    generated = 0

    def do_GET(self):
        if self.headers.get("Authorization") != "Bearer sesame":
            self.send_error(401)
            return
        type(self).generated += 10
        if self.path == "/v1/loads":
            body = json.dumps(
                {"loads": [{"num_running_reqs": 1, "num_used_tokens": 5, "max_total_num_tokens": 10}]}
            )
        else:
            body = f"# TYPE kt:generation_tokens counter\nkt:generation_tokens_total {self.generated}\n"
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_):
        pass


@pytest.fixture
def engine_url():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_engine_figures_with_rates(sampler_of, engine_url):
    sampler = sampler_of(target=lambda: EngineTarget(os.getpid(), engine_url, "sesame"))
    found = threading.Event()

    def take(snapshot):
        engine = snapshot.engine
        if engine and engine.tokens_per_s and engine.running == 1 and engine.kv_usage == 0.5:
            found.set()

    sampler.subscribe(take)
    sampler.start()
    assert found.wait(20)


def test_a_refused_key_is_a_reason(sampler_of, engine_url):
    sampler = sampler_of(target=lambda: EngineTarget(os.getpid(), engine_url))
    sampler.start()
    for snapshot in snapshots(sampler, 10):
        reason = snapshot.reasons.get("engine", "")
    assert "401" in reason


def test_the_process_tree_is_summed():
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'while True: pass'])"
    process = subprocess.Popen([sys.executable, "-c", code])
    try:
        root = psutil.Process(process.pid)
        while not root.children():
            pass
        reader = TreeReader()
        first = reader.read(process.pid)
        assert first.cpu_percent is None
        root.children()[0].cpu_percent(1.0)
        second = reader.read(process.pid)
        assert second.processes == 2
        assert second.cpu_percent > 5
        whole = sum(p.memory_info().rss for p in (root, *root.children()))
        assert second.rss == pytest.approx(whole, rel=0.2)
    finally:
        for child in root.children():
            child.kill()
        process.kill()
        process.wait()
    assert reader.read(process.pid) is None


def test_memory_is_within_the_machine():
    memory = read_main_memory()
    assert 0 < memory.available <= memory.total


def test_nodes_only_when_there_are_several(tmp_path):
    def node(number, text):
        (tmp_path / f"node{number}").mkdir()
        (tmp_path / f"node{number}" / "meminfo").write_text(text)

    assert read_nodes(tmp_path / "absent") == ()
    node(0, "Node 0 MemTotal:       100 kB\nNode 0 MemFree:        40 kB\nNode 0 FilePages: 7 kB\n")
    assert read_nodes(tmp_path) == ()
    node(10, "Node 10 MemTotal:       200 kB\nNode 10 MemFree:        50 kB\n")
    (tmp_path / "node2").mkdir()
    nodes = read_nodes(tmp_path)
    assert [(n.id, n.total, n.free, n.page_cache) for n in nodes] == [
        (0, 102_400, 40_960, 7_168),
        (10, 204_800, 51_200, None),
    ]


def test_a_history_is_of_fixed_size_and_knows_gaps():
    history = History(capacity=4, series={"load": lambda snapshot: snapshot.time or None})
    for number in range(7):
        history.add(Snapshot(time=float(number) if number != 5 else 0.0, monotonic=float(number)))
    assert history.values("load") == [3.0, 4.0, None, 6.0]
    assert history.values("load", last=2) == [None, 6.0]
    assert history.times() == [3.0, 4.0, 5.0, 6.0]
    assert history.peak("load") == 6.0
    assert len(history) == 4
    assert History(capacity=2, series={"load": lambda _: None}).values("load") == []
