"""An unprivileged user, for tests of what root may do anyway."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

NOBODY = 65534


@pytest.fixture
def unprivileged_folder() -> Iterator[Path]:
    """An empty folder that a user without special rights owns; the test runs as that user."""
    folder = Path(tempfile.mkdtemp(prefix="kt-tui-test-"))
    root = os.geteuid() == 0
    if root:
        os.chown(folder, NOBODY, NOBODY)
        os.seteuid(NOBODY)
    try:
        yield folder
    finally:
        if root:
            os.seteuid(0)
        shutil.rmtree(folder, ignore_errors=True)
