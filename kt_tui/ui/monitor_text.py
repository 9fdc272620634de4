"""The monitor's figures in bars and words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.content import Content

from kt_tui.supervise.types import EngineState, EngineStatus
from kt_tui.ui.figures import UNKNOWN, duration, percent, rate, size
from kt_tui.ui.machine_text import memory_parts
from kt_tui.ui.states import MARKS
from kt_tui.ui.widgets.bars import Part, bar_content

if TYPE_CHECKING:
    from kt_tui.monitor import NodeSample, Snapshot
    from kt_tui.ui.widgets.facts import Row

_LABEL = 8


def memory_content(snapshot: Snapshot, width: int) -> Content:
    """Main memory: a bar, and its parts in words with their glyphs."""
    memory = snapshot.memory
    if memory is None:
        return Content.styled(snapshot.reasons.get("memory", UNKNOWN), "$muted")
    parts = memory_parts(memory)
    free = Part("free", max(memory.total - sum(part.value for part in parts), 0), "░", "$empty")
    words = [
        Content.assemble((f"{part.glyph} ", part.colour), f"{size(part.value)} ", (part.name, "$muted"))
        for part in (*parts, free)
    ]
    words.append(Content.assemble(f"{size(memory.total)} ", ("in all", "$muted")))
    lines = [bar_content(parts, memory.total, max(width, 8)), _wrapped(words, width)]
    if memory.swap_total:
        lines.append(
            Content.assemble(
                ("swap ", "$muted"), size(memory.swap_used), (f" of {size(memory.swap_total)}", "$muted")
            )
        )
    return Content("\n").join(lines)


def _wrapped(words: list[Content], width: int) -> Content:
    """Phrases side by side, on as many lines as they need; a phrase is never broken."""
    lines: list[Content] = []
    for word in words:
        if lines and lines[-1].cell_length + 3 + word.cell_length <= width:
            lines[-1] = Content.assemble(lines[-1], "   ", word)
        else:
            lines.append(word)
    return Content("\n").join(lines)


def node_content(nodes: tuple[NodeSample, ...], width: int) -> Content:
    """One bar a NUMA node."""
    lines = []
    for node in nodes:
        cache = min(node.page_cache or 0, node.total - node.free)
        used = node.total - node.free - cache
        tail = f" {size(used + cache):>9} of {size(node.total)}"
        bar = bar_content(
            [Part("used", used, "█", "$numa"), Part("page cache", cache, "▒", "$cache")],
            node.total,
            max(width - _LABEL - len(tail), 8),
        )
        lines.append(Content.assemble((f"node {node.id}".ljust(_LABEL), "$muted"), bar, tail))
    return Content("\n").join(lines)


def gpu_content(snapshot: Snapshot, width: int) -> Content:
    """One bar of memory and a line of figures a GPU; one quiet line without any."""
    if not snapshot.gpus:
        reason = snapshot.reasons.get("gpus") or snapshot.reasons.get("gpu") or "no GPU"
        return Content.styled(reason, "$muted")
    lines = []
    for gpu in snapshot.gpus:
        facts = [f"{gpu.index} {gpu.name}"]
        facts.append(UNKNOWN if gpu.utilization is None else f"{gpu.utilization:.0f}% busy")
        if gpu.power_w is not None:
            facts.append(f"{gpu.power_w:.0f} W")
        if gpu.temperature_c is not None:
            facts.append(f"{gpu.temperature_c:.0f} °C")
        lines.append(Content("  ".join(facts)))
        if gpu.memory_total and gpu.memory_used is not None:
            tail = f" {size(gpu.memory_used):>9} of {size(gpu.memory_total)}"
            bar = bar_content(
                [Part("used", gpu.memory_used, "█", "$gpu")], gpu.memory_total, max(width - len(tail), 8)
            )
            lines.append(Content.assemble(bar, tail))
    return Content("\n").join(lines)


def engine_summary(status: EngineStatus, now: float) -> list[Row]:
    """The engine in a few rows, for Home."""
    mark, colour = MARKS[status.state]
    rows: list[Row] = [("State", Content.assemble((f"{mark} ", colour), str(status.state)))]
    if status.state is EngineState.IDLE:
        return rows
    if status.model:
        rows.append(("Model", status.model))
    if status.state.active:
        rows.append(("Address", status.base_url or UNKNOWN))
        if status.ready_at is not None:
            rows.append(("Ready for", duration(now - status.ready_at)))
        if status.kept:
            rows.append(("", "goes on when the panel ends"))
    return rows


def engine_rows(status: EngineStatus, snapshot: Snapshot) -> list[Row]:
    """What the engine says about itself."""
    figures = snapshot.engine
    if not status.state.active:
        return [("State", "none; F5 starts one")]
    state = str(status.state)
    if status.state is EngineState.LOADING:
        state = f"loading: {status.phase} {percent(status.progress).strip()}"
    rows: list[Row] = [("State", state), ("Model", status.model)]
    if figures is None:
        rows.append(("Figures", snapshot.reasons.get("engine", "not yet")))
        return rows
    rows.append(("Generating", rate(figures.tokens_per_s)))
    if figures.prompt_tokens_per_s is not None:
        rows.append(("Prompts", rate(figures.prompt_tokens_per_s)))
    running = UNKNOWN if figures.running is None else str(figures.running)
    waiting = UNKNOWN if figures.waiting is None else str(figures.waiting)
    rows.append(("Requests", f"{running} running, {waiting} waiting"))
    rows.append(("KV cache", _cache(snapshot)))
    if figures.generated_tokens is not None:
        rows.append(("Generated", f"{figures.generated_tokens} tokens"))
    return rows


def _cache(snapshot: Snapshot) -> str:
    figures = snapshot.engine
    if figures is None or figures.kv_usage is None:
        return UNKNOWN
    words = percent(figures.kv_usage).strip()
    if figures.kv_tokens_used is not None and figures.kv_tokens_total is not None:
        words += f", {figures.kv_tokens_used} of {figures.kv_tokens_total} tokens"
    return words


def process_rows(status: EngineStatus, snapshot: Snapshot, now: float) -> list[Row]:
    """The engine's process tree."""
    process = snapshot.process
    if not status.state.active:
        return [("Process", "none")]
    if process is None:
        return [("Process", snapshot.reasons.get("process", "not yet measured"))]
    rows: list[Row] = [
        ("PID", f"{process.pid}" + (f", {process.processes} processes" if process.processes > 1 else "")),
        ("Memory", f"{size(process.rss)} resident"),
        ("CPU", UNKNOWN if process.cpu_percent is None else f"{process.cpu_percent / 100:.1f} CPUs busy"),
        ("Threads", str(process.threads)),
    ]
    if status.started_at is not None:
        rows.append(("Up", duration(now - status.started_at)))
    if process.read_per_s is not None:
        rows.append(("Reading", f"{size(process.read_per_s)}/s"))
    return rows
