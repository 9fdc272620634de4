from __future__ import annotations

import pytest

from kt_tui.errors import KtError
from kt_tui.launch.conditions import condition_warnings, measured_text
from kt_tui.launch.saving import compose_profile, measured_from_json
from kt_tui.profiles import Conditions, Profile

THERE = Conditions("aa", {"cpu": "EPYC", "cores": 64}, "m1")


def profile(conditions: Conditions = THERE, **measured: object) -> Profile:
    return Profile("fast", "m2.1", measured=measured, conditions=conditions)


@pytest.mark.parametrize(
    "here",
    [THERE, Conditions(), Conditions("aa"), Conditions(model="m1"), Conditions("aa", {"cpu": "x"}, "m1")],
)
def test_where_all_is_the_same_or_unknown_nothing_is_said(here: Conditions) -> None:
    assert condition_warnings(profile(tokens_per_s=1.0), here) == ()
    assert condition_warnings(profile(Conditions()), here) == ()


def test_other_hardware_is_told_with_what_differs() -> None:
    here = Conditions("bb", {"cpu": "EPYC", "cores": 16}, "m1")
    assert condition_warnings(profile(tokens_per_s=41.5), here) == (
        "profile fast was measured on other hardware (64 usable cores, now 16): its speed and memory may differ here",
    )
    assert condition_warnings(profile(), here) == (
        "profile fast was saved on other hardware (64 usable cores, now 16): its values may not suit this machine",
    )
    assert "its fingerprint is another one" in condition_warnings(profile(Conditions("cc")), here)[0]
    assert (
        "its fingerprint is another one"
        in condition_warnings(profile(Conditions("cc", here.machine)), here)[0]
    )


def test_other_files_are_told() -> None:
    here = Conditions("aa", THERE.machine, "m2")
    assert condition_warnings(profile(tokens_per_s=1.0), here) == (
        "profile fast was measured with another version of m2.1: the files have changed since",
    )
    assert len(condition_warnings(profile(), Conditions("bb", {}, "m2"))) == 2


def test_figures_hold_only_for_the_launch_that_was_measured() -> None:
    base = Profile(
        "b", "demo", "embedded", {"cpu-threads": 4}, measured={"tokens_per_s": 9.0}, conditions=THERE
    )
    here = Conditions("bb")

    def more(**options: object) -> Profile:
        return compose_profile(
            "n", "demo", engine=None, options=options, extra=(), base=base, conditions=here
        )

    assert (more().measured, more().conditions) == (base.measured, THERE)
    changed = compose_profile(
        "n", "demo", engine=None, options={"cpu-threads": 8}, extra=(), base=base, conditions=here
    )
    assert (changed.measured, changed.conditions, changed.engine) == ({}, here, "embedded")
    again = compose_profile(
        "n", "demo", engine=None, options={}, extra=(), base=base, conditions=here, measured={"ttft_s": 1.0}
    )
    assert (again.measured, again.conditions) == ({"ttft_s": 1.0}, here)


def test_figures_in_words() -> None:
    figures = {
        "tokens_per_s": 41.53,
        "ttft_s": 0.25,
        "peak_memory_bytes": 3 << 29,
        "at": "2026-01-02",
        "own": "x",
    }
    assert measured_text(figures) == {
        "decode": "41.5 tokens/s",
        "first token after": "0.25 s",
        "peak memory": "1.50 GiB",
        "measured": "2026-01-02",
        "own": "x",
    }


def test_a_measurement_is_read_from_what_a_chat_prints() -> None:
    found = measured_from_json(
        '{"content": "hi", "metrics": {"ttft_s": 0.5, "tpot_s": 0.1, "tokens_per_s": 10, "total_s": null}}'
    )
    assert {key: found[key] for key in ("ttft_s", "tokens_per_s")} == {"ttft_s": 0.5, "tokens_per_s": 10}
    assert set(found) == {"ttft_s", "tokens_per_s", "at"}


@pytest.mark.parametrize(
    "text",
    ["", "[", "[1]", "{}", '{"metrics": {"ttft_s": null}}', '{"ttft_s": true, "tokens_per_s": -1}', '{"ttft_s": NaN}',
     '{"ttft_s": 1e999}', '{"metrics": 5}', '"ttft_s"', "[" * 100_000],
)  # fmt: skip
def test_what_is_no_measurement_is_a_sentence(text: str) -> None:
    with pytest.raises(KtError, match=r"^the measurement (is no valid JSON|holds none of)"):
        measured_from_json(text)
