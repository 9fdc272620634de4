"""The key footer: at most six keys of what has the focus, and F1."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.binding import Binding
from textual.events import Resize
from textual.widgets import Footer
from textual.widgets._footer import FooterKey

MOST_KEYS = 6


def pick(bindings: list[tuple[Binding, str]], width: int) -> list[tuple[Binding, str]]:
    """The first bindings, one per action, that fit in ``width`` cells; each with the key as shown."""
    chosen: list[tuple[Binding, str]] = []
    seen: set[str] = set()
    used = 0
    for binding, key in bindings:
        cells = len(key) + len(binding.description) + 3
        if binding.action in seen or used + cells > width:
            continue
        seen.add(binding.action)
        used += cells
        chosen.append((binding, key))
        if len(chosen) == MOST_KEYS:
            break
    return chosen


class KeyFooter(Footer):
    """Textual's footer, kept short: keys of the focused widget first, then of the mode; F1 always at the right."""

    DEFAULT_CSS = """
    KeyFooter {
        dock: none; padding: 0 1;
        FooterKey { margin-right: 2; .footer-key--key { padding: 0 1 0 0; } .footer-key--description { padding: 0; } }
        FooterKey.help-key { dock: right; margin-right: 0; }
    }
    """

    def __init__(self) -> None:
        super().__init__(show_command_palette=False)

    def on_resize(self, _: Resize) -> None:
        """Another width holds more or fewer keys."""
        self.call_after_refresh(self.recompose)

    def compose(self) -> ComposeResult:
        """The keys."""
        if not self._bindings_ready:
            return
        active = list(self.screen.active_bindings.values())
        shown = [
            (binding, self.app.get_key_display(binding))
            for (_, binding, enabled, _) in active
            if binding.show and enabled and binding.action != "app.help"
        ]
        for binding, key in pick(shown, self.app.size.width - 12):
            yield FooterKey(binding.key, key, binding.description, binding.action)
        yield FooterKey("f1", "F1", "help", "app.help", classes="help-key")
