"""Whole plans: what is run, what it needs, what speaks against it."""

import dataclasses
import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from engine.config import parse_config
from kt_tui.hardware.machine import Gpu, Machine, Memory
from kt_tui.launch import ModelFacts, Origin
from kt_tui.launch.checks import Problem

GIB = 1 << 30
EVERYWHERE = "0.0.0.0"  # noqa: S104 (planned, never bound)
PLAN_KEYS = {"model", "engine", "argv", "env", "parameters", "memory", "fits", "speed", "warnings", "errors"}


def texts(problems: tuple[Problem, ...]) -> str:
    return "\n".join(problem.text for problem in problems)


def test_a_plain_plan_is_complete_and_fits(plan: Any) -> None:
    result = plan()
    assert result.errors == ()
    assert result.fits is True
    assert result.argv[:4] == (sys.executable, "-m", "engine", "serve")
    assert {name: str(value.origin) for name, value in result.parameters.items()} == {
        "model-path": "model",
        "served-model-name": "model",
        "context-length": "model",
        "cpu-threads": "hardware",
        "cpu-numerics": "default",
        "cpu-store": "default",
        "device": "default",
        "chunked-prefill-size": "default",
        "max-total-tokens": "hardware",
        "max-running-requests": "default",
        "host": "default",
        "port": "default",
        "api-key": "default",
    }
    assert result.parameters["cpu-threads"].value == 16
    assert (result.host, result.port, result.served_name, result.model_name) == (
        "127.0.0.1",
        30000,
        "tiny",
        "tiny",
    )


def test_the_document_has_the_agreed_keys(plan: Any) -> None:
    document = json.loads(json.dumps(plan().to_json()))
    assert set(document) >= PLAN_KEYS
    assert set(document["memory"]) == {"gpus", "host"}
    assert {"total", "parts", "free_after"} <= set(document["memory"]["host"])
    host = document["memory"]["host"]
    assert host["free_after"] == 48 * GIB - sum(host["parts"].values())
    assert all(set(value) == {"value", "origin"} for value in document["parameters"].values())


def test_the_engine_understands_the_command_as_planned(plan: Any) -> None:
    result = plan({"cpu-threads": 3, "port": 4000, "host": "::1", "chunked-prefill-size": 64})
    config = parse_config(result.argv[3:], {})
    assert str(config.model) == "/models/tiny"
    assert (config.cpu_threads, config.port, config.host, config.chunked_prefill_size) == (3, 4000, "::1", 64)
    assert (config.max_total_tokens, config.context_length, config.served_model_name) == (8192, 8192, "tiny")


