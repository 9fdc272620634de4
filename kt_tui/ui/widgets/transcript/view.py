"""The transcript widget: draws rows, follows the end, moves between messages, selects and copies."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import var
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip

from kt_tui.ui.widgets.scrolling import resize_content
from kt_tui.ui.widgets.transcript.entries import Answer, Entry, Kind
from kt_tui.ui.widgets.transcript.layout import Drawn, Layout, Place, changed_rows
from kt_tui.ui.widgets.transcript.palette import ROLE_CSS, Palette, component_classes
from kt_tui.ui.widgets.transcript.selecting import highlight, selected_text

MARGIN = 7
"""Cells left of the text: the cursor bar, the speaker, air."""
WIDEST = 110
"""Cells of text in a row at most: longer lines are hard to read."""
BEYOND = 1
"""Rendered windows beyond the visible one."""
CURSOR = "▌"


class Transcript(ScrollView, can_focus=True):
    """A conversation. Text given to it is never markup."""

    ALLOW_SELECT = True
    COMPONENT_CLASSES: ClassVar[set[str]] = component_classes()
    HELP = """
# The conversation

- **up / down** choose a message, **page up / page down** scroll, **home / end** go to the ends
- **t** shows or hides the reasoning, **y** copies (the answer, a code block, the reasoning)
- **r** asks for the last answer again, **e** edits your last message
- drag with the mouse to select, **ctrl+c** copies what is selected

