from __future__ import annotations

from pathlib import Path

import pytest

from kt_tui.catalog.known import KnownModel, known_models
from kt_tui.catalog.shape import ModelShape, ShapeError, checkpoint_bytes, shape_of_table, weight_bytes
from kt_tui.paths import Paths

MODELS = {model.name: model for model in known_models(Paths(*[Path("/nonexistent")] * 4))[0]}
SHAPED = [model for model in MODELS.values() if model.shape is not None]


def shape(name: str) -> ModelShape:
    found = MODELS[name].shape
    assert found is not None
    return found


@pytest.mark.parametrize("model", SHAPED, ids=lambda model: model.name)
def test_the_parameters_of_a_shape_are_those_published(model: KnownModel) -> None:
    assert model.shape is not None
    assert model.parameters is not None
    assert model.shape.parameters == pytest.approx(model.parameters, rel=0.005)


@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("MiniMax-M2", 230e9),
        ("DeepSeek-R1-0528", 688.6e9),
        ("Kimi-K2-Thinking", 594e9),
        ("DeepSeek-R1-GGUF", 404.4e9),
        ("gpt-oss-120b", 65.2e9),
        ("gpt-oss-20b", 13.8e9),
        ("Qwen3-30B-A3B", 61.1e9),
    ],
)
def test_the_size_on_disk_is_that_of_the_published_files(name: str, published: float) -> None:
    assert checkpoint_bytes(shape(name), MODELS[name].formats) == pytest.approx(published, rel=0.015)


def test_parts_of_a_large_model() -> None:
    r1 = shape("DeepSeek-R1-0528")
    assert (r1.moe_layers, r1.expert_parameters()) == (58, 3 * 7168 * 2048)
    assert r1.groups()["experts"] == 58 * 256 * 3 * 7168 * 2048
    assert r1.kv_elements_per_token() == 61 * 576
    assert shape("MiniMax-M2.1").kv_elements_per_token() == 62 * 2 * 8 * 128
    assert shape("gpt-oss-120b").kv_elements_per_token() == 18 * 2 * 8 * 64
    assert shape("Qwen3-Next-80B-A3B").kv_elements_per_token() == 12 * 2 * 2 * 256


def test_limits_and_defaults_of_the_registry() -> None:
    assert MODELS["MiniMax-M2.1"].limits == {"tensor-parallel-size": 4}
    assert MODELS["MiniMax-M3"].limits == {"tensor-parallel-size": 8}
    assert MODELS["MiniMax-M2.1"].defaults["reasoning-parser"] == "minimax-append-think"
    assert MODELS["DeepSeek-R1-0528"].defaults["gpu-experts"] == 1


GOOD = {"layers": 2, "hidden": 8, "vocab": 9, "context_length": 16, "heads": 2, "kv_heads": 1, "head_dim": 4}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, "dense_intermediate is missing"),
        ({"experts": 4, "experts_per_token": 5, "moe_intermediate": 8}, "experts_per_token=5 of 4"),
        ({"experts": 4, "experts_per_token": 2}, "moe_intermediate is missing"),
        ({"dense_intermediate": 8, "layers": 1 << 40}, "layers=1099511627776 makes no sense"),
        ({"dense_intermediate": 8, "hidden": True}, "hidden=True makes no sense"),
        ({"dense_intermediate": 8, "linear_layers": 3}, "more special layers than the 2"),
        ({"dense_intermediate": 8, "attention": "x"}, "neither gqa nor mla"),
        ({"dense_intermediate": 8, "legs": 4}, "there is no dimension 'legs'"),
    ],
)
def test_dimensions_that_make_no_sense_are_named(change: dict[str, object], words: str) -> None:
    with pytest.raises(ShapeError, match=words):
        shape_of_table(GOOD | change)


def test_an_unknown_format_is_named() -> None:
    with pytest.raises(ShapeError, match="'int3' is no known format"):
        weight_bytes(8, "int3")
