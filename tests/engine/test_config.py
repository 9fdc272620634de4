"""Arguments of ``python -m engine serve``."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.config import OPTIONS, ConfigError, EngineConfig, parse_config

MODEL = ["serve", "--model", "/models/some"]


def test_the_defaults_are_this_machine_only() -> None:
    config = parse_config(MODEL, {})
    assert config == EngineConfig(model=Path("/models/some"))
    assert (config.host, config.port, config.device) == ("127.0.0.1", 30000, "auto")


def test_every_option_is_read() -> None:
    given = {
        "host": "0.0.0.0",  # noqa: S104
        "port": 0,
        "cpu_threads": 3,
        "cpu_numerics": "exact",
        "cpu_store": "int4_g32",
        "gpu_experts": 0,
        "max_total_tokens": 4096,
        "max_running_requests": 2,
        "max_queued_requests": 0,
        "chunked_prefill_size": 64,
        "context_length": 2048,
        "served_model_name": "my model",
        "api_key": "k",
        "device": "cpu",
        "log_level": "debug",
    }
    assert {option.field for option in OPTIONS} == set(given)
    argv = [word for name, value in given.items() for word in ("--" + name.replace("_", "-"), str(value))]
    assert parse_config([*MODEL, *argv], {}) == EngineConfig(model=Path("/models/some"), **given)  # type: ignore[arg-type]


def test_each_bad_field_is_told_and_no_value_of_a_secret() -> None:
    argv = [*MODEL, "--port", "99999", "--cpu-threads", "many", "--device", "tpu", "--api-key", "two words"]
    with pytest.raises(ConfigError) as caught:
        parse_config(argv, {})
    problems = caught.value.problems
    assert [problem.split()[0] for problem in problems] == [
        "--port",
        "--cpu-threads",
        "--api-key",
        "--device",
    ]
    assert "99999" in problems[0]
    assert "'many'" in problems[1]
    assert "two words" not in problems[2]


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["serve"],
        ["fly"],
        [*MODEL, "--unknown", "1"],
        [*MODEL, "--port"],
        [*MODEL, "--por", "1"],
        [*MODEL, "x"],
    ],
)
def test_other_wrong_usage_is_one_sentence(argv: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(argv, {})
    assert len(caught.value.problems) == 1


def test_the_key_comes_from_the_environment_unless_it_is_given() -> None:
    environ = {"KT_ENGINE_API_KEY": "from-environment"}
    assert parse_config(MODEL, environ).api_key == "from-environment"
    assert parse_config([*MODEL, "--api-key", "given"], environ).api_key == "given"
    assert parse_config(MODEL, {"KT_ENGINE_API_KEY": ""}).api_key is None
    assert "from-environment" not in repr(parse_config(MODEL, environ))


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/m/MiniMax-M2", "MiniMax-M2"),
        ("/m/MiniMax-M2/", "MiniMax-M2"),
        ("/m/a.Q4_1.gguf", "a.Q4_1"),
        ("/", "model"),
    ],
)
def test_the_model_is_named_by_its_path(path: str, name: str) -> None:
    assert EngineConfig(model=Path(path)).model_name == name
    assert EngineConfig(model=Path(path), served_model_name="x").model_name == "x"
