"""The thread team under pressure: any number of threads, shared CPUs, competitors, callers, fork, exec, NUMA groups.

Whatever happens, results are bit for bit those of one thread.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time  # noqa: F401 (for the code of processes)
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import kernel_cases as cases
import kernel_oracle as oracle
import numpy as np
import pytest

from engine import _csrc

CPUS = [cpu for cpu, _ in _csrc.usable_cores()]
MOST = len(CPUS) + 2
ISA = _csrc.available_isas()[-1]
BUSY = (
    "import os\nos.sched_setaffinity(0, {%s})\nprint(flush=True)\nwhile os.getppid() == %d: sum(range(10000))"
)


def cores_of(threads: int, groups: int = 1) -> list[tuple[int, int]]:
    """Threads on the usable CPUs in turn, those of each pretended NUMA node together."""
    return [(CPUS[i % len(CPUS)], i * groups // threads) for i in range(threads)]


@dataclass
class Work:
    """Matrices and calls with what one thread made of them."""

    rng: np.random.Generator = field(default_factory=np.random.default_rng)
    rows: int = 77
    cols: int = 256
    hidden: int = 256
    inner: int = 272

    def __post_init__(self) -> None:
        self.weights = [
            oracle.random_weight(self.rng, f, self.rows, self.cols) for f in ("fp8_block128", "q4_k")
        ]
        self.matrices = [
            oracle.random_weight(self.rng, "bf16", *shape)
            for _ in range(3)
            for shape in ((self.inner, self.hidden), (self.inner, self.hidden), (self.hidden, self.inner))
        ]
        self.x = [self.rng.standard_normal((t, self.cols)).astype(np.float32) for t in (1, 3, 40)]
        self.ids = [self.rng.integers(-1, 3, (len(x), 2)).astype(np.int32) for x in self.x]
        self.factors = [self.rng.random(ids.shape).astype(np.float32) for ids in self.ids]
        self.wanted = Layers(self, cores_of(1)).results()


class Layers:
    """The work's layers on one team."""

    def __init__(self, work: Work, cores: list[tuple[int, int]]) -> None:
        self.work, self.team = work, _csrc.Team(cores, ISA)
        self.linears = [
            cases.make_linear(_csrc, self.team, weight, mode)
            for weight, mode in zip(work.weights, ("exact", "fast"), strict=True)
        ]
        self.experts = _csrc.Experts(self.team, "bf16", 3, work.hidden, work.inner, "exact")
        for expert in range(3):
            gate, up, down = (w.data for w in work.matrices[3 * expert : 3 * expert + 3])
            self.experts.load(expert, gate, up, down, None, None, None)

    def results(self) -> list[np.ndarray]:
        linear = [layer.forward(x) for layer in self.linears for x in self.work.x]
        calls = zip(self.work.x, self.work.ids, self.work.factors, strict=True)
        return linear + [self.experts.forward(x * np.float32(0.05), ids, f) for x, ids, f in calls]

    def wrong(self, times: int = 1) -> int:
        """How many results are not those of one thread."""
        return sum(
            not np.array_equal(got, wanted)
            for _ in range(times)
            for got, wanted in zip(self.results(), self.work.wanted, strict=True)
        )


@pytest.fixture(scope="module")
def work() -> Work:
    return Work()


@contextmanager
def competitors(count: int) -> Iterator[None]:
    """Processes that never rest, on the team's own CPUs."""
    busy = []
    for i in range(count):
        code = BUSY % (CPUS[i % len(CPUS)], os.getpid())
        busy.append(subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE))
    try:
        for process in busy:
            assert process.stdout
            assert process.stdout.readline()
        yield
    finally:
        for process in busy:
            process.kill()
        for process in busy:
            process.communicate()


@pytest.mark.parametrize("groups", [1, 2, 3])
@pytest.mark.parametrize("threads", range(1, MOST + 1))
def test_any_number_of_threads_and_nodes_gives_the_bits_of_one(work, threads, groups):
    if groups > threads:
        pytest.skip("a node has at least one thread")
    assert Layers(work, cores_of(threads, groups)).wrong(5) == 0


