"""What the chat screen says about itself: the message field's border and the live strip, as plain text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kt_tui.chat import ChatOptions, Conversation, Message, Metrics, Usage
from kt_tui.supervise.types import EngineState, EngineStatus
from kt_tui.text import one_line
from kt_tui.ui.figures import size
from kt_tui.ui.turn_text import SEPARATOR, seconds

if TYPE_CHECKING:
    from kt_tui.monitor import Snapshot
    from kt_tui.ui.chat_controller import TurnState

Row = tuple[str, str]


def composer_texts(
    status: EngineStatus,
    state: TurnState,
    options: ChatOptions,
    *,
    connected: bool,
    unseen: bool,
    editing: bool,
) -> tuple[str, str, str]:
    """Border title, parameters, placeholder of the message field."""
    title = ["Edit your last message" if editing else "Message"]
    if state.busy:
        title.append("esc stops the answer")
    if state.queued:
        title.append(f"{len(state.queued)} waiting" if connected else f"{len(state.queued)} sent when ready")
    if unseen:
        title.append("↓ new text below (ctrl+end)")
    parameters = []
    if options.temperature is not None:
        parameters.append(f"temp {options.temperature:g}")
    if options.max_tokens is not None:
        parameters.append(f"max {options.max_tokens:,} tok")
    return SEPARATOR.join(title), SEPARATOR.join(parameters), _placeholder(status, connected=connected)


def _placeholder(status: EngineStatus, *, connected: bool) -> str:
    if connected:
        return "Type a message, / for commands"
    if status.state in (EngineState.STARTING, EngineState.LOADING):
        return f"The engine is {engine_words(status)}; what you send goes out when it is ready"
    if status.state is EngineState.STOPPING:
        return "The engine is stopping"
    return "No engine is running: start one on Launch, then write here"


def engine_words(status: EngineStatus) -> str:
    """The state in words, with the phase and the progress while it loads."""
    if status.state is not EngineState.LOADING:
        return str(status.state)
    words = f"loading {one_line(status.phase, 20)}".rstrip()
    return words if status.progress is None else f"{words} {status.progress:.0%}"


def live_rows(
    status: EngineStatus, state: TurnState, conversation: Conversation, snapshot: Snapshot | None
) -> list[Row]:
    """The strip's rows: the engine, the turn, the context, the memory. What is unknown is left out."""
    rows: list[Row] = [("engine", engine_words(status))]
    if status.model:
        rows.append(("model", one_line(status.model, 20)))
    figures = snapshot.engine if snapshot else None
    if figures and figures.running is not None:
        rows.append(("requests", f"{figures.running} run, {figures.waiting or 0} wait"))
    rows += [("", ""), ("this turn" if state.busy else "last turn", "")]
    rows += _running_turn(state) if state.busy else _last_turn(conversation)
    if context := _context(conversation, snapshot):
        rows += [("", ""), *context]
    if snapshot and snapshot.memory:
        rows += [("", ""), ("memory", "")]
        rows.append(("machine", _of(snapshot.memory.used, snapshot.memory.total)))
        if snapshot.process:
            rows.append(("engine", size(snapshot.process.rss)))
        rows += [
            (f"gpu {gpu.index}", _of(gpu.memory_used, gpu.memory_total))
            for gpu in snapshot.gpus
            if gpu.memory_used is not None and gpu.memory_total is not None
        ]
    return rows


def _of(used: int, total: int) -> str:
    return f"{used / 2**30:.1f} / {total / 2**30:.1f} GiB"


def _running_turn(state: TurnState) -> list[Row]:
    rows: list[Row] = []
    if state.first_s is not None:
        rows.append(("TTFT", seconds(state.first_s)))
    if state.pieces_per_s is not None:
        rows.append(("speed", f"~{state.pieces_per_s:.1f} tok/s"))
    rows.append(("output", f"~{state.pieces} tok" if state.pieces else "waiting"))
    return rows


def _last_turn(conversation: Conversation) -> list[Row]:
    last = _last_answer(conversation)
    if last is None:
        return [("none yet", "")]
    metrics, usage = last.metrics or Metrics(), last.usage or Usage()
    rows: list[Row] = []
    if metrics.ttft_s is not None:
        rows.append(("TTFT", seconds(metrics.ttft_s)))
    if metrics.tpot_s is not None:
        rows.append(("TPOT", f"{metrics.tpot_s * 1000:.0f} ms"))
    if metrics.tokens_per_s is not None:
        rows.append(("speed", f"{metrics.tokens_per_s:.1f} tok/s"))
    if usage.completion_tokens is not None:
        rows.append(("output", f"{usage.completion_tokens:,} tok"))
    return rows or [("not measured", "")]


def _context(conversation: Conversation, snapshot: Snapshot | None) -> list[Row]:
    last = _last_answer(conversation)
    usage = last.usage if last else None
    if usage is None or usage.prompt_tokens is None:
        return []
    used = usage.prompt_tokens + (usage.completion_tokens or 0)
    total = snapshot.engine.kv_tokens_total if snapshot and snapshot.engine else None
    of = f" / {total:,}" if total else ""
    return [("context", ""), ("tokens", f"{used:,}{of}"), ("messages", str(len(conversation.messages)))]


def _last_answer(conversation: Conversation) -> Message | None:
    return next((m for m in reversed(conversation.messages) if m.role == "assistant" and m.metrics), None)
