"""The keys of ``config.toml``: type, range, default, meaning. One table drives reading, ``config set`` and help."""

from __future__ import annotations

import difflib
import math
import tomllib
from dataclasses import dataclass
from enum import StrEnum

from kt_tui.errors import UsageError

LAUNCH = "launch."
"""Keys that begin so set a launch option for every launch; `kt_tui.launch` knows which there are."""

MAX_TEXT = 100_000


class Kind(StrEnum):
    """The type of a value, in a user's words."""

    TEXT = "text"
    WORD = "word"
    WHOLE = "whole number"
    NUMBER = "number"
    FOLDERS = "list of folders"
    OPTION = "text, number, true or false"


@dataclass(frozen=True)
class Key:
    """One setting.

    Attributes:
        name: Dotted (``server.port``).
        kind: Its type.
        default: Its value when nothing sets it.
        help: What it does; one sentence, with the unit.
        minimum: Smallest number allowed.
        maximum: Largest number allowed.
        environ: Variable that overrides it for one process.
    """

    name: str
    kind: Kind
    default: object
    help: str
    minimum: float | None = None
    maximum: float | None = None
    environ: str | None = None

    @property
    def expected(self) -> str:
        """What a right value looks like: ``a whole number from 1 to 65535``."""
        article = "" if self.kind is Kind.TEXT or self.kind is Kind.OPTION else "a "
        return article + str(self.kind) + self._range()

    def _range(self) -> str:
        if self.minimum is not None and self.maximum is not None:
            return f" from {self.minimum:g} to {self.maximum:g}"
        return f" of at least {self.minimum:g}" if self.minimum is not None else ""


KEYS: tuple[Key, ...] = (
    Key("server.host", Kind.WORD, "127.0.0.1", "Address the engine listens on.", environ="KT_TUI_HOST"),
    Key("server.port", Kind.WHOLE, 30000, "Port the engine listens on.", 1, 65535, environ="KT_TUI_PORT"),
    Key("paths.models", Kind.FOLDERS, (), "Folders whose checkpoints are listed beside the known models."),
    Key(
        "chat.temperature",
        Kind.NUMBER,
        None,
        "Randomness of answers; 0 always takes the likeliest token; unset: what the model's makers recommend.",
        0,
        2,
    ),
    Key("chat.max_tokens", Kind.WHOLE, 2048, "Longest answer, in tokens.", 1, 1_000_000),
    Key("chat.system", Kind.TEXT, "", "System prompt of a new conversation; empty: the model's own."),
    Key("ui.theme", Kind.WORD, "kt-dark", "Colour theme, by its name in themes/.", environ="KT_TUI_THEME"),
    Key("ui.refresh_seconds", Kind.NUMBER, 1.0, "Seconds between two readings of the monitor.", 0.2, 60),
)

BY_NAME = {key.name: key for key in KEYS}


def known_key(name: str) -> Key:
    """The key of that name; any ``launch.OPTION`` has one.

    Raises:
        UsageError: There is none; names near misses.
    """
    if name in BY_NAME:
        return BY_NAME[name]
    option = name.removeprefix(LAUNCH)
    if name.startswith(LAUNCH) and option and "." not in option:
        return Key(name, Kind.OPTION, None, f"Launch option --{option}.")
    raise UsageError(f"no setting is called {name!r}{suggestion(name)}; kt-tui config show lists them all")


def suggestion(name: str) -> str:
    """``; did you mean ...?`` when a known key is near, else nothing."""
    near = difflib.get_close_matches(name, BY_NAME, n=1, cutoff=0.6)
    return f"; did you mean {near[0]}?" if near else ""


def problem_of(key: Key, value: object) -> str | None:
    """What is wrong with a value for a key; None when nothing is."""
    good = {
        Kind.TEXT: isinstance(value, str) and len(value) <= MAX_TEXT,
        Kind.WORD: isinstance(value, str)
        and value.isprintable()
        and bool(value)
        and not set(value) & set(" \t/\\"),
        Kind.WHOLE: type(value) is int,
        Kind.NUMBER: type(value) in (int, float) and math.isfinite(value),  # type: ignore[arg-type]
        Kind.FOLDERS: isinstance(value, (list, tuple)) and all(isinstance(x, str) and x for x in value),
        Kind.OPTION: type(value) in (str, int, float, bool),
    }[key.kind]
    if good and isinstance(value, (int, float)):
        too_low = key.minimum is not None and value < key.minimum
        too_high = key.maximum is not None and value > key.maximum
        good = not too_low and not too_high
    return None if good else f"{key.name} must be {key.expected}, not {_shown(value)}"


def normal(key: Key, value: object) -> object:
    """A right value in the type that readers of the setting get (float for a number, tuple for folders)."""
    if key.kind is Kind.NUMBER and isinstance(value, int):
        return float(value)
    return tuple(value) if isinstance(value, list) else value


def parse_text(key: Key, text: str) -> object:
    """The value that a user typed for a key.

    Raises:
        UsageError: The text is no value for it.
    """
    value: object = text
    if key.kind is Kind.FOLDERS:
        literal = _literal(text)
        value = (
            literal
            if isinstance(literal, list)
            else [part.strip() for part in text.split(",") if part.strip()]
        )
    elif key.kind in (Kind.WHOLE, Kind.NUMBER, Kind.OPTION):
        literal = _literal(text)
        value = text if literal is None else literal
    if problem := problem_of(key, value):
        raise UsageError(problem)
    return value


def _literal(text: str) -> object | None:
    """The text as a TOML value on one line; None when it is none."""
    try:
        return tomllib.loads(f"value = {text.strip()}")["value"] if "\n" not in text else None
    except (tomllib.TOMLDecodeError, RecursionError):
        return None


def _shown(value: object) -> str:
    text = f'"{value}"' if isinstance(value, str) else str(value)
    text = "".join(letter if letter.isprintable() else "?" for letter in text)
    return text if len(text) <= 60 else text[:57] + "..."
