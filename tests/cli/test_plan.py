"""``kt-tui plan MODEL``."""

import json
import os
import shlex
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kt_tui.cli.main import main
from kt_tui.hardware.machine import Cpu, Machine, Memory

Run = Any
GIB = 1 << 30


@pytest.fixture
def machine_file(tmp_path: Path) -> Path:
    """A machine document of 64 cores and 1 TiB."""
    path = tmp_path / "machine.json"
    machine = Machine(
        cpu=Cpu(arch="x86_64", usable_physical_cores=64, isa=("avx2",)),
        memory=Memory(total=1024 * GIB, available=1000 * GIB),
    )
    path.write_text(json.dumps(machine.to_json()))
    return path


@pytest.fixture
def planned(kt_home: Path, smollm2_gguf: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Plans the dense model with --json; gives the exit code and the document."""

    def run(*arguments: str) -> tuple[int, dict[str, Any]]:
        code = main(["plan", str(smollm2_gguf), "--json", *arguments])
        output = capsys.readouterr()
        assert output.err == ""
        return code, json.loads(output.out)

    return run


def test_a_plan_for_another_machine(planned: Run, machine_file: Path, smollm2_gguf: Path) -> None:
    code, plan = planned("--machine", str(machine_file), "--port", "31234", "--unknown-to-us", "5")
    assert code == 0
    assert plan["fits"] is True
    assert plan["parameters"]["cpu-threads"] == {"value": 64, "origin": "hardware"}
    assert plan["parameters"]["port"] == {"value": 31234, "origin": "cli"}
    assert plan["memory"]["host"]["total"] == 1024 * GIB
    assert plan["memory"]["host"]["parts"]["weights_other"] == 96_576_768
    assert plan["argv"][:6] == [sys.executable, "-m", "engine", "serve", "--model", str(smollm2_gguf)]
    assert plan["argv"][-2:] == ["--unknown-to-us", "5"]


def test_environment_and_profile_have_their_place(
    planned: Run, machine_file: Path, kt_paths: Any, monkeypatch: Any
) -> None:
    from kt_tui.profiles import Profile, save_profile

    save_profile(kt_paths, Profile(name="tuned", model="smollm2", options={"cpu-threads": 7}))
    monkeypatch.setenv("KT_TUI_PORT", "31999")
    code, plan = planned("--machine", str(machine_file), "--profile", "tuned")
    assert code == 0
    assert plan["parameters"]["cpu-threads"] == {"value": 7, "origin": "profile"}
    assert plan["parameters"]["port"] == {"value": 31999, "origin": "environment"}


def test_the_configuration_has_its_place(planned: Run, machine_file: Path, kt_paths: Any) -> None:
    kt_paths.config.mkdir(parents=True)
    kt_paths.config_file.write_text("[server]\nport = 31777\n[launch]\ncpu-threads = 9\n")
    _, plan = planned("--machine", str(machine_file))
    assert plan["parameters"]["port"] == {"value": 31777, "origin": "config"}
    assert plan["parameters"]["cpu-threads"] == {"value": 9, "origin": "config"}


def test_memory_is_a_prediction_that_force_overrules(planned: Run, tmp_path: Path) -> None:
    path = tmp_path / "small.json"
    path.write_text(json.dumps({"memory": {"total": GIB, "available": 200 << 20}, "cpu": {}}))
    code, plan = planned("--machine", str(path))
    assert (code, plan["fits"]) == (1, False)
    assert "GiB are available" in plan["errors"][0]
    code, plan = planned("--machine", str(path), "--force")
    assert (code, plan["fits"]) == (0, False)
    assert planned("--machine", str(path), "--force", "--context-length", "9999999")[0] == 1


def test_a_port_in_use_is_named_with_a_free_one(planned: Run) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen(1)
        port = taken.getsockname()[1]
        code, plan = planned("--port", str(port))
    assert code == 1
    assert any(f"port {port} is in use" in error for error in plan["errors"])
    assert f"by process {os.getpid()}" in plan["errors"][0]


def test_the_other_engine_gets_a_sentence(planned: Run) -> None:
    code, plan = planned("--engine", "sglang")
    assert code == 1
    assert "only the embedded engine" in plan["errors"][0]


def test_words_show_the_whole_command(
    kt_home: Path, smollm2_gguf: Path, machine_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        main(["plan", str(smollm2_gguf), "--machine", str(machine_file), "--served-model-name", "a  b"]) == 0
    )
    output = capsys.readouterr().out
    assert "Memory: it fits" in output
    assert "64 (hardware)" in output
    command = next(line for line in output.splitlines() if "engine serve" in line)
    assert str(smollm2_gguf) in shlex.split(command)
    assert "a  b" in shlex.split(command), "the command is not reformatted"


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["no-such-model"], "no-such-model"),
        (["smollm2", "--machine", "/nowhere.json"], "cannot read the machine document /nowhere.json"),
        (["smollm2", "--machine", "/dev/null"], "/dev/null is not valid JSON"),
        (["smollm2", "--profile", "absent"], "absent"),
    ],
)
def test_mistakes_get_one_sentence(
    arguments: list[str], part: str, kt_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", *arguments]) in (1, 2)
    output = capsys.readouterr()
    assert part in output.err
    assert output.err.count("\n") == 1
    assert output.out == ""


def test_a_value_of_the_wrong_kind_is_wrong_usage(kt_home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["plan", "smollm2", "--port", "many"])
    assert caught.value.code == 2
    assert "needs a whole number, not 'many'" in capsys.readouterr().err


def test_planning_imports_no_torch(kt_home: Path, smollm2_gguf: Path) -> None:
    code = (
        "import sys; from kt_tui.cli.main import main; main(['plan', sys.argv[1], '--json']); "
        "sys.exit(bool({'torch', 'transformers', 'openai', 'textual'} & set(sys.modules)))"
    )
    command = [sys.executable, "-c", code, str(smollm2_gguf)]
    assert subprocess.run(command, check=False, timeout=60, stdout=subprocess.DEVNULL).returncode == 0
