"""Models on the kernel variant that this machine runs by itself, which may round activations to bfloat16."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from engine.runner import Row

pytestmark = pytest.mark.usefixtures("own_variant")


def logits_of(case: Any, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The oracle's and ours after the last of some tokens."""
    ids = torch.randint(0, 300, (length,), generator=torch.Generator().manual_seed(length)).tolist()
    runner = case.load()
    (logits,) = runner.step([Row(runner.open_sequence(), ids, want_logits=True)])
    return case.logits(ids)[-1], logits


@pytest.mark.parametrize("length", [1, 17, 130])
@pytest.mark.parametrize("kind", ["Q4_1", "Q8_0", "F32", "BF16"])
def test_dense_models_agree_with_the_oracle(llama, bound, kind, length):
    expected, logits = logits_of(llama({"other": kind, "token_embd": kind}, seed=9), length)
    limit = bound(expected, bf16_weights=kind == "BF16", integers=kind.startswith("Q"))
    assert (logits - expected).abs().max() <= limit


@pytest.mark.parametrize("length", [1, 17, 130])
@pytest.mark.parametrize("store", ["fp8", "bf16"])
def test_mixtures_agree_where_every_expert_is_chosen(minimax, bound, store, length):
    # Without a choice there are no near ties that rounding could decide otherwise.
    case = minimax(store=store, seed=5, experts=4, top_k=4)
    expected, logits = logits_of(case, length)
    assert (logits - expected).abs().max() <= bound(expected, bf16_weights=True)
