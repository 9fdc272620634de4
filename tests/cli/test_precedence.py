"""Where a value comes from, through the command line: every set of sources, and the sources that have nothing."""

from __future__ import annotations

import itertools
import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kt_tui.paths import Paths
from kt_tui.profiles import Profile, save_profile

Kt = Callable[..., Any]

# Best first: command line > profile > environment > config.toml > the model's defaults > hardware > built-in.
THREADS = {"cli": 2, "profile": 3, "config": 5, "model": 6}
"""cpu-threads; the machine has 4 physical cores, and no variable sets it."""
PORT = {"cli": 31001, "profile": 31002, "environment": 31003, "config": 31004, "model": 31005}
"""port; 30000 is built in, and the hardware has no say."""

MACHINE = {
    "cpu": {
        "model": "test",
        "arch": "x86_64",
        "sockets": 1,
        "physical_cores": 4,
        "logical_cpus": 8,
        "usable_physical_cores": 4,
        "usable_logical_cpus": 8,
        "isa": ["avx2"],
        "amx_usable": False,
    },
    "numa": {"nodes": []},
    "memory": {"total": 64 << 30, "available": 60 << 30, "limit": None, "page_cache": 0, "hugepages": None},
    "gpus": [],
    "limits": {},
    "notes": [],
}


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    path = tmp_path / "machine.json"
    path.write_text(json.dumps(MACHINE))
    return path


def subsets(sources: dict[str, int]) -> list[tuple[str, ...]]:
    names = list(sources)
    return [chosen for size in range(len(names) + 1) for chosen in itertools.combinations(names, size)]


def plan(
    option: str,
    values: dict[str, int],
    chosen: tuple[str, ...],
    kt: Kt,
    paths: Paths,
    machine: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> dict[str, Any]:
    """The option in the plan of a model of the user's own, with the chosen sources filled."""
    paths.config.mkdir(parents=True, exist_ok=True)
    key = {"port": "server.port"}.get(option, f"launch.{option}")
    table, _, name = key.partition(".")
    paths.config_file.write_text(f"[{table}]\n{name} = {values['config']}\n" if "config" in chosen else "")
    defaults = f"defaults = {{ {option} = {values['model']} }}\n" if "model" in chosen else ""
    paths.models_file.write_text(f'[models.mine]\npath = "/nowhere/mine"\n{defaults}')
    options = {option: values["profile"]} if "profile" in chosen else {}
    save_profile(paths, Profile("p", "mine", options=options), overwrite=True)
    if "environment" in chosen:
        monkeypatch.setenv("KT_TUI_PORT", str(values["environment"]))
    else:
        monkeypatch.delenv("KT_TUI_PORT", raising=False)
    typed = [f"--{option}", str(values["cli"])] if "cli" in chosen else []
    answer = kt("plan", "mine", "--profile", "p", "--machine", machine, "--json", *typed)
    assert isinstance(answer.json["parameters"], dict)
    found: dict[str, Any] = answer.json["parameters"][option]
    return found


@pytest.mark.parametrize("chosen", subsets(THREADS), ids="+".join)
def test_threads_come_from_the_first_that_says_something(
    chosen: tuple[str, ...], kt: Kt, kt_paths: Paths, machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = plan("cpu-threads", THREADS, chosen, kt, kt_paths, machine, monkeypatch)
    best = chosen[0] if chosen else None
    expected = {"value": THREADS[best], "origin": best} if best else {"value": 4, "origin": "hardware"}
    assert {key: found[key] for key in expected} == expected


@pytest.mark.parametrize("chosen", subsets(PORT), ids="+".join)
def test_the_port_comes_from_the_first_that_says_something(
    chosen: tuple[str, ...], kt: Kt, kt_paths: Paths, machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = plan("port", PORT, chosen, kt, kt_paths, machine, monkeypatch)
    best = chosen[0] if chosen else None
    expected = {"value": PORT[best], "origin": best} if best else {"value": 30000, "origin": "default"}
    assert {key: found[key] for key in expected} == expected


def test_what_nobody_sets_has_an_origin_too(kt: Kt, machine: Path) -> None:
    parameters = kt("plan", "demo", "--machine", machine, "--json").json["parameters"]
    origins = {"cli", "profile", "environment", "config", "model", "hardware", "default"}
    assert {parameter["origin"] for parameter in parameters.values()} <= origins
    assert parameters["chunked-prefill-size"] == {"value": 512, "origin": "default"}


@pytest.mark.parametrize(
    ("variable", "value"),
    [("KT_TUI_PORT", ""), ("KT_TUI_HOST", ""), ("KT_TUI_PORT", "abc"), ("KT_TUI_PORT", "0")],
)
def test_a_variable_that_says_nothing_or_nonsense_sets_no_setting(
    variable: str, value: str, kt: Kt, monkeypatch: pytest.MonkeyPatch
) -> None:
    kt("config", "set", "server.port", "31000")
    monkeypatch.setenv(variable, value)
    document = kt("config", "show", "--json").json
    assert document["values"]["server.port"] == {"value": 31000, "origin": "config"}
    assert bool(document["notes"]) is bool(value)


VARIABLES = {"KT_TUI_HOST": "127.0.0.9", "KT_TUI_PORT": "31999", "KT_TUI_THEME": "mono"}


@pytest.mark.parametrize(
    "command",
    [
        ("config", "set", "chat.max_tokens", "5"),
        ("config", "set", "server.port", "31000"),
        ("config", "unset", "ui.theme"),
        ("profile", "save", "p", "demo", "--cpu-threads", "2"),
        ("profile", "save", "p", "--profile", "base"),
        ("plan", "demo"),
        ("config", "show"),
    ],
)
def test_variables_are_never_written_to_a_file(
    command: tuple[str, ...], kt: Kt, kt_paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_profile(kt_paths, Profile("base", "demo", options={"cpu-threads": 1}))
    kt_paths.config_file.write_text('[ui]\ntheme = "kt-light"\n')
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    assert kt(*command).code == 0
    for path in kt_paths.config.rglob("*.toml"):
        text = path.read_text()
        assert tomllib.loads(text) is not None
        assert not [value for value in VARIABLES.values() if value in text], path
