"""Fixtures of the panel's tests."""

from __future__ import annotations

import pytest

from kt_tui.paths import Paths
from tests.ui.panel_helpers import PanelServices


@pytest.fixture
def services(kt_paths: Paths) -> PanelServices:
    """Services over a played engine, in an empty home."""
    return PanelServices(kt_paths)