def test_the_preview_is_the_command_byte_for_byte(plan: Any) -> None:
    result = plan({"served-model-name": 'it\'s $(a) `name`; "x"'}, extra=["--odd", "a b", "--x=*"])
    words = shlex.split(result.preview)
    assert words == [*(f"{k}={v}" for k, v in result.env.items()), *result.argv]
    shell = subprocess.run(
        ["/bin/sh", "-c", "printf '%s\\0' " + shlex.join(result.argv)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert shell.stdout.split("\0")[:-1] == list(result.argv)


def test_unknown_options_come_last_and_unchanged(plan: Any, profile: Any) -> None:
    saved = profile(extra=("--from-profile",))
    result = plan(profile=saved, extra=["--new-flag", "7", "--cpu-treads=3"])
    assert result.argv[-4:] == ("--from-profile", "--new-flag", "7", "--cpu-treads=3")
    assert any(
        "--cpu-treads is not an option" in w and "did you mean --cpu-threads?" in w for w in result.warnings
    )
    assert any("--new-flag" in w and "did you mean" not in w for w in result.warnings)
    assert result.errors == ()


def test_a_value_that_begins_with_a_dash_stays_a_value(plan: Any) -> None:
    result = plan({"served-model-name": "-odd"})
    assert "--served-model-name=-odd" in result.argv


def test_a_secret_travels_in_the_environment_only(plan: Any) -> None:
    for how in ({"options": {"api-key": "sekrit"}}, {"environ": {"KT_ENGINE_API_KEY": "sekrit"}}):
        result = plan(**how)
        assert result.env["KT_ENGINE_API_KEY"] == "sekrit"
        assert not any("sekrit" in word for word in result.argv)
        shown = json.dumps(result.to_json()) + result.preview + repr(result) + "".join(result.warnings)
        assert "sekrit" not in shown
        assert result.to_json()["parameters"]["api-key"]["value"] == "***"


def test_memory_that_does_not_suffice_is_a_prediction_with_a_way_out(plan: Any, machine: Machine) -> None:
    small = dataclasses.replace(machine, memory=Memory(total=4 * GIB, available=2 * GIB))
    result = plan({"max-total-tokens": 100_000}, machine=small)
    assert result.fits is False
    (error,) = result.errors
    assert error.prediction
    assert "lower max-total-tokens from 100000 to " in error.text
    fitting = int(error.text.rsplit(" ", 1)[1])
    assert plan({"max-total-tokens": fitting}, machine=small).fits is True
    assert plan({"max-total-tokens": fitting + 64}, machine=small).fits is False
    assert result.blocking() == result.errors
    assert result.blocking(force=True) == ()


def test_a_model_that_is_too_large_says_so(plan: Any, machine: Machine) -> None:
    small = dataclasses.replace(machine, memory=Memory(total=GIB, available=300 << 20))
    result = plan(machine=small)
    assert result.fits is False
    assert "take a smaller model" in texts(result.errors)


def test_a_memory_limit_counts_as_the_memory(plan: Any, machine: Machine) -> None:
    limited = dataclasses.replace(machine, memory=Memory(total=64 * GIB, available=8 * GIB, limit=16 * GIB))
    assert plan(machine=limited).memory.host.total == 16 * GIB


def test_an_unknown_machine_still_gets_a_plan(plan: Any) -> None:
    result = plan(machine=Machine())
    assert result.fits is None
    assert result.errors == ()
    assert result.parameters["cpu-threads"].value is None
    assert "--cpu-threads" not in result.argv
    assert any("free memory is not known" in warning for warning in result.warnings)


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"port": 0}, "port is 0; it must be at least 1"),
        ({"port": 65536}, "port is 65536; it must be at most 65535"),
        ({"cpu-threads": 0}, "cpu-threads is 0"),
        ({"chunked-prefill-size": -1}, "chunked-prefill-size is -1; it must be at least 1"),
        (
            {"chunked-prefill-size": 30_000, "max-total-tokens": 20_000},
            "lower it to 20000 or raise max-total-tokens",
        ),
        ({"max-total-tokens": 10}, "max-total-tokens is 10; it must be at least 64"),
        ({"context-length": 9000}, "the model was made for 8192 tokens"),
        ({"device": "cuda"}, "computes on the CPU only"),
        ({"port": "x"}, "--port needs a whole number"),
        ({"device": "tpu"}, "--device must be one of auto, cpu, cuda"),
        ({"kt-method": "FP8"}, "there is no launch option 'kt-method'"),
        ({"model-path": "/nowhere/at/all"}, "/nowhere/at/all does not exist"),
    ],
)
def test_facts_forbid_the_launch_even_by_force(plan: Any, options: dict[str, object], part: str) -> None:
    result = plan(options)
    assert part in texts(result.errors)
    assert part in texts(result.blocking(force=True))


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"cpu-threads": 126}, "more than the 16 usable physical cores"),
        ({"host": EVERYWHERE}, "reachable from the network, with no API key"),
        ({"host": "::"}, "reachable from the network, with no API key"),
        ({"max-total-tokens": 1000}, "less than one context of 8192 tokens"),
        ({"max-total-tokens": 1000}, "whole pages of 64 tokens"),
        ({"api-key": "k"}, "visible to others"),
    ],
)
def test_unwise_choices_are_told(plan: Any, options: dict[str, object], part: str) -> None:
    result = plan(options)
    assert any(part in warning for warning in result.warnings), result.warnings
    assert result.errors == ()


@pytest.mark.parametrize(
    "options",
    [
        {"chunked-prefill-size": 4096, "max-total-tokens": 40_000},
        {"cpu-threads": 16},
        {"host": "::1"},
        {"host": "localhost"},
        {"host": EVERYWHERE, "api-key": "k"},
    ],
)
def test_right_choices_are_not_warned_about(plan: Any, options: dict[str, object]) -> None:
    result = plan(options)
    assert result.errors == ()
    assert [w for w in result.warnings if "visible to others" not in w] == []


def test_a_port_in_use_is_a_fact(plan: Any) -> None:
    asked = []

    def busy(host: str, port: int) -> str:
        asked.append((host, port))
        return f"port {port} is in use by process 7 (python); port 30001 is free"

    result = plan(bind_problem=busy)
    assert asked == [("127.0.0.1", 30000)]
    assert "port 30001 is free" in texts(result.blocking(force=True))
    assert result.errors[0].parameter == "port"
    plan({"port": 99_999}, bind_problem=busy)
    assert asked == [("127.0.0.1", 30000)], "nobody asks about a port that is none"


@pytest.mark.parametrize("state", ["known", "incomplete", "offline", "wrong", "downloading"])
def test_a_model_that_cannot_be_loaded_is_a_fact(plan: Any, model: Any, state: str) -> None:
    result = plan(model=model(state=state, path=None, problems=("shard 3 is missing",)), facts=None)
    assert f"tiny cannot be launched ({state}): shard 3 is missing" in texts(result.blocking(force=True))
    assert result.argv == ()


def test_a_model_that_is_made_first_is_planned_from_its_recorded_shape(
    plan: Any, model: Any, tmp_path: Path
) -> None:
    entry = model(
        name="demo", state="known", path=None, target=tmp_path / "demo", preparable=True, served_name="demo"
    )
    result = plan(model=entry, facts=None)
    assert result.errors == ()
    assert result.facts.source == "catalogue"
    assert result.memory.host.parts["weights_experts"] > 0
    assert str(tmp_path / "demo") in result.argv
    assert any("is made on this machine before its first launch" in warning for warning in result.warnings)


