"""A stylesheet that parses each source once."""

from __future__ import annotations

from collections.abc import Mapping

from textual.cache import LRUCache
from textual.css.stylesheet import Stylesheet

_SOURCES = 1024
"""More than the panel and Textual have; a full cache only parses again."""


class LastingStylesheet(Stylesheet):
    """Parses a source again only when a variable changed.

    Textual 8.2.8 parses every source anew, twice, whenever a screen is shown first, although only that screen's own
    CSS is new; and its cache is smaller than the number of sources once a few screens were shown.

    Args:
        variables: The colours of the theme.
    """

    def __init__(self, *, variables: Mapping[str, str]) -> None:
        super().__init__(variables=dict(variables))
        self._parse_cache = LRUCache(_SOURCES)

    def set_variables(self, variables: dict[str, str]) -> None:
        """Use these variables; what was parsed with others is forgotten."""
        if variables != self._variables:
            super().set_variables(variables)

    def reparse(self) -> None:
        """Parse what is not parsed yet. An error leaves the rules as they were.

        Raises:
            StylesheetError: The CSS could not be read.
            StylesheetParseError: The CSS is invalid.
        """
        self.parse()
