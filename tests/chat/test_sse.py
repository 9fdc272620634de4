import pytest
from hypothesis import given
from hypothesis import strategies as st

from kt_tui.chat.sse import SseDecoder, SseError


def decode(data, cuts=()):
    decoder = SseDecoder()
    events = []
    start = 0
    for cut in (*sorted(cuts), len(data)):
        events += decoder.feed(data[start:cut])
        start = cut
    return [(event.name, event.data) for event in events + decoder.finish()]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"data: a\n\n", [("message", "a")]),
        (b"data:a\r\n\r\n", [("message", "a")]),
        (b"data: a\r\rdata: b\r\r", [("message", "a"), ("message", "b")]),
        (b"data: a\r\ndata: b\n\r\n", [("message", "a\nb")]),
        (b"\xef\xbb\xbfdata: a\n\n", [("message", "a")]),
        (b": ping\n\n: ping\n\ndata: a\n\n", [("message", "a")]),
        (b"id: 1\ndata: a\n\n\n\n: ping\n\ndata: b\n\n", [("message", "a"), ("message", "b")]),
        (b"event: error\ndata: x\n\n", [("error", "x")]),
        (b"event: ping\n\ndata: x\n\n", [("message", "x")]),
        (b"data\n\ndata:\n\ndata: a\n\n", [("message", "a")]),
        (b"data: last, without its blank line\n", [("message", "last, without its blank line")]),
        (b"data: last, without its line end", [("message", "last, without its line end")]),
        (b"data:  two spaces\n\n", [("message", " two spaces")]),
        (b"nonsense: 1\nretry: 5\ndata: a\n\n", [("message", "a")]),
        (b"data: \xff\n\n", [("message", "\ufffd")]),
        ("data: 你好 😀\n\n".encode(), [("message", "你好 😀")]),
        (b"", []),
    ],
)
def test_streams_as_servers_send_them_cut_at_every_position(data, expected):
    assert decode(data) == expected
    for cut in range(len(data) + 1):
        assert decode(data, [cut]) == expected
    assert decode(data, range(len(data))) == expected


@given(
    st.lists(
        st.sampled_from(
            [
                b"data: ",
                b"data",
                b":",
                b" ",
                b"x",
                b"\n",
                b"\r",
                b"\r\n",
                b"event: e",
                "é😀".encode(),
                b"\xff",
            ]
        ),
        max_size=30,
    ),
    st.lists(st.integers(0, 200), max_size=10),
)
def test_any_cut_gives_the_same_events(pieces, cuts):
    data = b"".join(pieces)
    assert decode(data, [min(cut, len(data)) for cut in cuts]) == decode(data)


def test_a_megabyte_in_one_line_is_decoded():
    data = b"data: " + b"a" * 1_000_000 + b"\n\n"
    ((_, text),) = decode(data, range(0, len(data), 4096))
    assert len(text) == 1_000_000


def test_an_endless_event_is_refused():
    decoder = SseDecoder(limit=1000)
    decoder.feed(b"data: " + b"x" * 900 + b"\n")
    with pytest.raises(SseError):
        decoder.feed(b"data: " + b"x" * 100)
    decoder = SseDecoder(limit=1000)
    for _ in range(100):
        decoder.feed(b"data: " + b"x" * 50 + b"\n\n")
