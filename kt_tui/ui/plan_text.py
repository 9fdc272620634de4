"""A launch plan in bars and words."""

from __future__ import annotations

import shlex
from collections.abc import Collection
from typing import TYPE_CHECKING

from textual.content import Content

from kt_tui.ui.figures import size, stopped
from kt_tui.ui.widgets.bars import Part

if TYPE_CHECKING:
    from kt_tui.launch import DeviceMemory, LaunchPlan
    from kt_tui.ui.widgets.facts import Row

_LOOKS = (("█", "$cpu"), ("▓", "$numa"), ("█", "$gpu"), ("▓", "$accent"), ("█", "$secondary"))

_NAMES = {"kv_cache": "KV cache", "weights_experts": "expert weights", "weights_other": "other weights"}


def part_name(name: str) -> str:
    """``kv_cache`` as words."""
    return _NAMES.get(name, name.replace("_", " "))


def command_content(plan: LaunchPlan, changed: Collection[str], *, lines: bool) -> Content:
    """The command as typed into a shell; the options named in ``changed`` stand out.

    Args:
        plan: What would be run.
        changed: Parameters that the user set.
        lines: One option a line, joined by backslashes, in place of one long line.
    """
    if not plan.argv:
        return Content.styled(f"The command is known once {plan.model} is on this machine.", "$muted")
    pieces: list[tuple[str, str]] = []
    marked = False
    for word in shlex.split(plan.preview):
        option = word.startswith("--")
        if option:
            marked = word[2:].partition("=")[0] in changed
            if lines:
                pieces += [("\\\n  ", "$line")]
        pieces += [(shlex.quote(word), "$accent" if marked else "$muted" if option else ""), (" ", "")]
        marked = marked and option and "=" not in word
    return Content.assemble(*pieces[:-1])


def plan_parts(plan: LaunchPlan) -> tuple[list[Part], float]:
    """The bar of main memory: what is used already, then the parts of this launch, largest first."""
    host = plan.memory.host
    total = float(host.total or 0)
    taken = max(total - (host.available or 0), 0) if host.available is not None else 0
    parts = [Part("in use now", taken, "▒", "$line")]
    for index, (name, count) in enumerate(sorted(host.parts.items(), key=lambda item: -item[1])):
        glyph, colour = _LOOKS[index % len(_LOOKS)]
        parts.append(Part(part_name(name), count, glyph, colour))
    needed = sum(part.value for part in parts)
    return parts, max(total, needed)


def fit_words(plan: LaunchPlan) -> str:
    """The verdict as a title."""
    return {True: "Memory: fits", False: "Memory: does not fit", None: "Memory: not known"}[plan.fits]


def memory_rows(plan: LaunchPlan) -> list[Row]:
    """What the bar shows, in numbers, each with its glyph."""
    parts, _ = plan_parts(plan)
    rows: list[Row] = [
        (part.name, Content.assemble((f"{part.glyph} ", part.colour), f"{size(part.value):>9}"))
        for part in parts
        if part.value > 0
    ]
    host = plan.memory.host
    if host.free_after is not None and host.parts:
        colour = "$ok" if host.free_after >= 0 else "$bad"
        word = "left" if host.free_after >= 0 else "missing"
        rows.append((word, Content.assemble("  ", (f"{size(abs(host.free_after)):>9}", colour))))
    rows.extend(_gpu_rows(plan.memory.gpus))
    return rows


def _gpu_rows(gpus: tuple[DeviceMemory, ...]) -> list[Row]:
    return [(f"GPU {gpu.index}", f"{size(gpu.needed)} of {size(gpu.total)}") for gpu in gpus if gpu.parts]


def messages(plan: LaunchPlan) -> Content:
    """Errors, then warnings, each with a mark; one quiet line if there are none."""
    lines = [Content.assemble(("✗ ", "$bad"), stopped(str(error))) for error in plan.errors]
    lines += [Content.assemble(("! ", "$warn"), stopped(warning)) for warning in plan.warnings]
    if not lines:
        return Content.assemble(("✓ ", "$ok"), "Nothing speaks against this launch.")
    return Content("\n").join(lines)
