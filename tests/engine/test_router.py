import numpy as np
import pytest
import torch

from engine import _csrc
from engine.cpu import Team


def route(logits, bias=None, *, k, score, groups=None, renorm=False, scale=1.0, hits=None):
    count, keep = groups or (0, 0)
    ids, weights = _csrc.route(
        Team(2).native,
        logits.numpy(),
        None if bias is None else bias.numpy(),
        k,
        score,
        count,
        keep,
        renorm,
        scale,
        np.zeros(logits.shape[1], dtype=np.int64) if hits is None else hits,
    )
    return torch.from_numpy(ids), torch.from_numpy(weights)


def oracle(logits, bias, k, score, groups, renorm, scale):
    """The same in float64, one token at a time, by sorting in plain Python."""
    ids, weights = [], []
    for row in logits.astype(np.float64):
        shifted = np.exp(row - row.max())
        scores = {"sigmoid": 1 / (1 + np.exp(-row)), "softmax": shifted / shifted.sum(), "topk_softmax": row}[
            score
        ]
        choice = scores + (0 if bias is None else bias.astype(np.float64))
        if groups:
            parts = choice.reshape(groups[0], -1)
            best = np.argsort(-np.sort(parts)[:, -2:].sum(1), kind="stable")[: groups[1]]
            choice = np.where(np.isin(np.arange(groups[0]), best)[:, None], parts, -np.inf).reshape(-1)
        chosen = np.argsort(-choice, kind="stable")[:k]
        weight = scores[chosen]
        if score == "topk_softmax":
            weight = np.exp(weight - weight.max()) / np.exp(weight - weight.max()).sum()
        ids.append(chosen)
        weights.append((weight / weight.sum() if renorm else weight) * scale)
    return np.array(ids), np.array(weights)


@pytest.mark.parametrize("score", ["sigmoid", "softmax", "topk_softmax"])
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("groups", [None, (4, 2), (8, 3), (1, 1)])
@pytest.mark.parametrize(("renorm", "scale"), [(False, 1.0), (True, 1.0), (True, 2.5)])
@pytest.mark.parametrize("tokens", [1, 50])
def test_every_mode_agrees_with_the_oracle(tokens, score, with_bias, groups, renorm, scale):
    random = np.random.default_rng(7)
    logits = random.normal(size=(tokens, 32)).astype(np.float32) * 3
    bias = random.normal(size=32).astype(np.float32) * 0.3 if with_bias else None
    hits = np.zeros(32, dtype=np.int64)
    ids, weights = route(
        torch.from_numpy(logits),
        None if bias is None else torch.from_numpy(bias),
        k=6, score=score, groups=groups, renorm=renorm, scale=scale, hits=hits,
    )  # fmt: skip
    np.testing.assert_array_equal(hits, np.bincount(ids.flatten().numpy(), minlength=32))
    expected_ids, expected_weights = oracle(logits, bias, 6, score, groups, renorm, scale)
    assert ids.dtype == torch.int32
    assert weights.dtype == torch.float32
    np.testing.assert_array_equal(ids.numpy(), expected_ids)
    np.testing.assert_allclose(weights.numpy(), expected_weights, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("experts", [8, 64, 256])
def test_equals_are_taken_in_the_order_of_their_numbers(experts):
    logits = torch.zeros(3, experts)
    logits[1, 5] = 1.0
    ids, weights = route(logits, k=4, score="sigmoid", renorm=True)
    assert ids.tolist() == [[0, 1, 2, 3], [5, 0, 1, 2], [0, 1, 2, 3]]
    assert weights[0].tolist() == [0.25] * 4


def test_equal_groups_are_kept_in_the_order_of_their_numbers():
    ids, _ = route(torch.zeros(1, 8), k=4, score="sigmoid", groups=(4, 2))
    assert ids.tolist() == [[0, 1, 2, 3]]


def test_a_dropped_group_loses_to_negative_scores():
    """All biased scores of the kept group are negative; a mask of zeros would let the dropped group win."""
    logits, bias = torch.tensor([[2.0, 1.0, 0.0, -1.0]]), torch.tensor([-3.0, -3.0, -9.0, -9.0])
    ids, weights = route(logits, bias, k=2, score="sigmoid", groups=(2, 1))
    assert ids.tolist() == [[0, 1]]
    torch.testing.assert_close(weights, torch.sigmoid(logits[:, :2]))


def test_the_bias_chooses_and_does_not_weigh():
    logits, bias = torch.tensor([[4.0, 0.0, -4.0]]), torch.tensor([-10.0, 0.0, 0.0])
    ids, weights = route(logits, bias, k=2, score="sigmoid")
    assert ids.tolist() == [[1, 2]]
    torch.testing.assert_close(weights, torch.sigmoid(torch.tensor([[0.0, -4.0]])))


def test_saturated_scores_give_exact_weights():
    logits = torch.tensor([[1e8, -1e8, 1e8, -1e8]])
    ids, weights = route(logits, torch.tensor([-0.9, -0.2, -0.5, -0.3]), k=2, score="sigmoid", renorm=True)
    assert ids.tolist() == [[2, 0]]
    assert weights.tolist() == [[0.5, 0.5]]


def test_no_score_at_all_gives_no_division_by_zero():
    _, weights = route(torch.full((1, 4), -1e9), k=2, score="sigmoid", renorm=True)
    assert weights.tolist() == [[0.0, 0.0]]


def test_what_cannot_be_chosen_is_refused():
    logits = torch.zeros(1, 8)
    with pytest.raises(ValueError, match="score is sigmoid, softmax or topk_softmax, not 'loudest'"):
        route(logits, k=2, score="loudest")
    with pytest.raises(ValueError, match="cannot choose 9 of 8 experts"):
        route(logits, k=9, score="sigmoid")
    with pytest.raises(ValueError, match="cannot choose 2 of 8 experts in 3 groups"):
        route(logits, k=2, score="sigmoid", groups=(3, 1))
    with pytest.raises(ValueError, match="one number for each expert"):
        route(logits, torch.zeros(7), k=2, score="sigmoid")
