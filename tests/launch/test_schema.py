"""The parameter table against the engine's own options."""

import argparse
import re

from engine.config import API_KEY_VARIABLE, OPTIONS, EngineConfig, parse_config
from kt_tui.launch import command
from kt_tui.launch.options import add_launch_arguments, options_from
from kt_tui.launch.schema import BY_NAME, EMBEDDED, SCHEMA, Kind, parameters_for


def test_names_are_unique_and_every_parameter_explains_itself() -> None:
    assert len(BY_NAME) == len(SCHEMA)
    for parameter in SCHEMA:
        assert re.fullmatch(r"[a-z][a-z-]+[a-z]", parameter.name)
        assert parameter.help
        assert not parameter.help.endswith(".")
        assert parameter.kind is not Kind.CHOICE or parameter.choices


def test_every_flag_is_one_that_the_engine_has() -> None:
    known = {option.flag for option in OPTIONS} | {"--model"}
    flags = {p.flags[EMBEDDED] for p in parameters_for(EMBEDDED) if not p.is_secret}
    assert flags <= known


def test_defaults_and_choices_are_the_engines_own() -> None:
    engine = EngineConfig.__dataclass_fields__
    for parameter in SCHEMA:
        field = engine.get(parameter.name.replace("-", "_"))
        if parameter.default is not None:
            assert field is not None
            assert field.default == parameter.default
    assert command.API_KEY_VARIABLE == API_KEY_VARIABLE


def test_the_engine_accepts_every_bound_that_we_accept() -> None:
    for parameter in parameters_for(EMBEDDED):
        for bound in (parameter.minimum, parameter.maximum):
            if bound is not None:
                flag = parameter.flags[EMBEDDED]
                parse_config(["serve", "--model", "m", flag, str(bound)], {})


def parse(*words: str) -> tuple[dict[str, object], list[str]]:
    parser = argparse.ArgumentParser()
    add_launch_arguments(parser)
    arguments, unknown = parser.parse_known_args(words)
    return options_from(arguments), unknown


def test_only_options_that_were_given_are_returned() -> None:
    assert parse() == ({}, [])
    assert parse("-p", "81", "--cpu-threads=4", "-H", "::1") == (
        {"port": 81, "cpu-threads": 4, "host": "::1"},
        [],
    )


def test_an_abbreviation_belongs_to_the_engine() -> None:
    assert parse("--cpu-thread", "4") == ({}, ["--cpu-thread", "4"])


def test_a_model_path_counts_from_where_it_was_typed(tmp_path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.chdir(tmp_path)
    assert parse("--model-path", "here")[0] == {"model-path": str(tmp_path / "here")}
