"""Kernel lists, numbers and the reading of single files."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kt_tui.hardware.files import SystemFiles, format_cpu_list, parse_cpu_list, whole_number


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("", ()),
        ("\n", ()),
        ("0", (0,)),
        ("0-3,8", (0, 1, 2, 3, 8)),
        (" 4 , 2-3 ", (2, 3, 4)),
        ("0-10:2/4", (0, 1, 4, 5, 8, 9)),
        ("0-6:3", (0, 3, 6)),
        ("3-1", None),
        ("0-", None),
        ("a", None),
        ("0-99999999999", None),
        ("-1", None),
        ("0-3:0", None),
        (None, None),
    ],
)
def test_a_cpu_list_is_read(text: str | None, ids: tuple[int, ...] | None) -> None:
    assert parse_cpu_list(text) == ids


@given(st.sets(st.integers(0, 600)))
def test_a_formatted_list_reads_back(ids: set[int]) -> None:
    ordered = tuple(sorted(ids))
    assert parse_cpu_list(format_cpu_list(ordered)) == ordered


@given(st.text(max_size=60))
def test_any_text_is_a_list_or_none(text: str) -> None:
    assert parse_cpu_list(text) is None or len(parse_cpu_list(text) or ()) <= 65_536
    assert whole_number(text) is None or isinstance(whole_number(text), int)


def test_formatting_is_short() -> None:
    assert format_cpu_list((0, 1, 2, 3, 8, 10, 11)) == "0-3,8,10-11"
    assert format_cpu_list(()) == ""


def test_what_cannot_be_read_is_none(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    files = SystemFiles(tmp_path)
    assert files.text("/proc/absent") is None
    assert files.text("/proc") is None
    assert files.text("/proc/../../etc/passwd") is None
    assert files.text("/proc/\0") is None
    assert files.names("/absent") == []
    assert files.number("/proc/absent") is None


def test_what_was_read_is_kept_for_a_capture(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "x").write_bytes(b"a\xff\0b")
    files = SystemFiles(tmp_path)
    files.text("/proc/x")
    files.text("/proc/absent")
    assert files.seen == {"/proc/x": "a\ufffd\ufffdb"}
