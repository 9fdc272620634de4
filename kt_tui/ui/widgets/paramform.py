"""The launch form, made from the parameter table: a row for each parameter, nothing written twice."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import TYPE_CHECKING

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.message import Message
from textual.widgets import Input, Static

from kt_tui.launch.schema import Kind, Parameter
from kt_tui.ui.widgets.choice import Choice

if TYPE_CHECKING:
    from kt_tui.launch import Resolved

CHANGED = "•"
_ACRONYMS = {"api", "cpu", "gpu", "kt", "kv", "numa"}
ORIGIN_WORDS = {
    "cli": "set here",
    "profile": "profile",
    "environment": "environment",
    "config": "config",
    "model": "model",
    "hardware": "hardware",
    "default": "default",
}


def typed_problem(parameter: Parameter, text: str) -> str | None:
    """What is wrong with a text as typed; None for a usable one, and for an empty one (which sets nothing)."""
    if not text.strip():
        return None
    try:
        value = parameter.read(text)
    except ValueError as error:
        return str(error)
    return parameter.range_problem(value)


def title(parameter: Parameter) -> str:
    """The option's name as a label."""
    words = [word.upper() if word in _ACRONYMS else word for word in parameter.name.split("-")]
    text = " ".join(words)
    return text[0].upper() + text[1:]


def help_of(parameter: Parameter) -> str:
    """A parameter's page of help, as Markdown."""
    default = "" if parameter.default is None else f" Default: `{parameter.default}`."
    return (
        f"**{title(parameter)}** (`--{parameter.name}`, `{parameter.config_key}`): {parameter.help}.{default}\n\n"
        "An emptied field goes back to what profile, configuration, model or hardware say."
    )


class ParameterRow(Vertical):
    """One parameter: changed mark, label, input, unit, origin; its help or what is wrong with it below."""

    DEFAULT_CSS = """
    ParameterRow { height: auto; }
    ParameterRow Horizontal { height: 1; }
    ParameterRow .mark { width: 2; color: $accent; }
    ParameterRow .label { width: 23; }
    ParameterRow Input.-textual-compact { width: 1fr; max-width: 36; background: $surface; padding: 0 1; }
    ParameterRow Input.-textual-compact:focus { background: $boost; }
    ParameterRow Choice { max-width: 36; }
    ParameterRow .unit { width: 10; padding-left: 1; color: $muted; }
    ParameterRow .origin { width: 11; color: $muted; }
    ParameterRow .origin.-set { color: $accent; }
    ParameterRow .help { display: none; height: auto; padding-left: 2; color: $muted; }
    ParameterRow:focus-within .help { display: block; }
    ParameterRow:focus-within .label { color: $primary; }
    ParameterRow.-invalid .help { display: block; color: $bad; }
    ParameterRow.-invalid Input { color: $bad; }
    """

    def __init__(self, parameter: Parameter) -> None:
        super().__init__(id=f"row-{parameter.name}")
        self.parameter = parameter
        self._text = ""
        self._problem: str | None = None

    def compose(self) -> ComposeResult:
        """The row."""
        parameter = self.parameter
        with Horizontal():
            yield Static("", classes="mark", markup=False)
            yield Static(title(parameter), classes="label", markup=False)
            if parameter.kind is Kind.CHOICE:
                yield Choice(parameter.choices, str(parameter.default or ""), id=f"field-{parameter.name}")
            else:
                yield Input(id=f"field-{parameter.name}", compact=True, password=parameter.is_secret)
            yield Static(parameter.unit or "", classes="unit", markup=False)
            yield Static("", classes="origin", markup=False)
        yield Static(parameter.help, classes="help", markup=False)

    def help_page(self) -> str:
        """The parameter's own help."""
        return help_of(self.parameter)

    @property
    def text(self) -> str:
        """What the user set; empty for nothing."""
        return self._text

    def set_text(self, text: str) -> None:
        """Fill in a value as if the user had typed it; empty takes it back."""
        self._text = text
        if self.parameter.kind is Kind.CHOICE:
            self.query_one(Choice).value = text or str(self.parameter.default or "")
        else:
            field = self.query_one(Input)
            with field.prevent(Input.Changed):
                field.value = text
        self._mark()

    def edited(self, text: str) -> bool:
        """The field has another text now; gives whether that is news."""
        if text == self._text:
            return False
        self._text = text
        self._mark()
        return True

    def _mark(self) -> None:
        self.query_one(".mark", Static).update(CHANGED if self._text else "")
        self.show_problem(typed_problem(self.parameter, self._text))

    @property
    def problem(self) -> str | None:
        """What is wrong with the value, if anything."""
        return self._problem

    def show_problem(self, problem: str | None) -> None:
        """Say what is wrong in place of the help."""
        if problem != self._problem:
            self._problem = problem
            self.set_class(problem is not None, "-invalid")
            self.query_one(".help", Static).update(problem or self.parameter.help)

    def show_resolved(self, resolved: Resolved | None) -> None:
        """Show the value in force (as a placeholder, or in the choice) and where it comes from."""
        origin = self.query_one(".origin", Static)
        word = "" if resolved is None else ORIGIN_WORDS.get(str(resolved.origin), str(resolved.origin))
        if resolved is not None and resolved.value is None and not self._text:
            word = ""
        origin.update(word)
        origin.set_class(bool(self._text), "-set")
        value = "" if resolved is None or resolved.value is None else str(resolved.value)
        if self.parameter.kind is Kind.CHOICE:
            if not self._text and value in self.parameter.choices:
                self.query_one(Choice).value = value
        else:
            shown = "•••" if self.parameter.is_secret and value else value
            self.query_one(Input).placeholder = shown or ("none" if self.parameter.is_secret else "by itself")


