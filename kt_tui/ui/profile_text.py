"""A saved launch in words, for the question under which name to save it."""

from __future__ import annotations

from collections.abc import Sequence

from kt_tui.launch.conditions import measured_text
from kt_tui.profiles import Profile
from kt_tui.secret import MASK, is_secret, masked_arguments
from kt_tui.text import one_line

MOST_LINES = 10
WIDTH = 47


def stored_text(profile: Profile, left_out: Sequence[str] = ()) -> str:
    """What a profile stores, one line each; ``left_out`` are options that it does not."""
    lines = [
        *_column("model", [profile.model]),
        *_column("engine", [profile.engine or "chosen at each start"]),
    ]
    options = [f"--{name} {MASK if is_secret(name) else value}" for name, value in profile.options.items()]
    shown = (
        options
        if len(options) <= MOST_LINES
        else [*options[: MOST_LINES - 1], f"and {len(options) - MOST_LINES + 1} more"]
    )
    lines += _column("options", shown or ["none: all by configuration and hardware"])
    if profile.extra:
        lines += _column("engine's", [" ".join(masked_arguments(profile.extra))])
    figures = [
        f"{label} {value}" for label, value in measured_text(profile.measured).items() if label != "measured"
    ]
    lines += _column("measured", figures or ["nothing yet; after an answer in the chat there is"])
    lines += _column("made on", ["this machine and these model files"])
    lines += _column("left out", [f"--{name}, a secret" for name in left_out])
    return "\n".join(lines)


def _column(label: str, values: Sequence[str]) -> list[str]:
    return [
        f"{label if number == 0 else '':<9}{one_line(value, WIDTH)}" for number, value in enumerate(values)
    ]
