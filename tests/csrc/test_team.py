"""The thread team: choice of cores, concurrency, oversubscription, fork, and the choice of an instruction set."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from engine import _csrc
from engine.cpu import ExpertLayer, Linear, Team, active_isa, available_isas, choose_cores

TWO_NODES = [(0, 0), (1, 0), (2, 0), (8, 1), (9, 1), (10, 1)]


def test_default_is_one_thread_per_usable_core():
    assert choose_cores(0, TWO_NODES, 0) == TWO_NODES


def test_a_control_group_quota_limits_the_default_but_not_a_wish():
    assert len(choose_cores(0, TWO_NODES, 2.5)) == 2
    assert len(choose_cores(0, TWO_NODES, 0.3)) == 1
    assert len(choose_cores(5, TWO_NODES, 2.5)) == 5


def test_fewer_threads_than_cores_are_spread_over_the_nodes():
    assert choose_cores(4, TWO_NODES, 0) == [(0, 0), (1, 0), (8, 1), (9, 1)]


def test_more_threads_than_cores_share_cpus():
    chosen = choose_cores(8, TWO_NODES, 0)
    assert len(chosen) == 8
    assert [node for _, node in chosen] == sorted(node for _, node in chosen)


def test_a_negative_number_of_threads_is_refused():
    with pytest.raises(ValueError, match="0 \\(automatic\\) or positive"):
        choose_cores(-1, TWO_NODES, 0)


def test_given_cpus_are_used():
    cpu = _csrc.usable_cores()[-1][0]
    team = Team(cpus=[cpu])
    assert team.cpus == (cpu,)
    with pytest.raises(ValueError, match="3 threads were asked for"):
        Team(3, cpus=[cpu])


def test_sharing_cpus_is_told():
    cpu = _csrc.usable_cores()[0][0]
    assert any("share 1 CPUs" in note for note in Team(cpus=[cpu, cpu]).notes)


@pytest.mark.parametrize("threads", range(1, 9))
def test_any_number_of_threads_computes_the_same(threads):
    weight = torch.arange(77 * 40, dtype=torch.float32).reshape(77, 40) / 1000
    linear = Linear(Team(threads), "f32", weight, rows=77, cols=40)
    x = torch.ones(3, 40)
    for _ in range(50):
        torch.testing.assert_close(linear(x), x @ weight.T)


def test_concurrent_callers_each_get_their_own_result():
    team = Team()
    weight = torch.randn(64, 64)
    linear = Linear(team, "f32", weight, rows=64, cols=64)
    layer = ExpertLayer(team, "f32", 2, 64, 64)
    for expert in range(2):
        layer.load(expert, weight, weight, weight)
    wrong: list[str] = []

    def call(number: int) -> None:
        x = torch.full((1 + number * 5, 64), float(number))
        ids = torch.full((x.shape[0], 1), number % 2, dtype=torch.int32)
        hidden = torch.nn.functional.silu(x @ weight.T) * (x @ weight.T)
        for _ in range(40):
            if not torch.allclose(linear(x), x @ weight.T, rtol=1e-2, atol=1e-2):
                wrong.append(f"linear {number}")
            y = layer.forward(x, ids, torch.ones(x.shape[0], 1))
            if not torch.allclose(
                y, hidden @ weight.T, rtol=3e-2, atol=3e-2 * float(hidden.abs().max() + 1) * 64
            ):
                wrong.append(f"experts {number}")

    threads = [threading.Thread(target=call, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_other_python_threads_run_during_a_call():
    weight = torch.randn(2048, 2048)
    linear = Linear(Team(), "f32", weight, rows=2048, cols=2048)
    x = torch.randn(300, 2048)
    done = threading.Event()
    turns = 0

    def work() -> None:
        for _ in range(3):
            linear(x)
        done.set()

    thread = threading.Thread(target=work)
    thread.start()
    while not done.is_set():
        turns += 1
        time.sleep(0.001)
    thread.join()
    assert turns > 3


def test_an_idle_team_costs_no_processor_time():
    team = Team(4)
    linear = Linear(team, "f32", torch.ones(4, 4), rows=4, cols=4)
    linear(torch.ones(1, 4))
    time.sleep(0.3)  # spinning has ended
    before = time.process_time()
    time.sleep(0.5)
    assert time.process_time() - before < 0.1


def test_the_callers_affinity_is_left_as_it_was():
    before = os.sched_getaffinity(0)
    Linear(Team(), "f32", torch.ones(64, 64), rows=64, cols=64)(torch.ones(1, 64))
    assert os.sched_getaffinity(0) == before


def test_a_forked_child_is_told_and_does_not_hang():
    # In a process of its own, because a fork of the test process would copy its threads' locks.
    script = """