@pytest.mark.parametrize("split", [(1, 1, 1), (1, 3, 1), (4, 1, 2), (1, 1, 5)])
@pytest.mark.parametrize(
    ("rows", "hidden", "inner"), [(1, 33, 15), (16, 16, 16), (33, 49, 81), (95, 160, 47)]
)
def test_uneven_nodes_share_odd_tiles(split, rows, hidden, inner):
    """Nodes may get no tile at all, half a pair, or the ragged last one."""
    rng = np.random.default_rng()
    cores = [(CPUS[i % len(CPUS)], node) for node, count in enumerate(split) for i in range(count)]
    one, many = (_csrc.Team(c, ISA) for c in (cores_of(1), cores))
    weight = oracle.random_weight(rng, "bf16", rows, hidden)
    matrices = [
        oracle.random_weight(rng, "bf16", *s).data
        for s in ((inner, hidden), (inner, hidden), (hidden, inner))
    ]
    for tokens in (1, 2, 40):
        x = rng.standard_normal((tokens, hidden)).astype(np.float32)
        ids = rng.integers(-1, 2, (tokens, 2)).astype(np.int32)
        results = []
        for team in (one, many):
            layer = _csrc.Experts(team, "bf16", 2, hidden, inner, "exact")
            for expert in range(2):
                layer.load(expert, *matrices, None, None, None)
            y = cases.make_linear(_csrc, team, weight, "exact").forward(x)
            results.append((y, layer.forward(x, ids, np.ones((tokens, 2), np.float32))))
        assert all(np.array_equal(a, b) for a, b in zip(*results, strict=True))


def test_a_node_that_does_not_exist_is_told_and_does_not_matter(work):
    layers = Layers(work, [(CPUS[0], 0), (CPUS[-1], 900)])
    notes = [note for note in layers.team.notes if "NUMA node 900" in note]
    assert len(notes) == 1  # once, however many layers there are
    assert notes[0].startswith("memory could not be bound to NUMA node 900 (")
    assert notes[0].endswith("it goes where it is first written")
    assert layers.wrong() == 0


def test_competitors_on_the_same_cpus_change_no_bit(work):
    with competitors(len(CPUS)):
        for threads in (len(CPUS), MOST):
            assert Layers(work, cores_of(threads)).wrong(20) == 0


def test_callers_of_the_same_and_of_other_teams_get_their_own_results(work):
    teams = [Layers(work, cores_of(n)) for n in (MOST, len(CPUS), 1)]
    wrong: list[int] = []

    def call(number: int) -> None:
        wrong.extend(teams[0 if number < 3 else (number + turn) % 3].wrong() for turn in range(6))

    threads = [threading.Thread(target=call, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(wrong) == 36
    assert sum(wrong) == 0


def in_a_process_of_its_own(body: str) -> None:
    """Runs code after `work = Work()`; it must leave by itself with status 0."""
    folder = str(Path(__file__).parent)
    code = (
        f"import os, sys\nsys.path.insert(0, {folder!r})\n"
        f"from test_team_stress import *\nfrom engine import _csrc\nwork = Work()\n{body}"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], timeout=200, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_affinity_may_shrink_after_the_start():
    in_a_process_of_its_own("""
layers = Layers(work, cores_of(MOST))
assert layers.wrong() == 0
os.sched_setaffinity(0, {CPUS[-1]})
for task in os.listdir("/proc/self/task"):
    os.sched_setaffinity(int(task), {CPUS[-1]})
assert layers.wrong(3) == 0
assert os.sched_getaffinity(0) == {CPUS[-1]}
fresh = Layers(work, [(c, 0) for c, _ in _csrc.usable_cores()])
assert len(fresh.team.cores) == 1 and fresh.wrong() == 0
""")


def test_fork_and_exec_beside_a_working_team():
    in_a_process_of_its_own("""
layers = Layers(work, cores_of(MOST))
stop = threading.Event()
wrong = []
def call():
    while not stop.is_set():
        wrong.append(layers.wrong())
caller = threading.Thread(target=call)
caller.start()
for turn in range(4):
    child = os.fork()
    if child == 0:
        try:
            layers.results()
        except RuntimeError as error:
            told = "belongs to the parent process; create a new one" in str(error)
            os._exit(0 if told and Layers(work, cores_of(2)).wrong() == 0 else 3)
        os._exit(4)
    assert os.waitpid(child, 0)[1] == 0
    assert subprocess.run(["true"]).returncode == 0
stop.set()
caller.join()
assert wrong and sum(wrong) == 0 and layers.wrong() == 0
""")


def test_idle_teams_do_not_spin():
    # A spinning thread would use a second of processor time a second; sleeping ones use nothing.
    in_a_process_of_its_own("""
teams = [Layers(work, cores_of(n)) for n in (len(CPUS), MOST, 2)]
assert sum(t.wrong() for t in teams) == 0
time.sleep(0.3)
before = time.process_time()
time.sleep(1.5)
spent = time.process_time() - before
assert spent < 0.3, spent
""")


def test_a_quota_is_read_or_absent():
    quota = _csrc.cpu_quota()
    assert quota == 0 or 0.01 < quota < 100_000


def test_teams_that_come_and_go_in_turn_keep_their_results(work):
    kept = [Layers(work, cores_of(n)) for n in (1, 2, MOST)]
    for turn in range(6):
        kept[turn % 3] = Layers(work, cores_of(1 + turn % MOST))
        assert sum(layers.wrong() for layers in kept) == 0
