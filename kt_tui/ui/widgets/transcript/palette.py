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
