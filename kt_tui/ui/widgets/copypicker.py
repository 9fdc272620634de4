"""What to copy of a message: the whole answer, one of its code blocks, its reasoning. Always the source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from kt_tui.text import one_line
from kt_tui.ui.figures import plural
from kt_tui.ui.widgets.transcript.entries import Answer, Entry
from kt_tui.ui.widgets.transcript.segmenter import parser


@dataclass(frozen=True)
class CopyChoice:
    """A thing to copy: what it is, its beginning, the text."""

    title: str
    preview: str
    text: str


def copy_choices(entry: Entry) -> list[CopyChoice]:
    """Everything in a message that one may want to have."""
    whole = "whole answer" if isinstance(entry, Answer) else "message"
    choices = [_choice(whole, entry.content)] if entry.content else []
    if not isinstance(entry, Answer):
        return choices
    for token in parser().parse(entry.content):
        if token.type in ("fence", "code_block"):
            language = token.info.split()[0] if token.info.split() else "code"
            choices.append(_choice(one_line(language, 16), token.content.removesuffix("\n")))
    if entry.reasoning.strip():
        choices.append(_choice("reasoning", entry.reasoning))
    return choices


def _choice(title: str, text: str) -> CopyChoice:
    lines = text.strip("\n").count("\n") + 1
    return CopyChoice(title, f"{plural(lines, 'line')}  {one_line(text.strip()[:200], 60)}", text)


class CopyPicker(ModalScreen[str | None]):
    """Asks which part to copy; gives its text."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "Cancel"),
        Binding("j", "move(1)", show=False),
        Binding("k", "move(-1)", show=False),
    ]
    DEFAULT_CSS = """
    CopyPicker {
        align: center middle;
        & > Vertical {
            width: 76; max-width: 90%; height: auto; max-height: 80%; background: $surface;
            border: round $primary 70%; border-title-color: $text-muted; padding: 0 1;
        }
        & OptionList, & OptionList:focus {
            height: auto; border: none; background: $surface; padding: 0;
            text-wrap: nowrap; text-overflow: ellipsis;
        }
    }
    """
    CSS = "CopyPicker { background: $background 60%; }"  # the panel gives every screen a solid one

    def __init__(self, choices: Sequence[CopyChoice]) -> None:
        super().__init__()
        self._choices = choices

    def compose(self) -> ComposeResult:
        """A short list."""
        wide = max(len(choice.title) for choice in self._choices)
        with Vertical() as box:
            box.border_title = "Copy"
            yield OptionList(
                *(
                    Option(Content.assemble(f"{choice.title:<{wide}}  ", (choice.preview, "dim")))
                    for choice in self._choices
                ),
                markup=False,
            )

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Gives the chosen text back."""
        self.dismiss(self._choices[event.option_index].text)

    def action_move(self, step: int) -> None:
        """Moves as the arrow keys do."""
        options = self.query_one(OptionList)
        if step > 0:
            options.action_cursor_down()
        else:
            options.action_cursor_up()
