"""Published speeds of the catalogue."""

from __future__ import annotations

from typing import Any

import pytest

from kt_tui.catalog.known import known_models
from kt_tui.catalog.published import published_of
from kt_tui.paths import user_paths


def test_published_figures_are_in_the_catalogue() -> None:
    models = {model.name: model for model in known_models(user_paths({"KT_TUI_HOME": "/nonexistent"}))[0]}
    rows = {row.machine: row for row in models["MiniMax-M2.1"].published}
    assert rows["2x RTX 5090, 2x EPYC 9355"].decode == (35.9, 35.5, 33.1)
    assert rows["1x RTX 5090, 2x EPYC 9355"].prefill == (408.0, 1196.0, 2540.0)
    assert all(row.source for model in models.values() for row in model.published)
    assert models["MiniMax-M2"].published == ()


@pytest.mark.parametrize(
    "rows",
    [
        {},
        ["fast"],
        [{"machine": "a"}],
        [{"machine": "a", "source": "b"}],
        [{"machine": "a", "source": "b", "decode": [0]}],
        [{"machine": "a", "source": "b", "decode": [True]}],
        [{"machine": "a", "source": "b", "decode": "20"}],
        [{"machine": "a", "source": "b", "prompt": [1, 2], "decode": [20]}],
        [{"machine": "a", "source": "b", "decode": [20], "colour": "red"}],
    ],
)
def test_mistakes_in_published_figures_are_told(rows: Any) -> None:
    with pytest.raises(ValueError, match=r"must|needs|holds"):
        published_of(rows)