class ParameterForm(VerticalScroll, can_focus=False):
    """All rows, by group."""

    DEFAULT_CSS = """
    ParameterForm { height: 1fr; }
    ParameterForm .group { color: $muted; text-style: bold; margin-top: 1; height: 1; }
    ParameterForm .group.-first { margin-top: 0; }
    """

    class Edited(Message):
        """The user changed a field."""

    def __init__(self, parameters: Iterable[Parameter], *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self.parameters = tuple(parameters)

    def compose(self) -> ComposeResult:
        """Group titles and rows."""
        first = True
        for group, members in groupby(self.parameters, key=lambda parameter: parameter.group):
            yield Static(str(group), classes="group -first" if first else "group", markup=False)
            first = False
            for parameter in members:
                yield ParameterRow(parameter)

    @property
    def rows(self) -> list[ParameterRow]:
        """The rows, in the order of the table."""
        return list(self.query(ParameterRow))

    def options(self) -> dict[str, object]:
        """What the user set, as read by the parameters; texts that cannot be read stay texts."""
        found: dict[str, object] = {}
        for row in self.rows:
            if not row.text:
                continue
            try:
                found[row.parameter.name] = row.parameter.read(row.text)
            except ValueError:
                found[row.parameter.name] = row.text
        return found

    def fill(self, options: Mapping[str, object]) -> None:
        """Set these values and take all others back."""
        for row in self.rows:
            value = options.get(row.parameter.name)
            row.set_text("" if value is None else str(value))

    def show_plan(self, values: Mapping[str, Resolved], problems: Mapping[str, str]) -> None:
        """Show the values in force, their origins, and what the plan says against single values."""
        for row in self.rows:
            name = row.parameter.name
            row.show_resolved(values.get(name))
            row.show_problem(typed_problem(row.parameter, row.text) or problems.get(name))

    @on(Input.Changed)
    @on(Choice.Changed)
    def _edited(self, event: Input.Changed | Choice.Changed) -> None:
        event.stop()
        row = next((a for a in event.control.ancestors if isinstance(a, ParameterRow)), None)
        # Textual posts Changed when a field is mounted, too (8.2.7 and later); that is no news.
        if row is not None and row.edited(event.value.strip()):
            self.post_message(self.Edited())