def test_a_damaged_checkpoint_is_a_fact(plan: Any, model: Any, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{")
    result = plan(model=model(path=tmp_path), facts=None)
    assert "config.json is damaged" in texts(result.blocking(force=True))


def test_facts_of_another_checkpoint_are_not_used(plan: Any, model: Any, smollm2_gguf: Path) -> None:
    first = plan()
    moved = plan({"model-path": str(smollm2_gguf)}, facts=first.facts)
    assert moved.facts.path == smollm2_gguf
    assert moved.memory.host.parts["weights_other"] == 96_576_768
    assert plan(facts=first.facts).facts is first.facts


@pytest.mark.parametrize(
    ("changes", "part"),
    [({"arch": "aarch64", "isa": ("asimd",)}, "for x86-64"), ({"isa": ("avx",)}, "no AVX2")],
)
def test_a_cpu_without_fast_kernels_is_told(plan: Any, machine: Machine, changes: Any, part: str) -> None:
    slow = dataclasses.replace(machine, cpu=dataclasses.replace(machine.cpu, **changes))
    assert any(part in warning for warning in plan(machine=slow).warnings)
    assert not any("slow" in warning for warning in plan().warnings)


def test_an_architecture_that_the_engine_does_not_run_is_a_fact(
    plan: Any, model: Any, tmp_path: Path
) -> None:
    header = b'{"a": {"dtype": "BF16", "shape": [1], "data_offsets": [0, 2]}}'
    (tmp_path / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + b"\0\0")
    config = {
        "architectures": ["DeepseekV3ForCausalLM"],
        "num_hidden_layers": 1,
        "hidden_size": 8,
        "num_attention_heads": 1,
        "intermediate_size": 8,
        "vocab_size": 8,
        "max_position_embeddings": 64,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    result = plan(model=model(path=tmp_path), facts=None)
    assert "not DeepseekV3ForCausalLM" in texts(result.blocking(force=True))
    assert result.fits is None
    (tmp_path / "config.json").write_text(json.dumps(config | {"architectures": ["LlamaForCausalLM"]}))
    assert plan(model=model(path=tmp_path), facts=None).errors == ()


def test_an_unknown_size_is_not_called_fitting(plan: Any) -> None:
    result = plan(facts=ModelFacts(path=Path("/models/tiny")))
    assert result.fits is None
    assert any("size is not known" in warning for warning in result.warnings)


def test_a_profile_and_the_configuration_take_part(plan: Any, profile: Any, settings: Any) -> None:
    saved = profile(options={"cpu-threads": 8, "no-such-thing": 1}, model="other")
    config = settings(server__port=31000, launch__cpu_threads=4, launch__chunked_prefill_size=128)
    result = plan({"max-running-requests": 2}, profile=saved, settings=config)
    origins = {name: (r.value, r.origin) for name, r in result.parameters.items()}
    assert origins["cpu-threads"] == (8, Origin.PROFILE)
    assert origins["port"] == (31000, Origin.CONFIG)
    assert origins["chunked-prefill-size"] == (128, Origin.CONFIG)
    assert origins["max-running-requests"] == (2, Origin.CLI)
    assert any("was saved for the model other" in warning for warning in result.warnings)
    assert any("no-such-thing" in warning for warning in result.warnings)


def test_the_models_own_defaults_take_part(plan: Any, model: Any) -> None:
    result = plan(model=model(defaults={"context-length": 4096}))
    assert result.parameters["context-length"].value == 4096
    assert result.parameters["max-total-tokens"].value == 4096


def test_the_other_engine_is_named_as_not_ready(plan: Any, profile: Any) -> None:
    for result in (plan(engine="sglang"), plan(profile=profile(engine="sglang"))):
        assert "launches only the embedded engine, not sglang" in texts(result.blocking(force=True))
        assert result.argv == ()
    assert plan(engine="embedded", profile=profile(engine="sglang")).errors == ()
    assert "there is no engine 'vllm'" in texts(plan(engine="vllm").errors)


def test_gpus_are_numbered_alike_and_said_to_be_idle(plan: Any, machine: Machine) -> None:
    cards = dataclasses.replace(
        machine, gpus=(Gpu(0, name="RTX", memory_total=32 * GIB, memory_free=31 * GIB),)
    )
    result = plan(machine=cards)
    assert result.env["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert any("1 GPU(s) stay unused" in warning for warning in result.warnings)
    document = result.to_json()["memory"]["gpus"]
    assert document == [
        {
            "index": 0,
            "name": "RTX",
            "total": 32 * GIB,
            "available": 31 * GIB,
            "parts": {},
            "free_after": 31 * GIB,
        }
    ]
    assert "CUDA_DEVICE_ORDER" not in plan(machine=cards, environ={"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}).env
    assert "CUDA_DEVICE_ORDER" not in plan().env


def test_speed_is_bytes_and_not_a_guess(plan: Any) -> None:
    speed = plan().speed
    assert speed["bytes_per_token"] == (85 + 60 + 40) << 20
    assert set(speed) == {"bytes_per_token", "note"}