While you are at the end, the view follows new text; scroll up and it stays where you are.
"""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "Previous", show=False),
        Binding("down,j", "move(1)", "Next", show=False),
        Binding("pageup", "page(-1)", "Page up", show=False),
        Binding("pagedown,space", "page(1)", "Page down", show=False),
        Binding("home,g", "edge(-1)", "Top", show=False),
        Binding("end,G", "edge(1)", "End", show=False),
        Binding("t", "fold", "Fold thinking", id="chat.fold"),
        Binding("y", "request('copy')", "Copy", id="chat.copy"),
        Binding("r", "request('retry')", "Retry", id="chat.retry"),
        Binding("e", "request('edit')", "Edit last", id="chat.edit"),
    ]
    DEFAULT_CSS = f"""
    Transcript {{
        background: $background;
        color: $foreground;
        overflow-x: hidden;
        overflow-y: scroll;
        scrollbar-size-vertical: 1;
        scrollbar-background: $background;
        scrollbar-background-hover: $background;
        scrollbar-color: $panel;
        {ROLE_CSS}
    }}
    """

    follow: var[bool] = var(True)
    """Whether the view stays at the end as text arrives."""
    unseen: var[bool] = var(False, toggle_class="-unseen")
    """Whether text arrived below the view."""

    class Requested(Message):
        """The user wants something done with a message: ``copy``, ``retry`` or ``edit``."""

        def __init__(self, what: str) -> None:
            super().__init__()
            self.what = what

    class FollowChanged(Message):
        """Following started or stopped, or text arrived below."""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id, classes=classes)
        self.layout_rows = Layout()
        self.cursor: int | None = None
        self._palette: Palette | None = None
        self._styles_stale = False
        self._placing = False
        self._painted: list[Drawn] = []
        self._strips: dict[int, tuple[object, Strip]] = {}

    # --- content -------------------------------------------------------------------------------------------

    @property
    def entries(self) -> list[Entry]:
        """The messages, oldest first."""
        return self.layout_rows.entries

    def show(self, entries: Iterable[Entry]) -> None:
        """Replaces everything."""
        self.layout_rows.entries = list(entries)
        self.cursor = None
        self.follow, self.unseen = True, False
        self.screen.clear_selection()
        self.update_rows()

    def add(self, entry: Entry) -> None:
        """Adds a message at the end. The user's own words bring the view back to the end."""
        self.entries.append(entry)
        if entry.kind is Kind.USER:
            self.cursor, self.follow = None, True
        self.update_rows(arrived=True)

    def drop_from(self, index: int) -> None:
        """Takes the messages from ``index`` on away."""
        del self.entries[index:]
        if self.cursor is not None and self.cursor >= index:
            self.cursor = None
        self.update_rows()

    def update_rows(self, *, arrived: bool = False) -> None:
        """Draws what changed in the entries. ``arrived``: there is new text at the end."""
        if arrived and not self.follow:
            self.unseen = True
        self.layout_rows.invalidate()
        self._place()

    def toggle_reasoning(self, index: int | None = None) -> bool:
        """Folds or unfolds the reasoning of a message, by default the latest that has any. False without one."""
        candidates = reversed(range(len(self.entries))) if index is None else [index]
        for position in candidates:
            entry = self.entries[position]
            if isinstance(entry, Answer) and entry.reasoning.strip():
                place = Place(position, -1, 0)
                entry.set_folded(not entry.folded)
                self.layout_rows.invalidate()
                at_end = self.follow
                self._place()
                if not at_end and self.layout_rows.row_of(place) < self.scroll_offset.y:
                    self._scroll_row(self.layout_rows.row_of(place))
                return True
        return False

    # --- geometry ------------------------------------------------------------------------------------------

    @property
    def text_width(self) -> int:
        """Cells of the text column."""
        return max(min(self.scrollable_content_region.width - MARGIN - 1, WIDEST), 10)

    @property
    def palette(self) -> Palette:
        """The styles of the current theme."""
        if self._palette is None or self._styles_stale:
            self._styles_stale = False
            palette = Palette.resolve(self.get_component_rich_style)
            if palette != self._palette:
                self._palette = palette
        return self._palette

    def _place(self) -> None:
        """Renders what is near the window, then sets the height and the position so that nothing jumps."""
        window = self.scrollable_content_region.height
        if not self.is_attached or window <= 0:
            return
        layout = self.layout_rows
        top = layout.locate(self.scroll_offset.y)
        if layout.width != self.text_width:
            layout.width = self.text_width
            layout.invalidate()
        if self.follow:
            layout.render_up(self._end(), window * (1 + BEYOND), self.palette)
            row = max(layout.height - window, 0)
        else:
            layout.render_down(top, window * (1 + BEYOND), self.palette)
            layout.render_up(top, window * BEYOND, self.palette)
            row = min(layout.row_of(top), max(layout.height - window, 0))
        layout.trim(top.entry, layout.locate(row + window).entry)
        self._moved(row)

    def _end(self) -> Place:
        last = len(self.entries) - 1
        return Place(last, len(self.layout_rows.pieces_of(last)) - 1, 0) if last >= 0 else Place(0, -1, 0)

    def _moved(self, row: int) -> None:
        self._placing = True
        try:
            height = max(self.layout_rows.height, 1)
            size = Size(self.scrollable_content_region.width, height)
            resize_content(self, size)
            if row != self.scroll_offset.y:
                self.set_reactive(ScrollView.scroll_target_y, row)
                self.scroll_y = row
                self.refresh()
            else:
                self._refresh_changed()
        finally:
            self._placing = False

    def _refresh_changed(self) -> None:
        """Repaints only the rows that differ: a stream touches one or two of them at a time."""
        rows = range(self.scroll_offset.y, self.scroll_offset.y + self.size.height)
        now = [self.layout_rows.line(row, self.palette) for row in rows]
        before, self._painted = self._painted, now
        if self.text_selection is not None or (dirty := changed_rows(before, now)) is None:
            self.refresh()
        elif dirty:
            self.refresh(Region(0, dirty.start, self.size.width, len(dirty)))

    def _scroll_row(self, row: int) -> None:
        self.scroll_to(y=max(row, 0), animate=False)

    def scroll_to(self, x: float | None = None, y: float | None = None, **options: Any) -> None:
        """As the base class, but never animated: rows above may still change their number."""
        super().scroll_to(x, y, **{**options, "animate": False})

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Follows or stops following, and renders what came into view."""
        super().watch_scroll_y(old_value, new_value)
        if self._placing or round(old_value) == round(new_value):
            return
        self.follow = new_value >= self.max_scroll_y
        self._place()

    def watch_follow(self, follow: bool) -> None:
        """Reaching the end means having seen it."""
        if follow:
            self.unseen = False
        self.post_message(self.FollowChanged())

    def watch_unseen(self) -> None:
        """Tells the screen to show its hint."""
        self.post_message(self.FollowChanged())

    def on_resize(self) -> None:
        """Wraps anew, keeping the first visible message (or the end) in place."""
        self._place()

    def on_mount(self) -> None:
        """Draws what was given before there was a size."""
        self.call_after_refresh(self._place)

    def notify_style_update(self) -> None:
        """Styles may have changed: rows are rendered again as they are looked at, if they really did."""
        super().notify_style_update()
        self._styles_stale = True
        self._painted = []

    # --- painting ------------------------------------------------------------------------------------------

    def render_line(self, y: int) -> Strip:
        """One row of the window."""
        row = self.scroll_offset.y + y
        width = self.size.width
        base = self.palette.text
        if row >= self.layout_rows.height:
            return Strip.blank(width, base)
        index, line, first = self.layout_rows.line(row, self.palette)
        # The blank row before a message belongs to none.
        barred = self.has_focus and index == self.cursor and self.layout_rows.starts[index] != row
        selection = self.text_selection
        span = selection.get_span(row) if selection is not None else None
        key = (line, index, first, barred, width, self._palette)
        if span is None and (kept := self._strips.get(row)) is not None and kept[0] == key:
            return kept[1]  # the same object, so that Textual's own caches hold as well
        margin = self._margin(index, first=first, barred=barred)
        strip = Strip.join([margin, line.strip]) if line else margin
        strip = strip.crop_extend(0, width, base).simplify()
        if span is not None:
            style = self.screen.get_component_rich_style("screen--selection")
            first_column = MARGIN + (line.text_start if line else 0)
            last_column = MARGIN + (line.text_end if line else 0)
            end = last_column if span[1] < 0 else min(span[1], last_column)
            return highlight(strip, (max(span[0], first_column), max(end, 0)), style).apply_offsets(0, row)
        strip = strip.apply_offsets(0, row)
        if len(self._strips) > 1_000:
            self._strips.clear()
        self._strips[row] = (key, strip)
        return strip

    def _margin(self, index: int, *, first: bool, barred: bool) -> Strip:
        palette = self.palette
        entry = self.entries[index]
        styles: dict[Kind, Style] = {
            Kind.USER: palette.user,
            Kind.ANSWER: palette.model,
            Kind.NOTE: palette.note,
            Kind.ERROR: palette.error,
        }
        bar = CURSOR if barred else " "
        if bar == " " and not first:
            return Strip([Segment(" " * MARGIN, palette.text)], MARGIN)
        label = f"{entry.label if first else '':<{MARGIN - 1}}"
        return Strip([Segment(bar, palette.cursor), Segment(label, styles[entry.kind])], MARGIN)

    # --- selection -----------------------------------------------------------------------------------------

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """The selected text, without wraps, margins and decoration."""
        first = selection.start.y if selection.start else 0
        last = selection.end.y if selection.end else self.layout_rows.height - 1
        lines = [(row, self.layout_rows.line(row, self.palette)[1]) for row in range(first, last + 1)]
        text = selected_text(lines, selection, MARGIN)
        return (text, "\n") if text else None

    def selection_updated(self, selection: Selection | None) -> None:  # noqa: ARG002 - Textual's signature
        """Repaints with or without the highlight."""
        self._painted = []
        self.refresh()

    # --- keys and mouse ------------------------------------------------------------------------------------

    def action_move(self, direction: int) -> None:
        """Moves the cursor to the message before or after; at the end it lets go."""
        if not self.entries:
            return
        if self.cursor is None:
            if direction > 0:
                self.action_edge(1)
                return
            self.cursor = len(self.entries) - 1
        elif not 0 <= self.cursor + direction < len(self.entries):
            self.action_edge(direction)
            return
        else:
            self.cursor += direction
        self._show_cursor(direction)

    def _show_cursor(self, direction: int) -> None:
        cursor = self.cursor or 0
        top, bottom = self.layout_rows.starts[cursor], self.layout_rows.starts[cursor + 1]
        view, window = self.scroll_offset.y, self.scrollable_content_region.height
        if not (view <= top and bottom <= view + window):
            self._scroll_row(top if direction < 0 or bottom - top > window else bottom - window)
        self._painted = []
        self.refresh()

    def action_page(self, direction: int) -> None:
        """Scrolls by a window less two rows."""
        self._scroll_row(self.scroll_offset.y + direction * max(self.scrollable_content_region.height - 2, 1))

    def action_edge(self, direction: int) -> None:
        """Goes to the first or the last row."""
        self.cursor = None if direction > 0 else 0
        if direction > 0:
            self.follow = True
            self._place()
        else:
            self._scroll_row(0)
        self.refresh()

    def action_fold(self) -> None:
        """Folds or unfolds the reasoning of the chosen message, or of the latest."""
        chosen = self.cursor
        if chosen is None or not self.toggle_reasoning(chosen):
            self.toggle_reasoning()

    def action_request(self, what: str) -> None:
        """Asks the screen to do it."""
        self.post_message(self.Requested(what))

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Three rows at once."""
        self._wheel(event, -3)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Three rows at once."""
        self._wheel(event, 3)

    def _wheel(self, event: events.MouseEvent, rows: int) -> None:
        event.stop()
        event.prevent_default()
        self._scroll_row(self.scroll_offset.y + rows)

    def on_click(self, event: events.Click) -> None:
        """A click on a reasoning handle folds it."""
        if self.text_selection is not None or not self.entries:
            return
        place = self.layout_rows.locate(self.scroll_offset.y + event.y)
        entry = self.entries[place.entry]
        if isinstance(entry, Answer) and entry.reasoning.strip() and place.piece == 0:
            self.toggle_reasoning(place.entry)

    def on_focus(self) -> None:
        """The cursor bar shows only with focus."""
        self.refresh()

    def on_blur(self) -> None:
        """The cursor bar shows only with focus."""
        self.refresh()
