"""What the command palette offers: modes, themes, actions, profiles."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, cast

from textual.command import DiscoveryHit, Hit, Hits, Provider

from kt_tui.ui.modes import available_modes

if TYPE_CHECKING:
    from kt_tui.ui.app import KtApp

_ACTIONS = (
    ("Start or stop the engine", "app.toggle_engine", "F5"),
    ("Start again", "app.start_again", "the model that was started last"),
    ("Jump to a widget", "app.jump", "ctrl+o"),
    ("Help for what has the focus", "app.help", "F1"),
    ("Save a picture of the screen", "app.picture", "F8, an SVG file"),
    ("Quit", "app.quit", "ctrl+q"),
)


class KtCommands(Provider):
    """One provider for all of them: the list is short."""

    @property
    def _kt(self) -> KtApp:
        return cast("KtApp", self.app)

    def _all(self) -> Iterator[tuple[str, str, str]]:
        """Title, action, help."""
        for number, mode in enumerate(available_modes(), 1):
            yield f"Go to {mode.title}", f"app.show_mode({mode.name!r})", f"{mode.purpose} ({number})"
        yield from _ACTIONS
        for name in self._kt.theme_names:
            whose = "comes with kt-tui, or is yours" if name in self._kt.own_themes else "comes with Textual"
            about = "in use now" if name == self.app.theme else whose
            yield f"Theme: {name}", f"app.use_theme({name!r})", about
        for profile in self._kt.profile_names:
            yield f"Start profile: {profile}", f"app.start_profile({profile!r})", "a saved launch"

    async def discover(self) -> Hits:
        """Everything, before a letter is typed."""
        for title, action, about in self._all():
            yield DiscoveryHit(title, partial(self.app.run_action, action), help=about)

    async def search(self, query: str) -> Hits:
        """What matches."""
        matcher = self.matcher(query)
        for title, action, about in self._all():
            if (score := matcher.match(title)) > 0:
                yield Hit(score, matcher.highlight(title), partial(self.app.run_action, action), help=about)
