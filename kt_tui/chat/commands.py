"""Slash commands as data: the help text, the completion and every front end read this one table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from kt_tui.chat.conversation import Conversation, Status
from kt_tui.chat.events import Endpoint


class Action(StrEnum):
    """What a front end has to do after a command; the conversation itself is already changed."""

    SHOW = "show"  # only show the text
    CLEARED = "cleared"  # the conversation is empty now
    RETRY = "retry"  # ask for the last answer again
    QUIT = "quit"
    ERROR = "error"  # show the text as a mistake


@dataclass(frozen=True)
class CommandContext:
    """What a command may read and change."""

    conversation: Conversation
    endpoint: Endpoint
    busy: bool = False  # an answer is being received


@dataclass(frozen=True)
class CommandResult:
    """The outcome: what to do, and what to tell the user (plain text)."""

    action: Action
    text: str = ""


@dataclass(frozen=True)
class Command:
    """One command. ``needs_idle`` refuses it while an answer is being received."""

    name: str
    aliases: tuple[str, ...]
    help: str
    handler: Callable[[CommandContext, str], CommandResult]
    argument: str = ""
    needs_idle: bool = False


def _help(_context: CommandContext, _argument: str) -> CommandResult:
    rows = []
    for command in COMMANDS:
        usage = f"/{command.name} {command.argument}".rstrip()
        aliases = ", ".join(f"/{alias}" for alias in command.aliases)
        rows.append(f"{usage:<16} {command.help}" + (f" ({aliases})" if aliases else ""))
    rows.append("//text           sends /text as it is")
    return CommandResult(Action.SHOW, "\n".join(rows))


def _clear(context: CommandContext, _argument: str) -> CommandResult:
    context.conversation.clear()
    kept = "; the system prompt stays" if context.conversation.system else ""
    return CommandResult(Action.CLEARED, f"The conversation is empty{kept}.")


def _retry(context: CommandContext, _argument: str) -> CommandResult:
    if not context.conversation.retry():
        return CommandResult(Action.ERROR, "There is no answer to ask for again yet.")
    return CommandResult(Action.RETRY)


def _info(context: CommandContext, _argument: str) -> CommandResult:
    conversation = context.conversation
    answers = [m for m in conversation.messages if m.role == "assistant" and m.status is Status.COMPLETE]
    rows = [
        f"server    {context.endpoint.base_url}",
        f"model     {context.endpoint.model or '(the first one that the server lists)'}",
        f"messages  {len(conversation.messages)}",
        f"system    {conversation.system or '(none)'}",
    ]
    counted = [m.usage for m in answers if m.usage is not None]
    if counted:
        # Each request sends the whole conversation again, so the last prompt holds all earlier turns.
        last = counted[-1]
        rows.append(
            f"tokens    last prompt {_number(last.prompt_tokens)}, last answer {_number(last.completion_tokens)}, "
            f"answers in all {sum(u.completion_tokens or 0 for u in counted)}"
        )
    timed = [m.metrics for m in answers if m.metrics is not None and m.metrics.tokens_per_s is not None]
    if timed and timed[-1].ttft_s is not None and timed[-1].tokens_per_s is not None:
        rows.append(
            f"speed     first token after {timed[-1].ttft_s:.2f} s, {timed[-1].tokens_per_s:.1f} tokens/s"
        )
    return CommandResult(Action.SHOW, "\n".join(rows))


def _number(value: int | None) -> str:
    return "unknown" if value is None else str(value)


def _system(context: CommandContext, argument: str) -> CommandResult:
    if not argument:
        return CommandResult(Action.SHOW, context.conversation.system or "There is no system prompt.")
    if argument == "-":
        context.conversation.set_system(None)
        return CommandResult(Action.SHOW, "The system prompt is removed.")
    context.conversation.set_system(argument)
    return CommandResult(Action.SHOW, "The system prompt is set; it takes effect from the next answer.")


def _quit(_context: CommandContext, _argument: str) -> CommandResult:
    return CommandResult(Action.QUIT)


COMMANDS: tuple[Command, ...] = (
    Command("help", ("h", "?"), "this list", _help),
    Command("clear", ("c",), "forget the conversation, keep the system prompt", _clear, needs_idle=True),
    Command("retry", ("r",), "ask for the last answer again", _retry, needs_idle=True),
    Command("info", ("i",), "server, model, tokens and speed", _info),
    Command("system", (), "show, set or (with -) remove the system prompt", _system, argument="[TEXT|-]"),
    Command("quit", ("exit", "q"), "leave the chat", _quit),
)


def is_command(text: str) -> bool:
    """Whether typed text is a command (``//`` escapes one)."""
    return text.startswith("/") and not text.startswith("//")


def message_text(text: str) -> str:
    """Typed text that is no command, as it is to be sent."""
    return text[1:] if text.startswith("//") else text


def find(name: str) -> Command | None:
    """The command of that name or alias, without the slash, in any case."""
    wanted = name.lower()
    return next((c for c in COMMANDS if wanted == c.name or wanted in c.aliases), None)


def complete(prefix: str) -> list[Command]:
    """The commands that typed text such as ``/re`` may become, in table order; none once an argument begins."""
    if not is_command(prefix) or any(c.isspace() for c in prefix):
        return []
    typed = prefix[1:].lower()
    return [c for c in COMMANDS if c.name.startswith(typed) or typed in c.aliases]


def execute(text: str, context: CommandContext) -> CommandResult:
    """Run the command that ``text`` is."""
    name, _, argument = text[1:].strip().partition(" ")
    command = find(name)
    if command is None:
        return CommandResult(Action.ERROR, f"There is no command /{name}; /help lists them.")
    if command.needs_idle and context.busy:
        return CommandResult(
            Action.ERROR, f"/{command.name} has to wait until the answer is complete or stopped."
        )
    return command.handler(context, argument.strip())
