"""Small questions: pick one of a few answers, or type a name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.events import Key
from textual.screen import ModalScreen
from textual.widgets import Button, Input, Static

Variant = Literal["default", "primary", "success", "warning", "error"]


@dataclass(frozen=True)
class Answer:
    """A button: what choosing it gives, its label, its look, and the letter of the label that chooses it."""

    value: str
    label: str
    variant: Variant = "default"
    key: str = ""

    @property
    def content(self) -> Content:
        """The label with its letter underlined."""
        at = self.label.lower().find(self.key) if self.key else -1
        label = Content(self.label)
        return label.stylize("underline", at, at + 1) if at >= 0 else label


class Dialog(ModalScreen[str | None]):
    """Base: a titled box in the middle; Esc is None."""

    CSS_PATH = "dialogs.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "Cancel"),
        Binding("left,up", "app.focus_previous", "Previous", show=False),
        Binding("right,down", "app.focus_next", "Next", show=False),
    ]


class Ask(Dialog):
    """A question with a few answers."""

    def __init__(self, title: str, text: str, answers: Sequence[Answer]) -> None:
        super().__init__()
        self._title = title
        self._text = text
        self._answers = tuple(answers)

    def compose(self) -> ComposeResult:
        """Text above buttons."""
        with Vertical(classes="dialog") as box:
            box.border_title = self._title
            yield Static(self._text, markup=False)
            with Horizontal(classes="buttons"):
                for answer in self._answers:
                    yield Button(answer.content, id=answer.value, variant=answer.variant, compact=True)

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """The answer is the button's id."""
        self.dismiss(event.button.id)

    def on_key(self, event: Key) -> None:
        """A letter chooses its answer."""
        for answer in self._answers:
            if answer.key and event.key == answer.key:
                event.stop()
                self.dismiss(answer.value)


class AskText(Dialog):
    """One line of text. ``check`` gives a sentence for a text that will not do."""

    def __init__(
        self, title: str, text: str, value: str = "", check: Callable[[str], str | None] = lambda _: None
    ) -> None:
        super().__init__()
        self._title = title
        self._text = text
        self._value = value
        self._check = check

    def compose(self) -> ComposeResult:
        """Text, input, room for what is wrong."""
        with Vertical(classes="dialog") as box:
            box.border_title = self._title
            yield Static(self._text, markup=False)
            yield Input(self._value, compact=True)
            yield Static("", id="problem", markup=False)

    @on(Input.Changed)
    def _tell_problem(self, event: Input.Changed) -> None:
        problem = self._check(event.value) if event.value else None
        self.query_one("#problem", Static).update(problem or "")

    @on(Input.Submitted)
    def _take(self, event: Input.Submitted) -> None:
        problem = self._check(event.value)
        if problem is None:
            self.dismiss(event.value.strip())
        else:
            self.query_one("#problem", Static).update(problem)
