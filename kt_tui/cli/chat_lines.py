"""The chat without a full screen: a line in, an answer out. Works in a pipe, with a screen reader, anywhere."""

from __future__ import annotations

import asyncio
import contextlib
import sys

from kt_tui.chat.commands import Action, CommandContext, complete, execute, is_command, message_text
from kt_tui.chat.conversation import Message, Status
from kt_tui.chat.events import (
    ChatError,
    ChatEvent,
    ContentDelta,
    ContentWasReasoning,
    ReasoningDelta,
    Waiting,
)
from kt_tui.chat.session import Session
from kt_tui.text import clean_text

_PROMPT, _MORE = "> ", ". "


def metrics_line(answer: Message) -> str:
    """Times and counts of an answer; what is not known is left out."""
    parts = []
    metrics, usage = answer.metrics, answer.usage
    if metrics is not None and metrics.ttft_s is not None:
        parts.append(f"first token {metrics.ttft_s:.2f} s")
    if metrics is not None and metrics.tokens_per_s is not None and metrics.tpot_s is not None:
        parts.append(f"{metrics.tokens_per_s:.1f} tokens/s ({metrics.tpot_s * 1000:.1f} ms a token)")
    if usage is not None and usage.prompt_tokens is not None and usage.completion_tokens is not None:
        parts.append(f"{usage.prompt_tokens} + {usage.completion_tokens} tokens")
    return ", ".join(parts)


def chat_by_lines(session: Session) -> int:
    """Talk until the input ends or the user leaves; 1 if no server answers at the start."""
    terminal = sys.stdin.isatty()
    asyncio.run(session.settle())
    if terminal:
        _use_line_editing()
        _say(f"{session.endpoint.model} at {session.endpoint.base_url}; /help lists commands, Ctrl+D leaves.")
    while True:
        try:
            line = _read(terminal)
        except EOFError:
            return 0
        except KeyboardInterrupt:
            _say("\n(Ctrl+D or /quit leaves)")
            continue
        if not line.strip():
            continue
        if is_command(line):
            result = execute(line, CommandContext(session.conversation, session.endpoint))
            if result.text:
                _say(result.text)
            if result.action is Action.QUIT:
                return 0
            if result.action is Action.RETRY:
                _answer(session, None)
            continue
        _answer(session, message_text(line))


def _use_line_editing() -> None:
    with contextlib.suppress(ImportError):
        import readline

        readline.set_completer_delims("")
        readline.set_completer(
            lambda text, state: next(iter([f"/{c.name}" for c in complete(text)][state : state + 1]), None)
        )
        readline.parse_and_bind("tab: complete")


def _read(terminal: bool) -> str:
    """One message: a line; a backslash at its end continues it on the next."""
    lines: list[str] = []
    while True:
        line = input((_MORE if lines else _PROMPT) if terminal else "")
        if not line.endswith("\\"):
            return "\n".join([*lines, line])
        lines.append(line[:-1])


class _Printer:
    """Writes an answer as it comes, with the reasoning set apart."""

    def __init__(self) -> None:
        self.last = "\n"
        self.reasoning = False

    def write(self, text: str) -> None:
        """Write model text, safe for a terminal."""
        if text:
            sys.stdout.write(clean_text(text))
            sys.stdout.flush()
            self.last = text[-1]

    def end_line(self) -> None:
        """Begin a new line unless one has just begun."""
        if self.last != "\n":
            self.write("\n")

    def event(self, event: ChatEvent) -> None:
        """Write what one event adds."""
        match event:
            case ReasoningDelta(text):
                if not self.reasoning:
                    self.end_line()
                    self.write("[thinking]\n")
                    self.reasoning = True
                self.write(text)
            case ContentDelta(text):
                self._leave_reasoning()
                self.write(text)
            case ContentWasReasoning():
                self.end_line()
                self.write("[that was the model's thinking]\n")
            case Waiting(reason, progress):
                self.end_line()
                self.write(f"[{reason}{'' if progress is None else f', {progress:.0%}'}]\n")
            case _:
                pass

    def _leave_reasoning(self) -> None:
        if self.reasoning:
            self.end_line()
            self.write("[answer]\n")
            self.reasoning = False


def _answer(session: Session, text: str | None) -> None:
    printer = _Printer()
    try:
        answer = asyncio.run(
            session.answer(printer.event) if text is None else session.ask(text, printer.event)
        )
    except (KeyboardInterrupt, ChatError) as error:
        printer.end_line()
        _say(f"[{error or 'stopped'}]")
        return
    printer.end_line()
    if answer.status is Status.FAILED:
        _say(f"[failed: {answer.note}]")
    elif answer.note:
        _say(f"[{answer.note}]")
    if sys.stdin.isatty() and (line := metrics_line(answer)):
        _say(f"[{line}]")


def _say(text: str) -> None:
    sys.stdout.write(clean_text(text) + "\n")
    sys.stdout.flush()
