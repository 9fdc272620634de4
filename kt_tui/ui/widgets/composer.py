"""Where messages are written: several lines, history, slash commands; it never waits for the model."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.timer import Timer
from textual.widgets import OptionList, TextArea
from textual.widgets.option_list import Option

from kt_tui.chat.commands import Command, complete, find
from kt_tui.ui.widgets.pastes import Pastes, plain_line_ends

BURST_S = 0.012
"""Keys closer than this were not typed: a terminal without bracketed paste is pasting."""
SETTLE_S = 0.03
"""How long Enter inside a burst waits for more keys before it means "send"."""
PAGE_KEYS = ("pageup", "pagedown")
STEERING_KEYS = (*PAGE_KEYS, "up", "down", "tab", "enter", "escape")
NEWLINE_KEYS = ("ctrl+j", "shift+enter", "alt+enter")


class Prompt(TextArea):
    """The text field of the composer."""

    HELP = """
# Writing a message

- **enter** sends, **ctrl+j** (or alt+enter, shift+enter) begins a new line
- **esc** stops the answer; what came of it stays
- **up** in an empty field brings back what you sent before
- **/** begins a command: /help lists them, **tab** completes
- **ctrl+t** shows or hides the model's reasoning, **tab** goes to the conversation

You can write while an answer is coming; your message is sent after it.
"""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "send", "Send", id="chat.send"),
        Binding("ctrl+j", "newline", "New line", show=False, id="chat.newline"),
    ]

    class Submitted(Message):
        """The user sends ``text``, pastes unfolded."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class Steered(Message):
        """A key for what is around the field: the completion list's keys, or ``pageup`` and ``pagedown``."""

        def __init__(self, key: str) -> None:
            super().__init__()
            self.key = key

    def __init__(self) -> None:
        super().__init__(soft_wrap=True, show_line_numbers=False, highlight_cursor_line=False)
        self.completing = False
        self.pastes = Pastes()
        self._sent: list[str] = []
        self._browsing: int | None = None
        self._last_key = 0.0
        self._pending: Timer | None = None

    def on_key(self, event: events.Key) -> None:
        """Sending, new lines, history and the completion list, before the text field sees the key."""
        now = time.monotonic()
        burst, self._last_key = now - self._last_key < BURST_S, now
        handled = True
        if event.key in NEWLINE_KEYS:
            self.action_newline()
        elif event.key == "enter" and not self.completing:
            self._enter(burst=burst)
        elif event.key in STEERING_KEYS if self.completing else event.key in PAGE_KEYS:
            self.post_message(self.Steered(event.key))
        elif event.key in ("up", "down"):
            handled = self._browse(-1 if event.key == "up" else 1)
        else:
            handled = False
            if self._pending is not None and event.is_printable:
                self._settle()
                self.insert("\n")
        if handled:
            event.stop()
            event.prevent_default()

    def _enter(self, *, burst: bool) -> None:
        if self._pending is not None:
            self._settle()
            self.insert("\n")
        if burst:
            self._pending = self.set_timer(SETTLE_S, self._send_pending)
        else:
            self.action_send()

    def _settle(self) -> None:
        if self._pending is not None:
            self._pending.stop()
            self._pending = None

    def _send_pending(self) -> None:
        self._pending = None
        self.action_send()

    async def on_paste(self, event: events.Paste) -> None:
        """Inserts a paste at once, a big one as a mark."""
        event.stop()
        event.prevent_default()
        self.replace(self.pastes.fold(plain_line_ends(event.text)), *self.selection)

    def action_newline(self) -> None:
        """Begins a new line."""
        self.replace("\n", *self.selection)

    def action_send(self) -> None:
        """Hands the text to the screen, which empties the field if it takes it."""
        text = self.pastes.expand(self.text).strip("\n")
        if text.strip():
            self.post_message(self.Submitted(text))

    def taken(self) -> None:
        """The message was accepted: the field is empty again, the text is in the history."""
        written = self.text.strip("\n")
        if not self._sent or self._sent[-1] != written:
            self._sent.append(written)
        self._browsing = None
        self.clear()

    def put(self, text: str) -> None:
        """Fills the field for editing, cursor at the end."""
        self.text = self.pastes.fold(text)
        self.move_cursor(self.document.end)

    def _browse(self, direction: int) -> bool:
        """Steps through what was sent; only from an empty field, or while stepping."""
        if self._browsing is None and (self.text or direction > 0):
            return False
        if self._browsing is not None and self.text != self._sent[self._browsing]:
            self._browsing = None
            return False
        position = (len(self._sent) if self._browsing is None else self._browsing) + direction
        if position >= len(self._sent):
            self._browsing = None
            self.clear()
        elif position >= 0:
            self._browsing = position
            self.text = self._sent[position]
            self.move_cursor(self.document.end)
        return True


class Completions(OptionList, can_focus=False):
    """The commands that what is typed may become."""

    def offer(self, commands: Sequence[Command]) -> None:
        """Shows these commands, or nothing."""
        self.display = bool(commands)
        self.clear_options()
        if commands:
            wide = max(len(_usage(command)) for command in commands)
            self.add_options(
                Option(
                    Content.assemble(f"{_usage(command):<{wide}}  ", (command.help, "dim")),
                    id=command.name,
                )
                for command in commands
            )
            self.highlighted = 0


def _usage(command: Command) -> str:
    return f"/{command.name} {command.argument}".rstrip()


class Composer(Vertical):
    """The message field with its completion list above; parameters and state stand in its border."""

    DEFAULT_CSS = """
    Composer { height: auto; }
    Composer Completions {
        height: auto; max-height: 8; display: none; margin: 0 1; padding: 0 1;
        border: none; background: $surface; scrollbar-size-vertical: 1;
    }
    Composer Prompt {
        height: auto; min-height: 3; max-height: 10; padding: 0 1;
        border: round $foreground 20%;
        border-title-color: $text-muted; border-subtitle-color: $text-muted;
        border-title-background: $background; border-subtitle-background: $background;
        background: $background;
    }
    Composer Prompt:focus { border: round $primary 70%; }
    Composer Prompt .text-area--cursor-line { background: $background; }
    """

    def compose(self) -> ComposeResult:
        """The list above, the field below."""
        yield Completions(markup=False)
        yield Prompt()

    @property
    def prompt(self) -> Prompt:
        """The text field."""
        return self.query_one(Prompt)

    def describe(self, *, title: str, parameters: str, placeholder: str) -> None:
        """Sets what stands in the border and in the empty field."""
        prompt = self.prompt
        if (title, parameters, placeholder) != getattr(self, "_described", None):
            self._described = (title, parameters, placeholder)
            prompt.border_title = Content(title)
            prompt.border_subtitle = Content(parameters)
            prompt.placeholder = Content(placeholder)

    def on_text_area_changed(self, event: TextArea.Changed) -> None:
        """Offers the commands that fit."""
        text = event.text_area.text
        found = complete(text) if len(text) < 40 else []
        if len(found) == 1 and text[1:] == found[0].name and not found[0].argument:
            found = []  # complete already: Enter runs it
        self._offer(found)

    def _offer(self, commands: Sequence[Command]) -> None:
        self.query_one(Completions).offer(commands)
        self.prompt.completing = bool(commands)

    def on_prompt_steered(self, event: Prompt.Steered) -> None:
        """Moves in the list, takes an entry, or closes the list."""
        if event.key.startswith("page"):
            return  # the screen scrolls the conversation
        event.stop()
        completions = self.query_one(Completions)
        if event.key == "up":
            completions.action_cursor_up()
        elif event.key == "down":
            completions.action_cursor_down()
        elif event.key == "escape":
            self._offer([])
        elif completions.highlighted is not None:
            self._accept(
                completions.get_option_at_index(completions.highlighted).id or "", run=event.key == "enter"
            )

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """A click takes the entry."""
        event.stop()
        self._accept(event.option.id or "", run=False)

    def _accept(self, name: str, *, run: bool) -> None:
        command = find(name)
        if command is None:
            return
        prompt = self.prompt
        prompt.text = f"/{name} " if command.argument else f"/{name}"
        prompt.move_cursor(prompt.document.end)
        self._offer([])
        if run and not command.argument:
            # In the field's own turn: a message made in its parent's handler would not bubble past the parent.
            prompt.call_next(prompt.action_send)
