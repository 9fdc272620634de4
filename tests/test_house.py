"""The house rules of docs/architecture.md: who may import whom, and what starts must not load."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]

# Folders and files of kt_tui by row, from the top of the house to its ground. A row imports only lower rows.
ROWS = [
    {"__main__"},
    {"cli", "ui", "services"},
    {"supervise", "monitor", "tune"},
    {"launch"},
    {"kt_import"},
    {"catalog", "profiles"},
    {"hardware", "chat"},
    {"config"},
    {"settings"},
    {"tomlfile", "net", "processes"},
    {"paths", "secret", "text"},
    {"errors", "__init__"},
]
ENGINE_FOR_ALL = {"engine.budget", "engine.errors", "engine.gguf_header"}  # the standard library only


def modules(package: str) -> Iterator[tuple[str, Path]]:
    for path in sorted((REPOSITORY / package).rglob("*.py")):
        yield ".".join(path.relative_to(REPOSITORY).with_suffix("").parts), path


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            assert node.module
            yield node.module


def row(module: str) -> int:
    room = module.split(".")[1] if "." in module else "__init__"
    rows = [number for number, rooms in enumerate(ROWS) if room in rooms]
    assert rows, f"{module} has no place in the house; give it one in ROWS and in docs/architecture.md"
    return rows[0]


@pytest.mark.parametrize(("module", "path"), list(modules("kt_tui")), ids=lambda value: str(value)[:60])
def test_arrows_in_the_panel_point_down(module: str, path: Path) -> None:
    room = module.split(".")[1]
    for imported in imports(path):
        if imported == "kt_tui":
            continue  # the version
        if imported.startswith("kt_tui."):
            same_room = imported.split(".")[1] == room
            assert same_room or row(imported) > row(module) or {room, imported.split(".")[1]} <= ROWS[1], (
                imported
            )
        if imported.split(".")[0] == "engine":
            assert imported in ENGINE_FOR_ALL, f"{module} imports {imported}"
        if room != "ui":
            assert imported.split(".")[0] != "textual", f"{module} draws"


@pytest.mark.parametrize(("module", "path"), list(modules("engine")), ids=lambda value: str(value)[:60])
def test_the_engine_knows_nothing_of_the_panel(module: str, path: Path) -> None:
    assert not [name for name in imports(path) if name.split(".")[0] in {"kt_tui", "textual", "rich"}]


HEAVY = {
    "torch",
    "transformers",
    "openai",
    "textual",
    "httpx",
    "pydantic",
    "psutil",
    "numpy",
    "rich",
    "tomlkit",
}


@pytest.mark.parametrize(
    ("statement", "allowed"),
    [
        ("import kt_tui.cli.main", set()),
        ("from kt_tui.cli.main import main; main(['version'])", set()),
        ("import kt_tui.ui.app", {"textual", "rich", "tomlkit"}),
        ("import engine.budget, engine.gguf_header", set()),
    ],
)
def test_a_start_loads_only_what_it_needs(statement: str, allowed: set[str]) -> None:
    code = f"{statement}\nimport sys\nprint('LOADED', *sorted({HEAVY!r} & sys.modules.keys()))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(result.stdout.rpartition("LOADED")[2].split())
    assert loaded <= allowed, loaded - allowed


@pytest.mark.parametrize(
    "room", ["hardware", "catalog", "launch", "monitor", "chat", "supervise", "tune", "services"]
)
def test_a_domain_room_loads_neither_screen_nor_tensors(room: str) -> None:
    heavy = {"torch", "transformers", "openai", "textual"}
    code = f"import kt_tui.{room}, sys; print(*sorted({heavy!r} & sys.modules.keys()))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.split() == []


def test_no_file_is_longer_than_the_cap() -> None:
    long = {
        str(path.relative_to(REPOSITORY)): lines
        for folder in ("kt_tui", "engine", "csrc")
        for path in (REPOSITORY / folder).rglob("*")
        if path.suffix in {".py", ".cpp", ".h", ".inl"}
        and (lines := len(path.read_text().splitlines())) > 400
    }
    assert not long
