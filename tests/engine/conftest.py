"""Small random checkpoints in the published layouts, each with transformers as the oracle of what it computes.

The oracle is float32 and holds exactly the values that are stored: FP8 is dequantised here, because transformers
takes the wrong scales where the last block is partial.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from engine.config import EngineConfig
from engine.runner import Runner
from tests.engine.int4_stores import store_int4

Tensors = dict[str, torch.Tensor]


@dataclass
class Case:
    """A checkpoint on disk and the model it stands for."""

    path: Path
    oracle: Any
    config: dict[str, Any]

    def logits(self, ids: list[int]) -> torch.Tensor:
        """The oracle's logits after each token, ``[tokens, vocab]``."""
        with torch.inference_mode():
            return self.oracle(torch.tensor([ids]), use_cache=False).logits[0].float()

    def greedy(self, ids: list[int], count: int) -> list[tuple[int, torch.Tensor]]:
        """The oracle's next tokens, each the likeliest, with the logits that chose it; no cache is used."""
        steps = []
        for _ in range(count):
            logits = self.logits([*ids, *(token for token, _ in steps)])[-1]
            steps.append((int(logits.argmax()), logits))
        return steps

    def router_margin(self, ids: list[int]) -> float:
        """How far the last token's worst chosen expert is from the best one left out, over all layers."""
        margins: list[float] = []

        def note(_module: object, inputs: tuple[torch.Tensor, ...], output: tuple[torch.Tensor, ...]) -> None:
            scores = torch.sigmoid(output[0][-1].float()) + inputs[1]
            k = output[2].shape[-1]
            best = scores.sort(descending=True).values
            margins.append(float(best[k - 1] - best[k]) if k < len(best) else 1.0)

        hooks = [layer.mlp.gate.register_forward_hook(note) for layer in self.oracle.model.layers]
        self.logits(ids)
        for hook in hooks:
            hook.remove()
        return min(margins)

    def routed(self, ids: list[int]) -> list[list[int]]:
        """How many tokens the oracle sends to each expert, a list for each layer."""
        counts: list[list[int]] = []

        def note(_module: object, _inputs: object, output: tuple[torch.Tensor, ...]) -> None:
            counts.append(torch.bincount(output[2].flatten(), minlength=output[0].shape[-1]).tolist())

        hooks = [layer.mlp.gate.register_forward_hook(note) for layer in self.oracle.model.layers]
        self.logits(ids)
        for hook in hooks:
            hook.remove()
        return counts

    def load(self, **settings: Any) -> Runner:
        """The engine on this checkpoint."""
        return Runner.load(
            EngineConfig(
                self.path,
                **({"cpu_threads": 1, "max_total_tokens": 1024, "cpu_numerics": "exact"} | settings),
            )
        )


@dataclass
class Recipe:
    """What to make. The sizes are ragged on purpose: no FP8 block and no kernel tile fits evenly."""

    store: str = "fp8"
    seed: int = 0
    layers: int = 2
    hidden: int = 192
    intermediate: int = 96
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 32
    vocab: int = 300
    experts: int = 8
    top_k: int = 3
    rotary: int = 16
    shards: int = 1
    index: bool = True
    config: dict[str, Any] = field(default_factory=dict)


