"""On what a saved launch was made, and whether here is like there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from kt_tui.catalog.model_hash import model_hash
from kt_tui.hardware.fingerprint import differences, fingerprint_of_facts, machine_facts
from kt_tui.hardware.machine import Machine
from kt_tui.profiles import Conditions, Profile

if TYPE_CHECKING:
    from kt_tui.launch.plan import LaunchPlan


def conditions_of(machine: Machine, checkpoint: Path | None) -> Conditions:
    """This machine and this checkpoint, as a profile keeps them. Reads headers (`model_hash`)."""
    facts = machine_facts(machine)
    return Conditions(
        fingerprint_of_facts(facts), facts, (model_hash(checkpoint) or "") if checkpoint is not None else ""
    )


def condition_warnings(profile: Profile, here: Conditions) -> tuple[str, ...]:
    """What of a profile's conditions does not hold here, one sentence each; nothing where one side is not known."""
    there = profile.conditions
    measured = bool(profile.measured)
    warnings = []
    if there.hardware and here.hardware and there.hardware != here.hardware:
        what = differences(there.machine, here.machine)
        told = "; ".join(what) if what else "its fingerprint is another one"
        kept = "was measured" if measured else "was saved"
        warnings.append(
            f"profile {profile.name} {kept} on other hardware ({told}): "
            + ("its speed and memory may differ here" if measured else "its values may not suit this machine")
        )
    if there.model and here.model and there.model != here.model:
        warnings.append(
            f"profile {profile.name} was {'measured' if measured else 'saved'} with another version of "
            f"{profile.model}: the files have changed since"
        )
    return tuple(warnings)


def with_condition_warnings(plan: LaunchPlan, profile: Profile, here: Conditions) -> LaunchPlan:
    """The plan of a profile with a warning for each of its conditions that does not hold here."""
    return replace(plan, warnings=(*condition_warnings(profile, here), *plan.warnings))


def checkpoint_of(plan: LaunchPlan) -> Path | None:
    """The checkpoint that a plan would load; None when it names none."""
    resolved = plan.parameters.get("model-path")
    return Path(str(resolved.value)) if resolved is not None and resolved.value else None


def measured_text(measured: Mapping[str, object]) -> dict[str, str]:
    """Measured figures in words, by a short label: ``decode`` -> ``41.5 tokens/s``."""
    labels = {
        "tokens_per_s": ("decode", "{:.1f} tokens/s"),
        "prompt_tokens_per_s": ("prefill", "{:.0f} tokens/s"),
        "ttft_s": ("first token after", "{:.2f} s"),
    }
    rows: dict[str, str] = {}
    for name, value in measured.items():
        if name in labels and isinstance(value, (int, float)):
            label, pattern = labels[name]
            rows[label] = pattern.format(value)
        elif name.endswith("_bytes") and isinstance(value, int):
            rows[name.removesuffix("_bytes").replace("_", " ")] = f"{value / (1 << 30):.2f} GiB"
        else:
            rows[{"at": "measured"}.get(name, name.replace("_", " "))] = str(value)
    return rows
