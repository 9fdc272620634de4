"""Monitor: cores, memory, NUMA nodes, GPUs, the engine's processes and its figures, with history."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Static

from kt_tui.ui.figures import duration
from kt_tui.ui.monitor_text import engine_rows, gpu_content, memory_content, node_content, process_rows
from kt_tui.ui.screens.base import ModeScreen
from kt_tui.ui.widgets.corestrip import CoreStrip
from kt_tui.ui.widgets.facts import Facts
from kt_tui.ui.widgets.graph import Graph

if TYPE_CHECKING:
    from kt_tui.hardware import Machine
    from kt_tui.monitor import Snapshot

SERIES = (
    ("tokens_per_s", "Tokens per second", 1.0, 0.0),
    ("kv_usage", "KV cache used, percent", 100.0, 100.0),
    ("cpu", "CPU busy, percent", 1.0, 100.0),
)
"""The graphs: series of the sampler's history, title, factor, least upper edge."""


NO_FIGURES = "no figures yet"


class MonitorScreen(ModeScreen):
    """Live figures; nothing is drawn while another mode is shown, and nothing again that did not change."""

    MODE = "monitor"
    CSS_PATH = "monitor.tcss"
    HELP = (
        "**Monitor** shows the machine and the engine, measured every `ui.refresh_seconds`. Memory is *used* (cannot "
        "be reclaimed), *page cache* (given back when needed) and *free*. **Space** freezes the screen; sampling goes "
        "on. **g** goes through the graphs."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "freeze", "Freeze", id="monitor.freeze"),
        Binding("g", "next_graph", "Next graph", id="monitor.graph"),
        Binding("f5", "app.toggle_engine", "Start/stop", id="monitor.engine"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._frozen = False
        self._series = 0

    def compose_body(self) -> ComposeResult:
        """Boxes; those without content are hidden."""
        with VerticalScroll(id="monitor"):
            with Vertical(id="cores", classes="box") as cores:
                cores.border_title = "Cores"
                yield CoreStrip(id="core-strip")
            with Container(id="memory-row"):
                with Vertical(id="memory", classes="box") as memory:
                    memory.border_title = "Memory"
                    yield Static("", id="memory-text", markup=False)
                with Vertical(id="gpus", classes="box") as gpus:
                    gpus.border_title = "GPUs"
                    yield Static("", id="gpu-text", markup=False)
            with Container(id="engine-row"):
                with Vertical(id="figures", classes="box") as figures:
                    figures.border_title = "Engine"
                    yield Facts(12, id="engine-facts")
                with Vertical(id="process", classes="box") as process:
                    process.border_title = "Process"
                    yield Facts(12, id="process-facts")
            for name, title, _, floor in SERIES:
                with Vertical(id=f"history-{name}", classes="box history") as history:
                    history.border_title = title
                    yield Graph(id=f"graph-{name}", floor=floor)

    def on_mount(self) -> None:
        """Follow the sampler and the engine."""
        self.kt.snapshot_signal.subscribe(self, self._snapshot_taken)
        self.kt.engine_status_signal.subscribe(self, lambda _: self._show())
        self.kt.machine_signal.subscribe(self, self._machine_read)
        if (machine := self.services.known_machine) is not None:
            self._machine_read(machine)

    def on_screen_resume(self) -> None:
        """Catch up with what was not drawn while hidden."""
        self._show()

    def on_resize(self) -> None:
        """Bars are as wide as their boxes."""
        self.call_after_refresh(self._show)

    def _machine_read(self, machine: Machine) -> None:
        self.query_one(CoreStrip).group([(node.id, node.cpus) for node in machine.numa.nodes])

    def _snapshot_taken(self, _: Snapshot) -> None:
        self._show()

    def _show(self) -> None:
        snapshot = self.kt.snapshot
        if snapshot is None or self._frozen or not self.is_current:
            return
        if snapshot.cpu is not None:
            busy = f"Cores: {snapshot.cpu.percent:.0f}% of {len(snapshot.cpu.per_cpu)} busy"
            self.query_one("#cores").border_title = busy
            self.query_one(CoreStrip).show(snapshot.cpu.per_cpu)
        self._show_memory(snapshot)
        self._show_engine(snapshot)
        self._show_graphs()

    def _show_memory(self, snapshot: Snapshot) -> None:
        text = self.query_one("#memory-text", Static)
        content = memory_content(snapshot, text.size.width)
        if len(snapshot.nodes) > 1:
            content = content + "\n" + node_content(snapshot.nodes, text.size.width)
        _update(text, content)
        gpus = self.query_one("#gpu-text", Static)
        _update(gpus, gpu_content(snapshot, gpus.size.width))

    def _show_engine(self, snapshot: Snapshot) -> None:
        status = self.kt.engine_status
        self.query_one("#engine-facts", Facts).show(engine_rows(status, snapshot))
        self.query_one("#process-facts", Facts).show(process_rows(status, snapshot, time.time()))

    def _show_graphs(self) -> None:
        """All of them where there is height for them, else the chosen one."""
        several = self.has_class("-tall")
        history = self.services.sampler.history
        for index, (name, title, factor, _) in enumerate(SERIES):
            box = self.query_one(f"#history-{name}")
            box.display = several or index == self._series
            if not box.display:
                continue
            graph = self.query_one(f"#graph-{name}", Graph)
            values = [None if v is None else v * factor for v in history.values(name, graph.samples_shown)]
            graph.show(values)
            known = [value for value in values if value is not None]
            span = duration(len(values) * self.services.sampler.interval)
            words = f"now {known[-1]:.1f}, peak {max(known):.1f} in {span}" if known else NO_FIGURES
            box.border_title = f"{title}: {words}"

    def action_freeze(self) -> None:
        """Keep the screen as it is, or follow again."""
        self._frozen = not self._frozen
        self.set_class(self._frozen, "-frozen")
        if self._frozen:
            self.query_one("#cores").border_title = "Cores: frozen, space follows again"
        self._show()

    def action_next_graph(self) -> None:
        """Show the next series."""
        self._series = (self._series + 1) % len(SERIES)
        self._show_graphs()


def _update(widget: Static, content: Content) -> None:
    """Update only what differs: equal text does not repaint."""
    if not isinstance(widget.content, Content) or not content.is_same(widget.content):
        widget.update(content)
