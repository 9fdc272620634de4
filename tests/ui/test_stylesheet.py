"""A stylesheet parses a source again only when a variable changed."""

from __future__ import annotations

import pytest
from textual.color import Color
from textual.css.stylesheet import StylesheetParseError

from kt_tui.ui.stylesheet import LastingStylesheet


def test_the_same_variables_keep_what_was_parsed() -> None:
    sheet = LastingStylesheet(variables={"ink": "red"})
    sheet.add_source("Widget { color: $ink; }")
    (before,) = sheet.rules
    sheet.set_variables({"ink": "red"})
    sheet.add_source("Widget { text-style: bold; }")
    sheet.reparse()
    assert len(sheet.rules) == 2
    assert sheet.rules[0] is before


def test_another_colour_is_used_at_once() -> None:
    sheet = LastingStylesheet(variables={"ink": "red"})
    sheet.add_source("Widget { color: $ink; }")
    assert sheet.rules[0].styles.color == Color.parse("red")
    sheet.set_variables({"ink": "blue"})
    sheet.reparse()
    assert sheet.rules[0].styles.color == Color.parse("blue")


def test_an_error_leaves_the_rules_as_they_were() -> None:
    sheet = LastingStylesheet(variables={})
    sheet.add_source("Widget { color: red; }")
    before = sheet.rules
    sheet.add_source("Widget { color: no-colour; }")
    with pytest.raises(StylesheetParseError):
        sheet.reparse()
    assert sheet._rules is before
