"""The log as rows: follows the end, filters, searches, selects. Work a frame is bounded whatever the engine prints."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import replace
from itertools import accumulate
from typing import Any, ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.reactive import var
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip

from kt_tui.supervise.log import LogLine
from kt_tui.ui.logmodel import LEVEL_NAMES, Level, LogModel, Pattern, Row
from kt_tui.ui.widgets.scrolling import resize_content
from kt_tui.ui.widgets.transcript.cells import wrap
from kt_tui.ui.widgets.transcript.lines import Line
from kt_tui.ui.widgets.transcript.selecting import highlight, selected_text

FRAME_S = 0.05
"""Shortest time between two updates."""
TIME_CELLS = 10
"""Cells of the clock column."""
STYLES = ("time", "debug", "info", "warning", "error", "match", "current")


class LogView(ScrollView, can_focus=True):
    """A bounded log. Text is only ever text."""

    ALLOW_SELECT = True
    COMPONENT_CLASSES: ClassVar[set[str]] = {f"logview--{name}" for name in STYLES}
    HELP = """
# The engine's log

- **/** filters by a regular expression (or plain text), **f** shows the other lines too, **esc** ends it
- **l** chooses the level, **x** jumps to the first error, **n** and **N** to the next and previous match
- **g** and **G** go to the ends; at the end the view follows
- **w** wraps long lines, **left** and **right** move sideways
- drag to select, **ctrl+c** copies what is selected, **y** copies everything shown
"""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("x", "first_error", "First error", id="logs.error"),
        Binding("l", "level", "Level", id="logs.level"),
        Binding("n", "match(1)", "Next match", show=False),
        Binding("N,p", "match(-1)", "Previous match", show=False),
        Binding("f", "only_matches", "Only matches", show=False),
        Binding("w", "wrap", "Wrap", id="logs.wrap"),
        Binding("g,home", "edge(-1)", "Top", show=False),
        Binding("G,end", "edge(1)", "Follow", id="logs.follow"),
        Binding("up,k", "step(-1)", "Up", show=False),
        Binding("down,j", "step(1)", "Down", show=False),
        Binding("pageup", "page(-1)", "Page up", show=False),
        Binding("pagedown,space", "page(1)", "Page down", show=False),
        Binding("left,h", "sideways(-8)", "Left", show=False),
        Binding("right", "sideways(8)", "Right", show=False),
        Binding("y", "copy_shown", "Copy shown", id="logs.copy"),
    ]
    DEFAULT_CSS = """
    LogView {
        background: $background; color: $foreground; overflow-x: hidden; overflow-y: scroll;
        scrollbar-size-vertical: 1; scrollbar-background: $background; scrollbar-color: $panel;
        & > .logview--time { color: $foreground 35%; }
        & > .logview--debug { color: $foreground 50%; }
        & > .logview--info { color: $foreground; }
        & > .logview--warning { color: $text-warning; }
        & > .logview--error { color: $text-error; }
        & > .logview--match { background: $warning 35%; }
        & > .logview--current { background: $foreground 10%; }
    }
    """

    follow: var[bool] = var(True)
    """Whether the view stays at the newest line."""
    wrapped: var[bool] = var(False)
    """Whether long lines take several rows."""

    class Changed(Message):
        """Lines, filter or following changed."""

    class CopyRequested(Message):
        """The user wants ``text`` copied."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    def __init__(self, model: LogModel | None = None, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self.model = model or LogModel()
        self.current: Row | None = None
        self._waiting: list[LogLine] = []
        self._flush_due = False
        self._starts: list[int] | None = None
        self._side = 0
        self._placing = False

    # --- lines ---------------------------------------------------------------------------------------------

    def write(self, lines: Iterable[LogLine]) -> None:
        """Takes in lines; they are drawn together with all others of this frame."""
        self._waiting.extend(lines)
        if not self._flush_due and self.is_attached:
            self._flush_due = True
            self.set_timer(FRAME_S, self.flush)

    def show_ring(self, lines: Iterable[LogLine]) -> None:
        """Starts anew with what a ring holds: its lines stand as they are, whatever they once replaced."""
        self.clear()
        self.write(replace(line, replace=False) if line.replace else line for line in lines)

    def flush(self) -> None:
        """Draws what waits."""
        self._flush_due = False
        lines, self._waiting = self._waiting, []
        lines = lines[-self.model.capacity :]  # more would push each other out anyway
        before, width = self.model.removed, self._text_width
        gone = 0
        if self.wrapped and not self.follow:
            heights = [self._rows_of(row, width) for row in self.model.shown]
            self.model.extend(lines)
            gone = sum(heights[: self.model.removed - before])
        else:
            self.model.extend(lines)
            gone = self.model.removed - before
        self._changed(shift=gone)

    def clear(self) -> None:
        """Forgets everything, as for a new engine."""
        self._waiting.clear()
        self.model.clear()
        self.current, self.follow = None, True
        self._changed()

    def set_filter(
        self, *, pattern: Pattern | None, only_matches: bool | None = None, threshold: Level | None = None
    ) -> None:
        """Shows other lines, near the place looked at."""
        top = self._row_at(self.scroll_offset.y)
        model = self.model
        model.filter(
            pattern=pattern,
            only_matches=model.only_matches if only_matches is None else only_matches,
            threshold=model.threshold if threshold is None else threshold,
        )
        self._starts = None
        if not self.follow and top is not None:
            index = next((at for at, row in enumerate(model.shown) if row.line.seq >= top.line.seq), 0)
            self._move_to(self._start_of(index))
        self._changed()

    # --- geometry ------------------------------------------------------------------------------------------

    @property
    def _clock(self) -> int:
        return TIME_CELLS if self.size.width >= 60 else 0

    @property
    def _text_width(self) -> int:
        return max(self.scrollable_content_region.width - self._clock - 1, 10)

    def _rows_of(self, row: Row, width: int) -> int:
        text = row.line.text
        if not self.wrapped:
            return 1
        return max(1, -(-len(text) // width)) if text.isascii() else len(wrap(text, width, words=False))

    @property
    def _row_starts(self) -> list[int]:
        if self._starts is None:
            width = self._text_width
            self._starts = [0, *accumulate(self._rows_of(row, width) for row in self.model.shown)]
        return self._starts

    def _start_of(self, index: int) -> int:
        return self._row_starts[index] if self.wrapped else index

    def _total(self) -> int:
        return self._row_starts[-1] if self.wrapped else len(self.model.shown)

    def _locate(self, y: int) -> tuple[int, int]:
        """Index of the shown line at a row, and which of its rows that is."""
        if not self.wrapped:
            return y, 0
        index = bisect_right(self._row_starts, y) - 1
        return index, y - self._row_starts[index]

    def _row_at(self, y: int) -> Row | None:
        index, _part = self._locate(y)
        return self.model.shown[index] if 0 <= index < len(self.model.shown) else None

    def _changed(self, shift: int = 0) -> None:
        self._starts = None
        self._placing = True
        try:
            window = self.scrollable_content_region.height
            total = self._total()
            size = Size(self.scrollable_content_region.width, max(total, 1))
            resize_content(self, size)
            self._move_to(total - window if self.follow else self.scroll_offset.y - shift)
        finally:
            self._placing = False
        self.refresh()
        self.post_message(self.Changed())

    def _move_to(self, y: int) -> None:
        y = max(min(y, self._total() - self.scrollable_content_region.height), 0)
        if y != self.scroll_offset.y:
            self.set_reactive(ScrollView.scroll_target_y, y)
            self.scroll_y = y

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Follows at the end, stays put elsewhere."""
        super().watch_scroll_y(old_value, new_value)
        if not self._placing and round(old_value) != round(new_value):
            self.follow = new_value >= self.max_scroll_y
            self.post_message(self.Changed())

    def scroll_to(self, x: float | None = None, y: float | None = None, **options: Any) -> None:
        """As the base class, never animated."""
        super().scroll_to(x, y, **{**options, "animate": False})

    def on_resize(self) -> None:
        """Wraps anew."""
        self._changed()

    def on_mount(self) -> None:
        """Draws what was written before."""
        if self._waiting:
            self.call_after_refresh(self.flush)

    # --- painting ------------------------------------------------------------------------------------------

    def _style(self, name: str) -> Style:
        return self.get_component_rich_style(f"logview--{name}")

    def line_at(self, y: int) -> Line | None:
        """The text part of a row, its full width."""
        row = self._row_at(y)
        if row is None:
            return None
        text, part = row.line.text, self._locate(y)[1]
        joiner = "\n"
        if self.wrapped:
            rows = wrap(text, self._text_width, words=False)
            start, end = rows[part][:2] if part < len(rows) else (0, 0)
            text, joiner = text[start:end], "\n" if part >= len(rows) - 1 else ""
        style = self._style(row.level.name.lower())
        strip = Strip([Segment(text, style)])
        if self.model.pattern is not None:
            for span in self.model.pattern.spans(text)[:50]:
                strip = highlight(strip, span, Style(bgcolor=self._style("match").bgcolor))
        return Line(strip, 0, len(text), joiner)

    def render_line(self, y: int) -> Strip:
        """One row of the window."""
        width, base = self.size.width, self.rich_style
        position = self.scroll_offset.y + y
        line = self.line_at(position)
        row = self._row_at(position)
        if line is None or row is None:
            return Strip.blank(width, base)
        strip = line.strip
        selection = self.text_selection
        if selection is not None and (span := selection.get_span(position)) is not None:
            chosen = self.screen.get_component_rich_style("screen--selection")
            strip = highlight(strip, span, chosen)
        if self._side and not self.wrapped:
            strip = strip.crop(self._side, None)
        first = self._locate(position)[1] == 0
        # The clock column carries no offset, so that it can neither be selected nor copied.
        clock = time.strftime(" %H:%M:%S ", time.localtime(row.line.time)) if first else ""
        offset = len(line.strip.text) - len(strip.text) if self._side else 0
        body = strip.crop_extend(0, width - self._clock, base).apply_offsets(offset, position)
        if self.current is row:
            body = self._marked(body)
        if not self._clock:
            return body
        return Strip.join(
            [Strip([Segment(f"{clock:<{self._clock}}", self._style("time"))], self._clock), body]
        )

    def _marked(self, strip: Strip) -> Strip:
        """The row of the current match: its background differs, except where something is highlighted already."""
        mark, plain = Style(bgcolor=self._style("current").bgcolor), self.rich_style.bgcolor
        parts = [
            part._replace(style=part.style + mark) if part.style and part.style.bgcolor == plain else part
            for part in strip
        ]
        return Strip(parts, strip.cell_length)

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """The selected text, without the clock and without wraps."""
        first = selection.start.y if selection.start else 0
        last = selection.end.y if selection.end else self._total() - 1
        lines = ((y, self.line_at(y)) for y in range(first, last + 1))
        text = selected_text(lines, selection, 0)
        return (text, "\n") if text else None

    def selection_updated(self, selection: Selection | None) -> None:  # noqa: ARG002 - Textual's signature
        """Repaints with or without the highlight."""
        self.refresh()

    # --- keys ----------------------------------------------------------------------------------------------

    def action_edge(self, direction: int) -> None:
        """Goes to the first line, or to the newest and follows."""
        self.follow = direction > 0
        if direction > 0:
            self.current = None
            self._changed()
        else:
            self.scroll_to(y=0)

    def action_step(self, rows: int) -> None:
        """Scrolls by rows."""
        self.scroll_to(y=self.scroll_offset.y + rows)

    def action_page(self, direction: int) -> None:
        """Scrolls by a window less two rows."""
        self.action_step(direction * max(self.scrollable_content_region.height - 2, 1))

    def action_sideways(self, cells: int) -> None:
        """Moves long lines sideways."""
        self._side = max(self._side + cells, 0) if not self.wrapped else 0
        self.refresh()

    def action_wrap(self) -> None:
        """Wraps long lines, or not."""
        top = self._locate(self.scroll_offset.y)[0]
        self.wrapped, self._side, self._starts = not self.wrapped, 0, None
        self._changed()
        if not self.follow:
            self._move_to(self._start_of(min(top, max(len(self.model.shown) - 1, 0))))

    def action_level(self) -> None:
        """The next threshold."""
        levels = list(LEVEL_NAMES)
        following = levels[(levels.index(self.model.threshold) + 1) % len(levels)]
        self.set_filter(pattern=self.model.pattern, threshold=following)

    def action_only_matches(self) -> None:
        """Hides or shows the lines that do not match."""
        self.set_filter(pattern=self.model.pattern, only_matches=not self.model.only_matches)

    def action_match(self, step: int) -> None:
        """Jumps to the next match."""
        shown = self.model.shown
        here = next((at for at, row in enumerate(shown) if row is self.current), None)
        if here is None:
            top = self._locate(self.scroll_offset.y)[0]
            here = top - 1 if step > 0 else top + self.scrollable_content_region.height
        found = self.model.next_match(here, step)
        if found is not None:
            self.jump(found)

    def action_first_error(self) -> None:
        """Jumps to the earliest error."""
        found = self.model.first_error()
        if found is None:
            self.app.bell()
        else:
            self.jump(found)

    def jump(self, index: int) -> None:
        """Shows a line in the upper third and marks it."""
        self.current = self.model.shown[index]
        self.follow = False
        self._placing = True
        self._move_to(self._start_of(index) - self.scrollable_content_region.height // 3)
        self._placing = False
        self.refresh()
        self.post_message(self.Changed())

    def action_copy_shown(self) -> None:
        """Copies all lines that the filter shows."""
        self.post_message(self.CopyRequested("\n".join(row.line.text for row in self.model.shown)))

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Three rows at once."""
        event.stop()
        event.prevent_default()
        self.action_step(-3)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Three rows at once."""
        event.stop()
        event.prevent_default()
        self.action_step(3)
