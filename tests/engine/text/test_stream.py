"""Text comes out whole, whatever the cuts: characters, and texts that stop the generation."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models

from engine.text.stream import ByteLevelDecoder, StopMatcher, WindowDecoder, new_decoder, token_bytes
from tests.engine.fakes import END, byte_tokenizer

BYTES = byte_tokenizer()


def sentencepiece_like() -> Tokenizer:
    """Metaspace words with byte fallback, as in Llama 2 and Mixtral."""
    words = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁Hello", "▁wor", "ld", "▁", "!"]
    tokenizer = Tokenizer(
        models.BPE(vocab={w: i for i, w in enumerate(words)}, merges=[], byte_fallback=True)
    )
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return tokenizer


def test_the_decoder_fits_the_tokenizer() -> None:
    assert isinstance(new_decoder(BYTES), ByteLevelDecoder)
    assert isinstance(new_decoder(sentencepiece_like()), WindowDecoder)


@pytest.mark.parametrize(
    ("ids", "pieces", "rest"),
    [
        ([0xF0, 0x9F, 0x98, 0x80], ["", "", "", "😀"], ""),
        ([0x61, 0xE4, 0xBD], ["a", "", ""], "\ufffd"),
        ([0xE4, 0xBD, 0x61], ["", "", "\ufffda"], ""),
        ([0xFF, 0x61], ["\ufffd", "a"], ""),
        ([0x61, END, 0x62], ["a", "", "b"], ""),
        ([0xEF, 0xBF, 0xBD, 0x61], ["", "", "\ufffd", "a"], ""),
        ([9999, 0x61], ["", "a"], ""),
    ],
)
def test_bytes_become_whole_characters(ids: list[int], pieces: list[str], rest: str) -> None:
    decoder = new_decoder(BYTES)
    assert [decoder.push(i) for i in ids] == pieces
    assert decoder.flush() == rest
    assert decoder.flush() == ""


@given(st.lists(st.integers(0, 255), max_size=60))
def test_the_pieces_together_are_what_decoding_at_once_gives(ids: list[int]) -> None:
    decoder = new_decoder(BYTES)
    text = "".join(decoder.push(i) for i in ids) + decoder.flush()
    assert text == bytes(ids).decode("utf-8", "replace") == BYTES.decode(ids)


@given(st.text(max_size=40))
def test_no_piece_of_a_valid_text_holds_a_replacement(text: str) -> None:
    text = text.replace("\ufffd", "")
    decoder = new_decoder(BYTES)
    pieces = [decoder.push(i) for i in text.encode("utf-8", "ignore")]
    assert "".join(pieces) == text.encode("utf-8", "ignore").decode()
    assert not any("\ufffd" in piece for piece in pieces)


def test_tokens_of_several_characters_and_added_tokens() -> None:
    assert token_bytes("Ġhello") == b" hello"
    assert token_bytes("Ċ") == b"\n"
    assert token_bytes("<a b>") == b"<a b>"
    assert token_bytes("你好") == "你好".encode()


def test_a_window_keeps_spaces_and_holds_bytes() -> None:
    tokenizer = sentencepiece_like()
    ids = {token: tokenizer.token_to_id(token) for token in ("▁Hello", "▁wor", "ld", "!")}
    emoji = [tokenizer.token_to_id(f"<0x{byte:02X}>") for byte in "😀".encode()]
    decoder = new_decoder(tokenizer)
    tokens = [ids["▁Hello"], ids["▁wor"], ids["ld"], *emoji, ids["!"]]
    assert [decoder.push(i) for i in tokens] == ["Hello", " wor", "ld", "", "", "", "😀", "!"]
    decoder = new_decoder(tokenizer)
    assert [decoder.push(i) for i in emoji[:2]] == ["", ""]
    assert set(decoder.flush()) == {"\ufffd"}


def test_a_window_does_not_hold_what_can_never_be_whole() -> None:
    tokenizer = sentencepiece_like()
    decoder = new_decoder(tokenizer)
    bad = tokenizer.token_to_id("<0xFF>")
    assert "".join(decoder.push(bad) for _ in range(20)).count("\ufffd") >= 16


def matched(stops: tuple[str, ...], pieces: list[str]) -> tuple[str, str | None]:
    matcher, out = StopMatcher(stops), ""
    for piece in pieces:
        safe, stop = matcher.push(piece)
        out += safe
        if stop is not None:
            return out, stop
    return out + matcher.flush(), None


@pytest.mark.parametrize(
    ("stops", "text", "out", "stop"),
    [
        (("END",), "the END of", "the ", "END"),
        (("END",), "the EN", "the EN", None),
        (("aab",), "aaaab", "aa", "aab"),
        (("abc", "b"), "abc", "a", "b"),
        (("bc", "abc"), "abc", "", "abc"),
        (("\n\n",), "a\nb\n\nc", "a\nb", "\n\n"),
        (("</s>", "<"), "x</s>", "x", "<"),
        (("😀",), "a😀b", "a", "😀"),
        ((), "anything", "anything", None),
    ],
)
def test_the_first_completed_stop_cuts(stops: tuple[str, ...], text: str, out: str, stop: str | None) -> None:
    assert matched(stops, [text]) == (out, stop)
    assert matched(stops, list(text)) == (out, stop)


@given(
    st.text("ab", max_size=30),
    st.lists(st.text("ab", min_size=1, max_size=5), min_size=1, max_size=3),
    st.integers(0, 2**32),
)
def test_cuts_do_not_matter(text: str, stops: list[str], seed: int) -> None:
    rng, pieces, rest = random.Random(seed), [], text
    while rest:
        count = rng.randint(1, len(rest))
        pieces.append(rest[:count])
        rest = rest[count:]
    once = matched(tuple(stops), [text])
    assert matched(tuple(stops), pieces) == once
    assert matched(tuple(stops), list(text)) == once
    if once[1] is None:
        assert once[0] == text


def test_only_what_may_become_a_stop_is_held_back() -> None:
    matcher = StopMatcher(("<stop>",))
    assert matcher.push("a<b") == ("a<b", None)
    assert matcher.push("c<st") == ("c", None)
    assert matcher.push("r") == ("<str", None)
    assert matcher.flush() == ""
