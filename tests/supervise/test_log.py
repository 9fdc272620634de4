from hypothesis import given
from hypothesis import strategies as st

from kt_tui.supervise.log import LINE_LIMIT, LogRing


def texts(ring):
    return [line.text for line in ring]


def test_lines_end_with_newlines_of_any_kind():
    ring = LogRing()
    ring.feed(b"one\ntwo\r\nthree\n")
    assert texts(ring) == ["one", "two", "three"]


def test_a_progress_bar_replaces_its_line():
    ring = LogRing()
    ring.feed(b"before\n")
    ring.feed(b" 10%\r")
    ring.feed(b" 50%\r")
    batch = ring.feed(b"100%\nafter\n")
    assert texts(ring) == ["before", "100%", "after"]
    assert [line.replace for line in batch] == [True, False]


def test_a_bar_that_returns_first_is_shown_live():
    ring = LogRing()
    ring.feed(b"\r 10%")
    assert texts(ring) == [" 10%"]
    ring.feed(b"\r 20%")
    assert texts(ring) == [" 20%"]
    ring.feed(b"\n")
    ring.feed(b"next\n")
    assert texts(ring) == [" 20%", "next"]


def test_a_line_without_its_end_is_shown_and_grows():
    ring = LogRing()
    ring.feed(b"pass")
    ring.feed(b"word: ")
    assert texts(ring) == ["password: "]
    ring.feed(b"x\n")
    assert texts(ring) == ["password: x"]


def test_characters_cut_in_two_are_joined_and_control_sequences_removed():
    ring = LogRing()
    data = "\x1b[31mгрüße\x1b[0m 你好\n".encode()
    for byte in data:
        ring.feed(bytes([byte]))
    assert texts(ring) == ["грüße 你好"]


def test_the_ring_is_bounded_and_counts_what_it_drops():
    ring = LogRing(capacity=10)
    ring.feed(b"".join(b"%d\n" % n for n in range(25)))
    assert texts(ring) == [str(n) for n in range(15, 25)]
    assert ring.dropped_lines == 15
    assert [line.seq for line in ring.since(ring.last_seq - 2)] == [24, 25]


def test_an_endless_line_is_cut_with_a_note_and_bounded():
    ring = LogRing()
    for _ in range(64):
        ring.feed(b"x" * 65_536)
    ring.feed(b"\nnext\n")
    assert len(ring) == 2
    first, second = texts(ring)
    assert len(first) < LINE_LIMIT + 100
    assert "more characters" in first
    assert second == "next"


def test_a_broken_subscriber_list_is_left_in_order():
    ring = LogRing()
    seen = []
    leave = ring.subscribe(lambda batch: (seen.append(batch), leave()))
    ring.feed(b"a\nb\n")
    ring.feed(b"c\n")
    assert [[line.text for line in batch] for batch in seen] == [["a", "b"]]


@given(
    st.lists(st.sampled_from(["a", "bb", "\n", "\r", "\r\n", "é", "", " "]), max_size=30),
    st.lists(st.integers(0, 60), max_size=8),
)
def test_any_cut_gives_the_same_lines(pieces, cuts):
    data = "".join(pieces).encode()
    whole = LogRing()
    whole.feed(data)
    whole.feed(b"", final=True)
    cut = LogRing()
    start = 0
    for end in sorted(min(c, len(data)) for c in cuts):
        cut.feed(data[start:end])
        start = end
    cut.feed(data[start:])
    cut.feed(b"", final=True)
    assert texts(cut) == texts(whole)
