"""What a configuration says of how its weights are quantised: accepted or refused before any tensor is looked at.

Sources: ``quantization_config`` as written by transformers' FP8 and FBGEMM-FP8, by compressed-tensors
(``QuantizationConfig``) and by AutoGPTQ and its successors (``quantize_config.json``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.errors import CheckpointError
from engine.weights.index import Checkpoint

_FP8_ROWS = {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True}
_INT4_GROUPS = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32, "symmetric": True}
_GPTQ = {"bits": 4, "group_size": 128, "sym": True, "desc_act": False}
_GPTQ_ZEROS = {None: (7, 8), "": (7, 8), "gptq": (7,), "gptq_v2": (8,)}


def check_quantization(checkpoint: Checkpoint) -> None:
    """Refuse storage that the loader would misread.

    Raises:
        CheckpointError: The weights are quantised in a way that no kernel reads; the message says which can be.
    """
    asked = checkpoint.config.get("quantization_config")
    if not asked:
        return
    method = asked.get("quant_method") if isinstance(asked, dict) else None
    if method == "fbgemm_fp8":
        return
    if isinstance(asked, dict) and method == "compressed-tensors":
        _check_compressed(checkpoint, asked)
    elif isinstance(asked, dict) and method == "gptq":
        _check_gptq(checkpoint, asked)
    elif method != "fp8":
        raise _refusal(checkpoint, f"is quantised with {str(method)[:80]}")
    elif asked.get("weight_block_size") != [128, 128] or asked.get("fmt", "float8_e4m3fn") not in (
        "e4m3",
        "float8_e4m3fn",
    ):
        raise CheckpointError(
            f"{checkpoint.path} stores {asked.get('fmt', 'FP8')} with blocks of {asked.get('weight_block_size')}; "
            "only float8_e4m3fn with blocks of [128, 128] is supported: take such a model, or BF16"
        )


def int4_layout(config: Mapping[str, Any]) -> str | None:
    """In which tensors the configuration says that 4-bit integers lie: ``pack-quantized``, ``gptq`` or None."""
    asked = config.get("quantization_config")
    if not isinstance(asked, dict):
        return None
    if asked.get("quant_method") == "gptq":
        return "gptq"
    return "pack-quantized" if asked.get("format") == "pack-quantized" else None


def gptq_zeros(config: Mapping[str, Any]) -> tuple[int, ...]:
    """The zero points that GPTQ tensors may hold, all of which mean 8.

    The first layout stores them less one, the second (``gptq_v2``) as they are; files that do not say may be either,
    and with symmetric weights both can mean nothing but 8.
    """
    return _GPTQ_ZEROS[config["quantization_config"].get("checkpoint_format")]


def _check_compressed(checkpoint: Checkpoint, asked: dict[str, Any]) -> None:
    """Float8 with a scale for each row, or 4-bit integers with one for 32 columns, in every group."""
    layout, groups = asked.get("format"), asked.get("config_groups")
    wanted = {"float-quantized": _FP8_ROWS, "pack-quantized": _INT4_GROUPS}.get(str(layout))
    if wanted is None or not isinstance(groups, dict) or not groups:
        raise _refusal(checkpoint, f"is quantised with compressed-tensors as {str(layout)[:80]}")
    for group in groups.values():
        weights = group.get("weights") if isinstance(group, dict) else None
        if not isinstance(weights, dict):
            raise _refusal(checkpoint, "is quantised with compressed-tensors that leave weights out")
        wrong = [key for key, value in wanted.items() if weights.get(key) != value]
        if layout == "pack-quantized":
            wrong += [key for key in ("actorder", "dynamic") if weights.get(key)]
            wrong += [key for key in ("input_activations", "output_activations") if group.get(key)]
        if wrong:
            value = weights.get(wrong[0], group.get(wrong[0]))
            raise _refusal(
                checkpoint, f"is quantised with compressed-tensors where {wrong[0]} is {str(value)[:80]}"
            )


def _check_gptq(checkpoint: Checkpoint, asked: dict[str, Any]) -> None:
    """4-bit symmetric integers with a scale for 128 columns in their order, in every layer."""
    # GPTQ counts as symmetric unless said otherwise, and so does its order of columns count as kept.
    found = {"sym": True, "desc_act": False} | asked
    for key, value in _GPTQ.items():
        if found.get(key) != value:
            raise _refusal(checkpoint, f"is quantised with gptq where {key} is {str(found.get(key))[:80]}")
    if not isinstance(asked.get("checkpoint_format"), str | None) or (
        asked.get("checkpoint_format") not in _GPTQ_ZEROS
    ):
        name = str(asked["checkpoint_format"])[:80]
        raise _refusal(checkpoint, f"is quantised with gptq where checkpoint_format is {name}")
    rules = asked.get("dynamic") or {}
    if not isinstance(rules, dict) or not all(str(rule).startswith("-:") for rule in rules):
        raise _refusal(checkpoint, "is quantised with gptq in a different way for some layers (dynamic)")


def _refusal(checkpoint: Checkpoint, what: str) -> CheckpointError:
    return CheckpointError(
        f"{checkpoint.path} {what}, which this engine does not run; take the model in FP8 with a scale for each "
        "row or 128x128 block, in 4-bit integers with one for 32 columns (compressed-tensors, symmetric) or for 128 "
        "(GPTQ, symmetric, desc_act false), or in BF16"
    )
