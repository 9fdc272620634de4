"""Around the screen: no terminal, copying, crashes, start-up imports."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kt_tui.catalog import UnknownModel
from kt_tui.errors import UsageError
from kt_tui.ui import clipboard, crash
from kt_tui.ui.app import KtApp
from kt_tui.ui.launcher import open_panel, opening_request, terminal_problem
from tests.ui.panel_helpers import PanelServices, settled, toasts, wait_until


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stdin", "stdout", "stderr", "environ", "word"),
    [
        (io.StringIO(), Terminal(), Terminal(), {"TERM": "xterm"}, "input"),
        (Terminal(), io.StringIO(), Terminal(), {"TERM": "xterm"}, "output"),
        (Terminal(), Terminal(), io.StringIO(), {"TERM": "xterm"}, "error"),
        (Terminal(), Terminal(), Terminal(), {"TERM": "dumb"}, "TERM=dumb"),
    ],
)
def test_without_a_screen_the_way_out_is_named(
    stdin: io.StringIO, stdout: io.StringIO, stderr: io.StringIO, environ: dict[str, str], word: str
) -> None:
    problem = terminal_problem(stdin, stdout, stderr, environ)
    assert problem is not None
    assert word in problem
    assert "kt-tui run" in problem
    assert "kt-tui chat" in problem
    assert terminal_problem(Terminal(), Terminal(), Terminal(), {"TERM": "xterm-256color"}) is None


def test_a_pipe_gets_one_sentence_and_code_2(kt_home: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kt_tui"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, "KT_TUI_HOME": str(kt_home)},
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr


def test_a_misspelt_model_is_told_before_the_screen_opens(
    kt_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal())
    monkeypatch.setattr(sys, "stdout", Terminal())
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    with pytest.raises(UnknownModel, match="demo"):
        open_panel("demmo", [])


def test_launch_options_reach_the_form_and_unknown_ones_the_engine() -> None:
    request = opening_request("demo", ["--cpu-threads", "3", "--verbose", "--profile", "quick"])
    assert request.options == {"cpu-threads": 3}
    assert request.extra == ("--verbose",)
    assert request.profile == "quick"
    with pytest.raises(UsageError, match="cpu-threads"):
        opening_request("demo", ["--cpu-threads", "many"])


def test_the_panel_starts_without_heavy_imports() -> None:
    code = (
        "import sys, kt_tui.ui.launcher, kt_tui.ui.app, kt_tui.ui.screens.home;"
        "print([m for m in ('torch', 'transformers', 'openai', 'httpx', 'numpy', 'pydantic') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout.strip() == "[]"


def test_a_clipboard_tool_is_used_only_where_it_can_work(tmp_path: Path) -> None:
    tool = tmp_path / "xclip"
    tool.write_text(f"#!/bin/sh\ncat > {tmp_path}/copied\n")
    tool.chmod(0o755)
    path = f"{tmp_path}:/usr/bin:/bin"
    assert clipboard.local_tool({"PATH": path}) is None
    assert clipboard.copy_with_tool("日本 text", {"PATH": path, "DISPLAY": ":0"}) == "xclip"
    assert (tmp_path / "copied").read_text() == "日本 text"
    tool.write_text("#!/bin/sh\nexit 1\n")
    assert clipboard.copy_with_tool("x", {"PATH": path, "DISPLAY": ":0"}) is None


def test_a_copy_in_a_file_is_private(tmp_path: Path) -> None:
    path = clipboard.copy_to_file("secret", tmp_path / "new")
    assert path.read_text() == "secret"
    assert path.stat().st_mode & 0o777 == 0o600


async def test_long_text_goes_to_a_file_whose_path_is_said(services: PanelServices) -> None:
    app = KtApp(services)
    async with app.run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        app.copy("short")
        await wait_until(pilot, lambda: "Copied 5 characters through the terminal" in toasts(app))
        assert app.clipboard == "short"
        app.copy("x" * (clipboard.OSC52_LIMIT + 1))
        await wait_until(pilot, lambda: "written to" in toasts(app))
        (file,) = (services.paths.state / "copied").iterdir()
        assert file.stat().st_size == clipboard.OSC52_LIMIT + 1
        assert str(file) in toasts(app)


def test_a_crash_report_holds_the_traceback_but_no_variables(tmp_path: Path) -> None:
    def fails(api_key: str) -> None:
        raise ValueError(f"oops {len(api_key)}")

    with pytest.raises(ValueError, match="oops") as caught:
        fails("very-" + "secret")
    path = crash.write_crash_report(caught.value, tmp_path)
    assert path is not None
    assert path.stat().st_mode & 0o777 == 0o600
    text = path.read_text()
    assert "oops 11" in text
    assert "very-secret" not in text
    assert str(path) in crash.crash_sentence(caught.value, path)
    assert "oops" in crash.crash_sentence(caught.value, None)
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert crash.write_crash_report(ValueError("x"), blocked / "below") is None


async def test_an_unexpected_error_ends_in_one_sentence_and_a_report(
    services: PanelServices, capsys: pytest.CaptureFixture[str]
) -> None:
    app = KtApp(services)

    async def crashes() -> None:
        async with app.run_test(size=(80, 24)) as pilot:
            await settled(pilot)
            app.call_later(lambda: 1 / 0)
            await wait_until(pilot, lambda: not app.is_running, limit=5)

    with pytest.raises(ZeroDivisionError):
        await crashes()
    (report,) = services.paths.state.glob("crash-*.txt")
    assert app.last_words is not None
    assert str(report) in app.last_words
    assert app.return_code == 1
    assert "Traceback" not in capsys.readouterr().err
    assert "ZeroDivisionError" in report.read_text()


def test_alt_digits_of_plain_terminals_are_alt_digits_and_real_characters_stay() -> None:
    from textual._xterm_parser import XTermParser
    from textual.events import Key

    from kt_tui.ui.keymap import read_alt_digits_as_alt

    def keys(sequence: str) -> list[str]:
        parser = XTermParser(debug=False)
        return [event.key for part in (sequence, "") for event in parser.feed(part) if isinstance(event, Key)]

    read_alt_digits_as_alt()
    assert [keys(f"\x1b{digit}") for digit in "146"] == [["alt+1"], ["alt+4"], ["alt+6"]]
    assert keys("§") == ["section_sign"]
    assert keys("\x1b[15~") == ["f5"]
