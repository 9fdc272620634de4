"""Models: what is known and what is on disk; making and verifying; the way to a launch."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import DataTable

from kt_tui.text import one_line
from kt_tui.ui.figures import UNKNOWN, sentence, size
from kt_tui.ui.screens.base import ModeScreen
from kt_tui.ui.widgets.card import ProgressCard
from kt_tui.ui.widgets.facts import Facts, Row

if TYPE_CHECKING:
    from kt_tui.catalog import ModelEntry

STATE_MARKS = {
    "complete": ("●", "$ok", "on disk"),
    "known": ("○", "$muted", "not on disk"),
    "incomplete": ("◐", "$warn", "incomplete"),
    "offline": ("◌", "$warn", "disk not there"),
    "wrong": ("✗", "$bad", "not usable"),
    "downloading": ("◔", "$warn", "being made"),
}
"""Mark, colour and words of each state."""

COLUMNS = (("name", "Name", 18), ("state", "State", 18), ("size", "    Size", 8), ("family", "Family", 12))


def state_words(entry: ModelEntry) -> str:
    """The state as a mark and words."""
    mark, _, words = STATE_MARKS.get(str(entry.state), ("?", "", str(entry.state)))
    return f"{mark} {'can be made here' if entry.preparable and entry.state == 'known' else words}"


def entry_rows(entry: ModelEntry) -> list[Row]:
    """The details of an entry."""
    mark, colour, _ = STATE_MARKS.get(str(entry.state), ("?", "", ""))
    rows: list[Row] = [
        ("Model", Content.styled(one_line(entry.name), "bold")),
        ("", sentence(entry.description)),
        ("State", Content.assemble((f"{mark} ", colour), state_words(entry)[2:])),
        ("Family", entry.family or UNKNOWN),
        ("Format", entry.format or UNKNOWN),
        ("Size", size(entry.bytes) if entry.path is not None else f"{size(entry.bytes)} once it is made"),
        ("Path", str(entry.path) if entry.path is not None else "not on this machine"),
    ]
    if entry.aliases:
        rows.append(("Also called", ", ".join(entry.aliases)))
    rows.extend(
        ("Problem" if index == 0 else "", sentence(text)) for index, text in enumerate(entry.problems)
    )
    rows.extend(("Note" if index == 0 else "", sentence(text)) for index, text in enumerate(entry.notes))
    return [row for row in rows if row != ("", "")]


class ModelsScreen(ModeScreen):
    """The catalogue as a table, details beside it."""

    MODE = "models"
    CSS_PATH = "models.tcss"
    AUTO_FOCUS = "#model-table"
    HELP = (
        "**Models** lists the models that kt-tui knows and the checkpoints in your folders (`paths.models`).\n\n"
        "**Enter** opens the launch form of a model. **p** makes a model that can be made on this machine, and mends "
        "a damaged one. **v** reads every byte and compares checksums."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("p", "prepare", "Make or mend", id="models.prepare"),
        Binding("v", "verify", "Verify", id="models.verify"),
        Binding("r", "rescan", "Look again", id="models.rescan"),
        Binding("c", "copy_path", "Copy path", id="models.copy"),
        Binding("escape", "app.cancel_activity", "Cancel", show=False),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._entries: dict[str, ModelEntry] = {}

    def compose_body(self) -> ComposeResult:
        """Table and details."""
        with Container(id="models"):
            with Vertical(id="model-list", classes="box") as box:
                box.border_title = "Models"
                table: DataTable[Text] = DataTable(id="model-table", cursor_type="row")
                for key, title, width in COLUMNS:
                    table.add_column(title, key=key, width=width)
                table.add_column("Format", key="format")
                yield table
            with VerticalScroll(id="model-details", classes="box", can_focus=False) as details:
                details.border_title = "Details"
                yield ProgressCard()
                yield Facts(id="model-facts")

    def on_mount(self) -> None:
        """Read the catalogue; read it again whenever something was made."""
        self.kt.activity_signal.subscribe(self, self._activity_changed)

    def on_screen_resume(self) -> None:
        """Files may have changed meanwhile."""
        self.action_rescan()

    def _activity_changed(self, activity: object) -> None:
        if activity is None:
            self.action_rescan()

    @work(group="models", exclusive=True)
    async def action_rescan(self) -> None:
        """Read the catalogue again."""
        entries = await asyncio.to_thread(self.services.list_models)
        if self.composed:
            self._fill(entries)

    def _fill(self, entries: list[ModelEntry]) -> None:
        table: DataTable[Text] = self.query_one("#model-table", DataTable)
        if list(self._entries.values()) == entries:
            return
        chosen = self.chosen.name if self.chosen is not None else None
        self._entries = {entry.name: entry for entry in entries}
        table.clear()
        for entry in entries:
            cells = (
                one_line(entry.name, 60),
                state_words(entry),
                f"{size(entry.bytes):>8}",
                entry.family or UNKNOWN,
                entry.format or UNKNOWN,
            )
            table.add_row(*(Text(cell, no_wrap=True, overflow="ellipsis") for cell in cells), key=entry.name)
        if chosen in self._entries:
            table.move_cursor(row=list(self._entries).index(chosen))
        self._show_details()

    @property
    def chosen(self) -> ModelEntry | None:
        """The entry under the cursor."""
        table: DataTable[Text] = self.query_one("#model-table", DataTable)
        if not self._entries or not 0 <= table.cursor_row < len(self._entries):
            return None
        return list(self._entries.values())[table.cursor_row]

    def _show_details(self) -> None:
        entry = self.chosen
        self.query_one(Facts).show(entry_rows(entry) if entry is not None else [("", "no models")])

    def on_data_table_row_highlighted(self, _: DataTable.RowHighlighted) -> None:
        """The details follow the cursor."""
        self._show_details()

    async def on_data_table_row_selected(self, _: DataTable.RowSelected) -> None:
        """Enter opens the launch form."""
        if (entry := self.chosen) is not None:
            await self.kt.open_launch_form(entry.name)

    def action_prepare(self) -> None:
        """Make or mend the chosen model."""
        entry = self.chosen
        if entry is None:
            return
        if not entry.preparable:
            self.kt.say(f"{entry.name} is not made on this machine; there is nothing to mend here", "warning")
        else:
            self.kt.prepare(entry.name)

    def action_verify(self) -> None:
        """Read every byte of the chosen model."""
        if (entry := self.chosen) is not None:
            self.kt.prepare(entry.name, verify=True)

    def action_copy_path(self) -> None:
        """Copy the chosen model's path."""
        entry = self.chosen
        if entry is not None and entry.path is not None:
            self.kt.copy(str(entry.path))
        elif entry is not None:
            self.kt.say(f"{entry.name} is not on this machine yet", "warning")
