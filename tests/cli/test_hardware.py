"""``kt-tui hardware``."""

import json
from pathlib import Path

import pytest

from kt_tui.cli.main import main


@pytest.fixture
def small_machine(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    files = {
        "proc/cpuinfo": "".join(
            f"processor: {n}\nvendor_id: GenuineIntel\nmodel name: \x1b[31mTest CPU\nflags: avx2 amx_tile\n"
            f"physical id: 0\ncore id: {n // 2}\n\n"
            for n in range(8)
        ),
        "proc/meminfo": "MemTotal: 16777216 kB\nMemFree: 8388608 kB\nMemAvailable: 12582912 kB\nCached: 1024 kB\n",
        "proc/self/status": "Cpus_allowed_list: 0-5\nMems_allowed_list: 0\n",
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (root / "gpus.json").write_text(
        json.dumps(
            {
                "driver": {"version": "580.65", "cuda": "13.0"},
                "gpus": [
                    {"index": 0, "name": "[red]RTX[/red]", "memory": {"total": 32 << 30, "free": 31 << 30}}
                ],
            }
        )
    )
    return root


def test_json_is_one_document_and_nothing_else(
    small_machine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [
        "hardware",
        "--json",
        "--sysroot",
        str(small_machine),
        "--gpus",
        str(small_machine / "gpus.json"),
    ]
    assert main(arguments) == 0
    output = capsys.readouterr()
    document = json.loads(output.out)
    assert output.out.count("\n") == 1
    assert output.err == ""
    assert (document["cpu"]["physical_cores"], document["cpu"]["usable_physical_cores"]) == (4, 3)
    assert document["cpu"]["amx_usable"] is None
    assert document["memory"]["available"] == 12 << 30
    assert document["gpus"][0]["memory_total"] == 32 << 30


def test_words_show_the_same_facts_without_control_characters(
    small_machine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        main(["hardware", "--sysroot", str(small_machine), "--gpus", str(small_machine / "gpus.json")]) == 0
    )
    output = capsys.readouterr().out
    assert "\x1b" not in output
    for part in ("Test CPU", "4 on 1 socket(s), 8 logical CPUs", "3 cores, 6 logical CPUs (0-5)", "16.0 GiB"):
        assert part in output
    for part in ("[red]RTX[/red]; 32.0 GiB, 31.0 GiB free", "580.65, CUDA 13.0", "single node"):
        assert part in output


def test_this_machine_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["hardware"]) == 0
    assert "Processor" in capsys.readouterr().out


def test_a_capture_can_be_shown_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "saved here"
    assert main(["hardware", "--capture", str(folder)]) == 0
    hint = capsys.readouterr().out.splitlines()[-1]
    assert f"--sysroot '{folder}'" in hint
    assert main(["hardware", "--json", "--sysroot", str(folder), "--gpus", str(folder / "gpus.json")]) == 0
    assert json.loads(capsys.readouterr().out)["cpu"]["logical_cpus"]


@pytest.mark.parametrize(
    ("arguments", "code", "part"),
    [
        (["--sysroot", "/nowhere"], 1, "/nowhere is no captured machine"),
        (["--gpus", "/nowhere.json"], 1, "cannot read the GPU document /nowhere.json"),
        (["--capture", "/tmp/x", "--sysroot", "/"], 2, "--capture saves the machine that it runs on"),
    ],
)
def test_mistakes_get_one_sentence(
    arguments: list[str], code: int, part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["hardware", *arguments]) == code
    output = capsys.readouterr()
    assert part in output.err
    assert output.err.count("\n") == 1
    assert output.out == ""


def test_colours_on_a_terminal_do_not_read_markup(
    small_machine: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "160")
    assert (
        main(["hardware", "--sysroot", str(small_machine), "--gpus", str(small_machine / "gpus.json")]) == 0
    )
    assert "[red]RTX[/red]" in capsys.readouterr().out
