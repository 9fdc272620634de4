"""The two real models against recorded answers of transformers in float32."""

import json
from pathlib import Path
from typing import Any

import pytest

from engine import cpu
from engine.config import EngineConfig
from engine.runner import Row, Runner

GOLDENS = Path(__file__).parents[2] / "goldens"
MODELS = {"demo-fp8": "demo_model", "demo-bf16": "demo_bf16_model", "smollm2": "smollm2_gguf"}
FEW = 8 if cpu.active_isa() == "scalar" else 24
"""Tokens to compare; the scalar kernels take a second for each."""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=MODELS)
def model(request: Any) -> tuple[str, Runner]:
    path = request.getfixturevalue(MODELS[request.param])
    return request.param, Runner.load(EngineConfig(path, max_total_tokens=2048, cpu_numerics="exact"))


@pytest.fixture(scope="module")
def fast_smollm2(smollm2_gguf: Path) -> Runner:
    return Runner.load(EngineConfig(smollm2_gguf, max_total_tokens=2048, cpu_numerics="fast"))


def answers(name: str) -> dict[str, dict[str, Any]]:
    document = json.loads((GOLDENS / f"{name}.json").read_text("utf-8"))
    return {answer["prompt"]: answer for answer in document["answers"]}


WIDE = ["What is the capital of Germany?", "Count from 1 to 10."]


def check_tokens(name: str, runner: Runner, prompt: str) -> None:
    answer = answers(name)[prompt]
    assert min(answer["gaps"]) > 0.6
    sequence = runner.open_sequence()
    tokens: list[int] = []
    given = answer["prompt_ids"]
    for _ in answer["token_ids"][:FEW]:
        (logits,) = runner.step([Row(sequence, given, want_logits=True)])
        assert logits is not None
        tokens.append(int(logits.argmax()))
        given = tokens[-1:]
    runner.close_sequence(sequence)
    assert tokens == answer["token_ids"][:FEW]
    if prompt.endswith("Germany?"):
        assert answer["text"] == "The capital of Germany is Berlin."


@pytest.mark.parametrize("prompt", WIDE)
def test_wide_margins_give_the_recorded_tokens_with_every_kernel(model, prompt):
    check_tokens(*model, prompt)


@pytest.mark.parametrize("prompt", WIDE)
def test_activations_in_int8_give_the_same_where_margins_are_wide(fast_smollm2, prompt):
    check_tokens("smollm2", fast_smollm2, prompt)


@pytest.mark.skipif(
    cpu.active_isa() in ("avx512_bf16", "amx"), reason="activations are bfloat16 with these kernels"
)
def test_exact_kernels_give_the_recorded_logits_and_tokens(model):
    """All prompts in one batch, each step given the recorded token: narrow margins count too."""
    name, runner = model
    recorded = list(answers(name).values())
    sequences = [runner.open_sequence() for _ in recorded]
    given = [answer["prompt_ids"] for answer in recorded]
    for step in range(8):
        logits = runner.step([Row(*row, want_logits=True) for row in zip(sequences, given, strict=True)])
        for answer, row in zip(recorded, logits, strict=True):
            if step >= len(answer["token_ids"]):
                continue
            assert row is not None
            if step == 0:
                first = answer["first_step"]
                for token, value in zip(first["ids"], first["logits"], strict=True):
                    assert float(row[token]) == pytest.approx(value, abs=2e-3)
            if answer["gaps"][step] > 0.01:
                assert int(row.argmax()) == answer["token_ids"][step]
        given = [answer["token_ids"][step : step + 1] or [0] for answer in recorded]
    for sequence in sequences:
        runner.close_sequence(sequence)


def test_loaded_weights_are_in_memory_once(model, request):
    """The kernels' copy counts; the pages of the mapped files have been let go, but for the embedding's."""
    name, _ = model
    path = request.getfixturevalue(MODELS[name])
    files = {str(file) for file in ([path] if path.is_file() else path.glob("*.safetensors"))}
    resident, counted = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split(" ", 1)[0]:
            counted = line.split(maxsplit=5)[-1] in files
        elif counted and line.startswith("Rss:"):
            resident += int(line.split()[1]) * 1024
    assert resident < 0.3 * sum(Path(file).stat().st_size for file in files)