def block_fp8(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """FP8 with a scale for each 128x128 block: stored values, scales, and the float32 they stand for."""
    rows, columns = x.shape
    spread = [torch.arange(n) // 128 for n in (rows, columns)]
    scale = torch.zeros(-(-rows // 128), -(-columns // 128))
    for i in range(scale.shape[0]):
        for j in range(scale.shape[1]):
            scale[i, j] = x[128 * i : 128 * i + 128, 128 * j : 128 * j + 128].abs().max() / 448
    full = scale[spread[0]][:, spread[1]]
    stored = (x / full).to(torch.float8_e4m3fn)
    return stored, scale, stored.float() * full


def randomize(model: torch.nn.Module, seed: int) -> None:
    """Weights large enough that every part of the model shows in its logits."""
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in [*model.named_parameters(), *model.named_buffers()]:
        if "inv_freq" in name:
            continue
        noise = torch.randn(parameter.shape, generator=generator)
        if "norm" in name:
            value = 1 + 0.1 * noise
        elif "bias" in name:
            value = 0.15 * noise
        elif "embed" in name:
            value = noise
        else:
            value = noise * ((3.0 if "lm_head" in name else 1.5) / math.sqrt(parameter.shape[-1]))
        parameter.data.copy_(value)


def save_shards(tensors: Tensors, folder: Path, shards: int, *, index: bool) -> None:
    names = list(tensors)
    where = {}
    for number in range(shards):
        file = f"model-{number + 1:05d}-of-{shards:05d}.safetensors" if shards > 1 else "model.safetensors"
        part = names[number::shards]
        save_file({name: tensors[name].contiguous() for name in part}, folder / file)
        where |= dict.fromkeys(part, file)
    if index:
        document = {"metadata": {}, "weight_map": where}
        (folder / "model.safetensors.index.json").write_text(json.dumps(document))


def make_minimax(folder: Path, recipe: Recipe) -> Case:
    """A MiniMax-M2 checkpoint under the hub's names."""
    from transformers import MiniMaxM2Config, MiniMaxM2ForCausalLM

    r = recipe
    common = {
        "vocab_size": r.vocab,
        "hidden_size": r.hidden,
        "intermediate_size": r.intermediate,
        "num_hidden_layers": r.layers,
        "num_attention_heads": r.heads,
        "num_key_value_heads": r.kv_heads,
        "head_dim": r.head_dim,
        "num_local_experts": r.experts,
        "num_experts_per_tok": r.top_k,
        "max_position_embeddings": 512,
        "rms_norm_eps": 1e-3,
        "rotary_dim": r.rotary,
        "rope_theta": 10000.0,
    }
    oracle = MiniMaxM2ForCausalLM._from_config(
        MiniMaxM2Config(**common), attn_implementation="eager", experts_implementation="eager"
    ).eval()
    randomize(oracle, r.seed)
    hub: Tensors = {}
    for name, value in oracle.state_dict().items():
        kept = name.endswith(("norm.weight", "embed_tokens.weight", "lm_head.weight"))
        if name.endswith("experts.gate_up_proj"):
            experts = name.removesuffix("mlp.experts.gate_up_proj") + "block_sparse_moe.experts."
            for e in range(r.experts):
                for part, rows in (("w1", slice(0, r.intermediate)), ("w3", slice(r.intermediate, None))):
                    _store(hub, f"{experts}{e}.{part}.weight", value[e, rows], r.store)
        elif name.endswith("experts.down_proj"):
            experts = name.removesuffix("mlp.experts.down_proj") + "block_sparse_moe.experts."
            for e in range(r.experts):
                _store(hub, f"{experts}{e}.w2.weight", value[e], r.store)
        elif ".mlp." in name:  # router and its bias are stored as they are
            hub[name.replace(".mlp.", ".block_sparse_moe.")] = value.clone()
        else:
            _store(hub, name, value, "bf16" if kept and r.store == "fp8" else r.store)
    config = common | {"architectures": ["MiniMaxM2ForCausalLM"], "model_type": "minimax_m2"} | r.config
    if r.store == "fp8":
        config["quantization_config"] = {
            "quant_method": "fp8", "fmt": "float8_e4m3fn", "weight_block_size": [128, 128],
            "activation_scheme": "dynamic",
        }  # fmt: skip
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({k: v for k, v in config.items() if v != "absent"}))
    save_shards(hub, folder, r.shards, index=r.index)
    return Case(folder, oracle, config)


def _store(hub: Tensors, name: str, value: torch.Tensor, store: str) -> None:
    """Put a tensor into the checkpoint, and what was stored back into the oracle's own tensor."""
    if store == "fp8":
        hub[name], hub[name + "_scale_inv"], exact = block_fp8(value)
    elif store.startswith("fp8_rows"):
        scale = value.abs().amax(-1, keepdim=True) / 448
        hub[name] = (value / scale).to(torch.float8_e4m3fn)
        hub[name + "_scale"] = scale if store == "fp8_rows" else scale[:, 0]
        exact = hub[name].float() * scale
    elif store.startswith(("int4", "gptq")):
        exact = store_int4(hub, name, value, store)
    else:
        hub[name] = value.to({"bf16": torch.bfloat16, "f32": torch.float32}[store])
        exact = hub[name].float()
    value.copy_(exact)


def make_llama(path: Path, recipe: Recipe, kinds: dict[str, str], *, tied: bool = True) -> Case:
    """A llama GGUF as llama.cpp writes it, ``kinds`` giving a tensor's type by its name's stem."""
    from transformers import LlamaConfig, LlamaForCausalLM

    r = recipe
    oracle = LlamaForCausalLM._from_config(
        LlamaConfig(
            vocab_size=r.vocab,
            hidden_size=r.hidden,
            intermediate_size=r.intermediate,
            num_hidden_layers=r.layers,
            num_attention_heads=r.heads,
            num_key_value_heads=r.kv_heads,
            head_dim=r.head_dim,
            max_position_embeddings=512,
            rms_norm_eps=1e-5,
            rope_theta=20000.0,
            tie_word_embeddings=tied,
        ),
        attn_implementation="eager",
    ).eval()
    randomize(oracle, r.seed)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(r.layers)
    writer.add_context_length(512)
    writer.add_embedding_length(r.hidden)
    writer.add_feed_forward_length(r.intermediate)
    writer.add_head_count(r.heads)
    writer.add_head_count_kv(r.kv_heads)
    writer.add_key_length(r.head_dim)
    writer.add_value_length(r.head_dim)
    writer.add_rope_dimension_count(r.head_dim)
    writer.add_rope_freq_base(20000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(r.vocab)
    writer.add_token_list([f"t{i}" for i in range(r.vocab)])
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, r.layers)
    for name, value in oracle.state_dict().items():
        if name == "lm_head.weight" and tied:
            continue
        stem = names.get_name(name.removesuffix(".weight"))
        heads = {"q_proj": r.heads, "k_proj": r.kv_heads}.get(name.split(".")[-2])
        kind = kinds.get(stem.split(".")[-1], kinds["other"] if value.ndim > 1 else "F32")
        kind_number = gguf.GGMLQuantizationType[kind]
        data = gguf.quants.quantize(_interleave(value, heads).numpy(), kind_number)
        exact = torch.from_numpy(np.array(gguf.quants.dequantize(data, kind_number), dtype=np.float32))
        value.copy_(_interleave(exact.view(value.shape), heads, back=True))
        writer.add_tensor(stem + ".weight", data, raw_dtype=kind_number)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return Case(path, oracle, {})


def _interleave(x: torch.Tensor, heads: int | None, *, back: bool = False) -> torch.Tensor:
    """The order of rows in which llama.cpp keeps q and k: the two halves of each head take turns."""
    if heads is None:
        return x
    half = x.shape[0] // heads // 2
    shape = (heads, half, 2) if back else (heads, 2, half)
    return x.view(*shape, -1).transpose(1, 2).reshape(x.shape)


@pytest.fixture(autouse=True)
def _one_torch_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def minimax(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Case]:
    """Makes MiniMax-M2 checkpoints; the same recipe gives the same files. Do not write into them."""
    made: dict[str, Case] = {}

    def make(**recipe: Any) -> Case:
        key = repr(sorted(recipe.items()))
        if key not in made:
            made[key] = make_minimax(tmp_path_factory.mktemp("minimax") / "model", Recipe(**recipe))
        return made[key]

    return make


@pytest.fixture(scope="session")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Case]:
    """Makes llama GGUF files; the same arguments give the same file. Do not write into it."""
    made: dict[str, Case] = {}

    def make(kinds: dict[str, str], *, tied: bool = True, **recipe: Any) -> Case:
        key = repr((kinds, tied, sorted(recipe.items())))
        if key not in made:
            path = tmp_path_factory.mktemp("llama") / "model.gguf"
            made[key] = make_llama(path, Recipe(**recipe), kinds, tied=tied)
        return made[key]

    return make
