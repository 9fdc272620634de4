"""The shell of the panel: what every mode shares and nothing of the engine. Themes, modes, dialogs, copying."""

from __future__ import annotations

import asyncio
import sys
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Literal

from textual import work
from textual.app import App
from textual.binding import Binding, BindingType
from textual.widget import Widget

from kt_tui.errors import KtError
from kt_tui.paths import shipped
from kt_tui.ui import clipboard, crash, theming
from kt_tui.ui.keymap import read_alt_digits_as_alt, user_keys
from kt_tui.ui.modes import Mode, available_modes
from kt_tui.ui.stylesheet import LastingStylesheet

if TYPE_CHECKING:
    from kt_tui.services import Services

Severity = Literal["information", "warning", "error"]


class Shell(App[int]):
    """Modes, themes, help, jump mode, copying and crash reports.

    Args:
        services: The domain.
        first_mode: The mode shown first.
    """

    TITLE = "kt-tui"
    CSS_PATH = "app.tcss"
    # Textual declares these as attributes of the instance.
    HORIZONTAL_BREAKPOINTS: list[tuple[int, str]] | None = [  # noqa: RUF012
        (0, "-tiny"),
        (60, "-narrow"),
        (80, "-normal"),
        (100, "-medium"),
        (120, "-wide"),
    ]
    VERTICAL_BREAKPOINTS: list[tuple[int, str]] | None = [(0, "-flat"), (16, "-short"), (30, "-tall")]  # noqa: RUF012
    BINDINGS: ClassVar[list[BindingType]] = [
        *(
            Binding(
                str(number), f"show_mode_number({number})", f"Mode {number}", show=False, id=f"mode.{number}"
            )
            for number in range(1, 8)
        ),
        *(
            Binding(
                f"alt+{number}",
                f"show_mode_number({number})",
                show=False,
                priority=True,
                id=f"mode.alt.{number}",
            )
            for number in range(1, 8)
        ),
        Binding("ctrl+o", "jump", "Jump", show=False, priority=True, id="app.jump"),
        Binding("f1", "help", "Help", show=False, priority=True, id="app.help"),
        Binding("f2", "choose_theme", "Theme", show=False, id="app.theme"),
        Binding("f8", "picture", "Picture of the screen", show=False, id="app.picture"),
        Binding("ctrl+q,f10", "quit", "Quit", show=False, priority=True, id="app.quit"),
    ]

    def __init__(self, services: Services, first_mode: str) -> None:
        super().__init__()
        self.services = services
        self.last_words: str | None = None  # to be said on the terminal once the screen is gone
        self.modes_shown: tuple[Mode, ...] = available_modes()
        for mode in self.modes_shown:
            self.add_mode(mode.name, mode.factory())
        # The first screen is a mode already, so that nothing blank is painted before it.
        self._current_mode = first_mode
        self._screen_stacks = {first_mode: []}
        self.own_themes: tuple[str, ...] = ()
        self.launch_notes: tuple[str, ...] = ()
        self.not_saved: str | None = None  # why the last change of a setting lives in memory only
        self._theme_problems = self._register_themes()
        self.stylesheet = LastingStylesheet(variables=self.get_css_variables())  # of the theme just chosen
        read_alt_digits_as_alt()
        if keys := user_keys(services.config):
            self.set_keymap(keys)

    def _fatal_error(self) -> None:
        """Textual 8.2.8 prints a traceback with local variables here; ours goes to a file, without them."""
        error = sys.exc_info()[1] or RuntimeError("unknown")
        report = crash.write_crash_report(error, self.services.paths.state)
        self.last_words = crash.crash_sentence(error, report)
        self._close_messages_no_wait()

    @property
    def size_classes(self) -> tuple[str, ...]:
        """The classes that Textual gives a screen of the terminal's size, for the first styles to be the last."""
        bounds = (
            (self.size.width, self.HORIZONTAL_BREAKPOINTS),
            (self.size.height, self.VERTICAL_BREAKPOINTS),
        )
        return tuple(
            max((least, name) for least, name in breakpoints if size >= least)[1]
            for size, breakpoints in bounds
            if breakpoints
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """What is wrong with the user's files, one sentence each."""
        unsaved = (f"not saved: {self.not_saved}",) if self.not_saved else ()
        return (*self.services.config.notes, *self.launch_notes, *self._theme_problems, *unsaved)

    def say(self, text: str, severity: Severity = "information") -> None:
        """Tell the user something in passing. ``text`` is never read as markup."""
        self.notify(text, severity=severity, markup=False, timeout=10 if severity == "error" else 5)

    @work(group="copy")
    async def copy(self, text: str) -> None:
        """Copy ``text`` to wherever this session can, and say where it went."""
        if len(text) <= clipboard.OSC52_LIMIT:
            self.copy_to_clipboard(text)
        tool = await asyncio.to_thread(clipboard.copy_with_tool, text, self.services.environ)
        what = f"Copied {len(text)} characters"
        if tool is not None:
            self.say(f"{what} with {tool}")
        elif len(text) <= clipboard.OSC52_LIMIT:
            self.say(f"{what} through the terminal (OSC 52)")
        else:
            try:
                path = clipboard.copy_to_file(text, self.services.paths.state / "copied")
            except OSError as error:
                self.say(
                    f"Too long for the terminal's clipboard, and no file could be written: {error}", "error"
                )
            else:
                self.say(f"Too long for the terminal's clipboard: written to {path}", "warning")

    # -- themes -----------------------------------------------------------------------------------------------

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """kt-tui's own colours for themes that do not set them."""
        return theming.variable_defaults(self.current_theme)

    @property
    def theme_names(self) -> tuple[str, ...]:
        """Our themes first, then those that come with Textual."""
        return (*self.own_themes, *sorted(set(self.available_themes) - set(self.own_themes)))

    def _register_themes(self) -> tuple[str, ...]:
        found = theming.load_themes([shipped("themes"), self.services.paths.config / "themes"])
        problems = list(found.problems)
        self.own_themes = tuple(theme.name for theme in found.themes)
        for theme in found.themes:
            self.register_theme(theme)
        wanted = str(self.services.config.get("ui.theme"))
        known = self.available_themes
        if wanted in known:
            self.set_reactive(Shell.theme, wanted)  # before the first paint: nothing to restyle yet
        else:
            names = ", ".join(self.own_themes)
            problems.append(f"there is no theme {wanted!r} (ui.theme); the themes are {names}")
            ours = (theming.DEFAULT_THEME, *self.own_themes)
            self.theme = next((name for name in ours if name in known), "textual-dark")
        return tuple(problems)

    @work(group="theme", exclusive=True)
    async def action_use_theme(self, name: str) -> None:
        """Show a theme now and from now on."""
        self.theme = name
        try:
            await asyncio.to_thread(self.services.set_config, "ui.theme", name)
        except KtError as error:
            self.not_saved = f"the theme {name}: {error}"
            self.say(f"The theme is used now, but not saved: {error}", "warning")
        else:
            self.not_saved = None

    def action_choose_theme(self) -> None:
        """List the themes in the palette."""
        commands = [(name, partial(self.action_use_theme, name)) for name in self.theme_names]
        self.search_commands(commands, placeholder="Theme")

    # -- modes and dialogs ------------------------------------------------------------------------------------

    def has_mode(self, name: str) -> bool:
        """Whether a mode is part of this installation."""
        return any(mode.name == name for mode in self.modes_shown)

    async def action_show_mode(self, name: str) -> None:
        """Show a mode, unless a dialog is open."""
        if len(self.screen_stack) == 1 and name != self.current_mode and self.has_mode(name):
            await self.switch_mode(name)

    async def action_show_mode_number(self, number: int) -> None:
        """Show a mode by its place in the tab bar."""
        if 0 < number <= len(self.modes_shown):
            await self.action_show_mode(self.modes_shown[number - 1].name)

    def action_help(self) -> None:
        """Help for what has the focus."""
        from kt_tui.ui.screens.help import HelpScreen, help_markdown, key_rows

        if not isinstance(self.screen, HelpScreen):
            self.push_screen(HelpScreen(help_markdown(self.screen), key_rows(self.screen)))

    def action_jump(self) -> None:
        """Put a letter on everything that can take the focus."""
        from kt_tui.ui.screens.jump import JumpScreen, targets

        if len(self.screen_stack) == 1:
            self.push_screen(JumpScreen(targets(self.screen)), self._jump_to)

    def _jump_to(self, widget: Widget | None) -> None:
        if widget is not None:
            widget.focus()

    def action_picture(self) -> None:
        """Save the screen as an SVG file."""
        folder = self.services.paths.state / "pictures"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self.say(f"Saved {self.save_screenshot(path=str(folder))}")
        except OSError as error:
            self.say(f"The picture could not be saved: {error}", "error")

    def get_key_display(self, binding: Binding) -> str:
        """Short names for keys: ``enter``, ``esc``, ``^o``."""
        names = {"escape": "esc", "space": "space", "enter": "enter", "slash": "/"}
        function_key = binding.key[0] == "f" and binding.key[1:].isdigit()
        return names.get(binding.key) or (
            binding.key.upper() if function_key else super().get_key_display(binding)
        )
