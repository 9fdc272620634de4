"""The styles a transcript is drawn with, resolved once per theme from the widget's component classes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

from rich.style import Style

PREFIX = "transcript--"


@dataclass(frozen=True)
class Palette:
    """One Rich style a role. Field ``code_bar`` belongs to component class ``transcript--code-bar``."""

    text: Style
    muted: Style
    user: Style
    model: Style
    note: Style
    error: Style
    cursor: Style
    heading: Style
    link: Style
    inline_code: Style
    marker: Style
    quote: Style
    rule: Style
    reasoning: Style
    reasoning_handle: Style
    metrics: Style
    code: Style
    code_bar: Style
    code_label: Style
    code_keyword: Style
    code_name: Style
    code_string: Style
    code_number: Style
    code_comment: Style

    @classmethod
    def resolve(cls, style: Callable[[str], Style]) -> Palette:
        """Builds a palette from a function that knows the style of a component class."""
        return cls(**{field.name: style(component(field.name)) for field in fields(cls)})


def component(role: str) -> str:
    """The component class of a role."""
    return PREFIX + role.replace("_", "-")


def component_classes() -> set[str]:
    """All component classes, for the widget's ``COMPONENT_CLASSES``."""
    return {component(field.name) for field in fields(Palette)}


ROLE_CSS = """
& > .transcript--text { color: $foreground; }
& > .transcript--muted { color: $text-muted; }
& > .transcript--user { color: $text-accent; text-style: bold; }
& > .transcript--model { color: $text-primary; text-style: bold; }
& > .transcript--note { color: $text-muted; }
& > .transcript--error { color: $text-error; }
& > .transcript--cursor { color: $accent; }
& > .transcript--heading { color: $text-primary; }
& > .transcript--link { color: $text-accent; text-style: underline; }
& > .transcript--inline-code { color: $text-secondary; background: $surface; }
& > .transcript--marker { color: $text-primary; }
& > .transcript--quote { color: $text-muted; text-style: italic; }
& > .transcript--rule { color: $foreground 30%; }
& > .transcript--reasoning { color: $foreground 55%; }
& > .transcript--reasoning-handle { color: $foreground 55%; text-style: italic; }
& > .transcript--metrics { color: $foreground 45%; }
& > .transcript--code { color: $foreground; background: $surface; }
& > .transcript--code-bar { color: $primary 60%; background: $surface; }
& > .transcript--code-label { color: $foreground 45%; background: $surface; }
& > .transcript--code-keyword { color: $text-primary; background: $surface; }
& > .transcript--code-name { color: $text-secondary; background: $surface; }
& > .transcript--code-string { color: $text-success; background: $surface; }
& > .transcript--code-number { color: $text-warning; background: $surface; }
& > .transcript--code-comment { color: $foreground 45%; background: $surface; text-style: italic; }
"""
"""The roles' styles with variables that every theme has; the panel's own style sheet refines them."""
