"""Float weights that become integers at load."""

import pytest
import torch

from engine import budget, cpu
from engine.config import EngineConfig
from engine.progress import Progress
from engine.runner import Row, Runner

# Relative root-mean-square error of the weights: at most, and at least half of that (random weights, largest of a
# row or of 32 columns about 3 to 4 deviations): step / sqrt(12) of values whose deviation is 1.
LOSS = {"int8": 0.013, "int8_g32": 0.008, "int4": 0.25, "int4_g32": 0.14}


def logits(runner: Runner) -> torch.Tensor:
    ids = torch.randint(0, 300, (17,), generator=torch.Generator().manual_seed(4)).tolist()
    (found,) = runner.step([Row(runner.open_sequence(), ids, want_logits=True)])
    assert found is not None
    return found


@pytest.mark.parametrize("held", ["bf16", "fp8", "f32"])
@pytest.mark.parametrize("store", LOSS)
def test_weights_become_integers(minimax, monkeypatch, held, store):
    layers: list[cpu.ExpertLayer] = []
    make = cpu.ExpertLayer.__init__

    def note(self, *given, **named):
        make(self, *given, **named)
        layers.append(self)

    case = minimax(store=held, seed=3)
    plain = logits(case.load())
    monkeypatch.setattr(cpu.ExpertLayer, "__init__", note)
    told: list[Progress] = []
    config = EngineConfig(case.path, cpu_threads=1, max_total_tokens=1024, cpu_store=store)
    runner = Runner.load(config, told.append)
    changed = logits(runner)
    error = float((changed - plain).norm() / plain.norm())
    assert 0 < error < 8 * LOSS[store]
    details = [each.detail for each in told if "relative_error" in each.detail]
    assert [each.split()[0] for each in details] == ["linear", "experts"] or [
        each.split()[0] for each in details
    ] == ["experts", "linear"]
    for detail in details:
        assert f"stored as {store}, relative_error" in detail
        assert LOSS[store] / 4 < float(detail.split("relative_error ")[1].split()[0]) < LOSS[store]
    planned = budget.read_budget_inputs(case.path)[1].stored(store)
    # Tiles of 16 rows and blocks of 32 columns are filled up.
    assert planned.experts == pytest.approx(sum(layer.nbytes for layer in layers), rel=0.02)
    assert runner.stats.weight_bytes == planned.total
    assert runner.kernels.store == store


def test_integers_stay_as_they_are(llama):
    case = llama({"other": "Q8_0"})
    kept, changed = case.load(), case.load(cpu_store="int4")
    assert torch.equal(logits(kept), logits(changed))
