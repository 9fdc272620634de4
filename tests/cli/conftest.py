"""Commands run in this process: exit code, standard output, standard error."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kt_tui.cli.main import main


@dataclass(frozen=True)
class Answer:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output as the one JSON document that it must be."""
        return json.loads(self.out)


@pytest.fixture
def kt(kt_home: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Answer]:
    """``kt("config", "show")`` runs a command with an own, empty home."""

    def run(*arguments: object) -> Answer:
        capsys.readouterr()
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as leaving:  # argparse
            code = int(leaving.code or 0)
        written = capsys.readouterr()
        return Answer(code, written.out, written.err)

    return run
