import json
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from engine.config import EngineConfig
from engine.errors import CheckpointError
from engine.runner import Row, Runner


def prompt(length: int, seed: int = 0) -> list[int]:
    return torch.randint(0, 300, (length,), generator=torch.Generator().manual_seed(length + seed)).tolist()


def last_logits(runner: Runner, ids: list[int]) -> Any:
    sequence = runner.open_sequence()
    (logits,) = runner.step([Row(sequence, ids, want_logits=True)])
    runner.close_sequence(sequence)
    return logits


MIXES = [
    {"other": "Q4_1", "token_embd": "Q8_0"},
    {"other": "Q8_0"},
    {"other": "F32"},
    {"other": "F16"},
    {"other": "BF16"},
    # One format for q and k, another for v, as mixed quantisations have it: no joined matrix is possible.
    {"other": "Q4_1", "attn_v": "Q8_0", "ffn_down": "Q8_0", "token_embd": "Q4_1", "output": "F16"},
]


@pytest.mark.parametrize("length", [1, 17, 130])
@pytest.mark.parametrize("kinds", MIXES, ids=lambda kinds: "-".join(kinds.values()))
def test_gguf_logits_agree_with_the_oracle(llama, bound, kinds, length):
    case = llama(kinds, tied="output" not in kinds)
    ids = prompt(length)
    expected = case.logits(ids)[-1]
    error = (last_logits(case.load(), ids) - expected).abs().max()
    assert error <= bound(expected, bf16_weights=kinds["other"] == "BF16", integers=kinds["other"][0] == "Q")


@pytest.mark.parametrize(
    "sizes",
    [
        {"heads": 9, "kv_heads": 3, "head_dim": 64, "hidden": 576, "intermediate": 416},
        {"heads": 3, "kv_heads": 3, "head_dim": 32, "hidden": 96, "intermediate": 224, "layers": 3},
        {"heads": 4, "kv_heads": 1, "head_dim": 96, "hidden": 160, "intermediate": 96},
    ],
)
def test_other_sizes_agree_with_the_oracle(llama, bound, sizes):
    case = llama({"other": "Q8_0"}, seed=4, **sizes)
    ids = prompt(17)
    expected = case.logits(ids)[-1]
    error = (last_logits(case.load(), ids) - expected).abs().max()
    assert error <= bound(
        expected, layers=sizes.get("layers", 2), bf16_weights=False, integers=True, width=sizes["hidden"]
    )


def test_sixteen_greedy_tokens_agree_with_the_oracle(llama, bound):
    case = llama({"other": "Q4_1", "token_embd": "Q8_0"}, seed=2)
    ids = prompt(17)
    runner = case.load()
    sequence = runner.open_sequence()
    (logits,) = runner.step([Row(sequence, ids, want_logits=True)])
    decided = 0
    for token, oracle in case.greedy(ids, 16):
        error = bound(oracle, bf16_weights=False, integers=True)
        assert (logits - oracle).abs().max() <= error
        if oracle.topk(2).values.diff().abs() > 2 * error:
            assert int(logits.argmax()) == token
            decided += 1
        (logits,) = runner.step([Row(sequence, [token], want_logits=True)])
    assert decided >= 14


def test_hub_checkpoints_rotate_halves_and_not_neighbours(llama, bound, tmp_path):
    """The same model as safetensors, whose rows are in the hub's order."""
    case = llama({"other": "F32"})
    tensors = {k: v.contiguous() for k, v in case.oracle.state_dict().items() if k != "lm_head.weight"}
    save_file(tensors, tmp_path / "model.safetensors")
    config = case.oracle.config.to_dict() | {"architectures": ["LlamaForCausalLM"]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    ids = prompt(33)
    expected = case.logits(ids)[-1]
    runner = Runner.load(EngineConfig(tmp_path, cpu_threads=1, max_total_tokens=128))
    assert (last_logits(runner, ids) - expected).abs().max() <= bound(expected, bf16_weights=False)


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4}}, "rope_scaling"),
        ({"rope_parameters": {"rope_type": "llama3", "rope_theta": 1e4}}, "rope_scaling"),
        ({"hidden_act": "gelu"}, "hidden_act"),
        ({"attention_bias": True}, "attention_bias"),
        ({"num_key_value_heads": 3}, "num_key_value_heads"),
        ({"rms_norm_eps": None}, "rms_norm_eps"),
        ({"rms_norm_eps": "small"}, "rms_norm_eps"),
        ({"vocab_size": -5}, "vocab_size"),
        ({"num_hidden_layers": 1 << 40}, "model.layers.0"),
    ],
)
def test_settings_that_would_be_computed_wrongly_are_refused(tmp_path, change, names):
    settings = {
        "architectures": ["LlamaForCausalLM"], "vocab_size": 8, "hidden_size": 8, "intermediate_size": 8,
        "num_hidden_layers": 1, "num_attention_heads": 4, "max_position_embeddings": 8, "rms_norm_eps": 1e-5,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(settings | change))
    save_file({"model.embed_tokens.weight": torch.zeros(8, 8)}, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=names) as raised:
        Runner.load(EngineConfig(tmp_path, cpu_threads=1))
    assert str(tmp_path) in str(raised.value)
    assert "\n" not in str(raised.value)
