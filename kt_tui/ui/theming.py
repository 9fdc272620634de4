"""Colour themes from TOML files: checked strictly, so that a bad one is named and left out, never a crash."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from textual.color import Color, ColorParseError
from textual.theme import BUILTIN_THEMES, Theme

DEFAULT_THEME = "kt-dark"

_BOOLEANS = ("dark", "ansi")
_NUMBERS = ("luminosity_spread", "text_alpha")
_COLOURS = tuple(
    name
    for name in (f.name for f in fields(Theme))
    if name not in {"name", "variables", *_BOOLEANS, *_NUMBERS}
)

_FALLBACKS: Mapping[str, str] = {
    "ok": "success",
    "warn": "warning",
    "bad": "error",
    "hot": "error",
    "reasoning": "secondary",
    "gpu": "accent",
    "numa": "secondary",
    "cpu": "primary",
    "cache": "secondary",
    "user": "accent",
    "graph-low": "primary",
    "graph-mid": "primary",
    "graph-high": "accent",
}
"""kt-tui's own colour variables, and the colour of the theme that stands in for one it does not set."""

_GREYS = {
    "dark": {"muted": "#8b909c", "line": "#3a3f4b", "empty": "#2f343f"},
    "light": {"muted": "#666b75", "line": "#b9bec8", "empty": "#d3d7de"},
    "ansi": {"muted": "ansi_bright_black", "line": "ansi_bright_black", "empty": "ansi_bright_black"},
}


class ThemeError(ValueError):
    """A theme file that cannot be used: says which key and why."""


@dataclass(frozen=True)
class Themes:
    """The usable themes by name, and one sentence for each that is not usable."""

    themes: tuple[Theme, ...]
    problems: tuple[str, ...] = ()


def usable_themes(folders: Iterable[Path]) -> Themes:
    """The themes of the folders, then those that come with Textual; and why others are left out."""
    found = load_themes(folders)
    own = {theme.name for theme in found.themes}
    builtin = sorted(
        (theme for name, theme in BUILTIN_THEMES.items() if name not in own), key=lambda t: t.name
    )
    return Themes((*found.themes, *builtin), found.problems)


def variable_defaults(theme: Theme) -> dict[str, str]:
    """Values of kt-tui's own variables for a theme that does not set them."""
    own = {name: getattr(theme, colour) or theme.primary for name, colour in _FALLBACKS.items()}
    return {**_GREYS["ansi" if theme.ansi else "dark" if theme.dark else "light"], **own}


def parse_theme(document: Mapping[str, Any]) -> Theme:
    """Make a theme of a parsed TOML document.

    Raises:
        ThemeError: A key is unknown or missing, or a value is of the wrong type or no colour.
    """
    known = {f.name for f in fields(Theme)}
    if unknown := sorted(set(document) - known):
        raise ThemeError(f"unknown key {unknown[0]!r}")
    for key in ("name", "primary"):
        if not isinstance(document.get(key), str):
            raise ThemeError(f"{key!r} is missing or no text")
    for key, value in document.items():
        if key in _COLOURS:
            _check_colour(key, value)
        elif key in _BOOLEANS and not isinstance(value, bool):
            raise ThemeError(f"{key!r} must be true or false")
        elif key in _NUMBERS and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise ThemeError(f"{key!r} must be a number")
    variables = document.get("variables", {})
    if not isinstance(variables, Mapping):
        raise ThemeError("'variables' must be a table")
    for key, value in variables.items():
        if not isinstance(value, str):
            raise ThemeError(f"variables.{key} must be text")
        if not key.endswith("-style"):
            _check_colour(f"variables.{key}", value)
    return Theme(**document)


def _check_colour(key: str, value: object) -> None:
    """Textual takes any text when a theme is registered and dies of a bad one when it is used (8.2.8)."""
    if not isinstance(value, str):
        raise ThemeError(f"{key!r} must be a colour in quotes")
    # CSS allows an opacity after the colour: "auto 60%", "#ffffff 10%".
    colour, _, opacity = value.partition(" ")
    if opacity and not (opacity.endswith("%") and opacity[:-1].strip().isdigit()):
        raise ThemeError(f"{key!r}: {value!r} is no colour")
    if colour == "auto" and opacity and key.startswith("variables."):
        return
    try:
        Color.parse(colour)
    except ColorParseError:
        raise ThemeError(f"{key!r}: {value!r} is no colour") from None


def load_themes(folders: Iterable[Path]) -> Themes:
    """Read ``*.toml`` of each folder; a later folder's theme replaces an earlier one of the same name."""
    found: dict[str, Theme] = {}
    problems: list[str] = []
    for folder in folders:
        for path in sorted(folder.glob("*.toml")):
            try:
                theme = parse_theme(tomllib.loads(path.read_text("utf-8")))
            except (OSError, ValueError) as error:  # TOMLDecodeError and ThemeError are ValueErrors
                problems.append(f"theme {path.name} left out: {error}")
            else:
                found[theme.name] = theme
    return Themes(tuple(found.values()), tuple(problems))