import os, sys, torch
from engine.cpu import Linear, Team
linear = Linear(Team(3), "f32", torch.ones(4, 4), rows=4, cols=4)
x = torch.ones(1, 4)
linear(x)
child = os.fork()
if child == 0:
    try:
        linear(x)
    except RuntimeError as error:
        ok = "belongs to the parent" in str(error)
        del linear
        fresh = Linear(Team(2), "f32", torch.ones(4, 4), rows=4, cols=4)
        os._exit(0 if ok and bool((fresh(x) == 4).all()) else 3)
    os._exit(4)
_, status = os.waitpid(child, 0)
assert bool((linear(x) == 4).all())
sys.exit(os.waitstatus_to_exitcode(status))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], timeout=60, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_teams_leave_no_thread_behind():
    def threads() -> int:
        return sum(1 for _ in Path("/proc/self/task").iterdir())

    Team(3)
    before = threads()
    for _ in range(30):
        Linear(Team(3), "f32", torch.ones(4, 4), rows=4, cols=4)(torch.ones(1, 4))
    assert threads() <= before + 1


def test_scalar_is_always_there_and_the_highest_is_the_default():
    assert available_isas()[0] == "scalar"
    assert active_isa({}) == available_isas()[-1]


@pytest.mark.parametrize("isa", available_isas())
def test_the_environment_forces_a_variant(monkeypatch, isa):
    monkeypatch.setenv("KT_CPU_ISA", isa)
    assert active_isa() == isa
    assert Team(1).isa == isa


def test_a_variant_that_is_not_here_is_refused_with_what_is():
    with pytest.raises(
        ValueError, match="KT_CPU_ISA=riscv is not available here; this machine offers scalar"
    ):
        active_isa({"KT_CPU_ISA": "riscv"})
    with pytest.raises(ValueError, match="this machine offers scalar"):
        _csrc.Team([(0, 0)], "riscv")


def test_impossible_teams_are_refused():
    with pytest.raises(ValueError, match="at least one CPU"):
        _csrc.Team([], "scalar")
    with pytest.raises(ValueError, match="cannot be negative"):
        _csrc.Team([(-1, 0)], "scalar")
    with pytest.raises(ValueError, match="listed together"):
        _csrc.Team([(0, 0), (0, 1), (0, 0)], "scalar")


def test_probes_give_plausible_limits():
    team = Team()
    assert 1e8 < team.read_bandwidth(1 << 26, 2) < 1e13
    assert 1e8 < team.fma_peak(seconds=0.02) < 1e14
    assert 0 < _csrc.job_seconds(team.native, 0.0, 100) < 1
    assert 0 < _csrc.job_seconds(team.native, 1e-3, 5) < 1
    with pytest.raises(ValueError, match="at least one round"):
        _csrc.job_seconds(team.native, 0.0, 0)
    scalar = Team(1, isa="scalar")
    assert scalar.fma_peak(bf16=True, seconds=0.01) == 0
    assert np.isfinite(scalar.fma_peak(seconds=0.01))
