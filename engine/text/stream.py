"""Token ids to text as they come: whole characters only, and never a part of a stop string.

Both halves give the same text however it is cut into pieces.
"""

from __future__ import annotations

import codecs
from typing import Protocol

from tokenizers import Tokenizer, decoders

# Four bytes are the longest UTF-8 sequence, so an incomplete one spans at most three tokens.
_LONGEST_TAIL = 3


class TokenDecoder(Protocol):
    """Turns the tokens of one generation into text."""

    def push(self, token_id: int) -> str:
        """The text that this token completes; empty while a character is incomplete."""

    def flush(self) -> str:
        """What is left at the end: U+FFFD for a character that was never completed."""


def new_decoder(tokenizer: Tokenizer) -> TokenDecoder:
    """A decoder for one generation. Special tokens (control tokens) give no text."""
    if isinstance(tokenizer.decoder, decoders.ByteLevel):
        return ByteLevelDecoder(tokenizer)
    return WindowDecoder(tokenizer)


class ByteLevelDecoder:
    """For byte-level BPE (GPT-2 and most since): every token is known as bytes, so UTF-8 is decoded directly."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._special = special_ids(tokenizer)
        self._utf8 = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token_id: int) -> str:
        """See :class:`TokenDecoder`."""
        if token_id in self._special:
            return ""
        token = self._tokenizer.id_to_token(token_id)
        return "" if token is None else self._utf8.decode(token_bytes(token))

    def flush(self) -> str:
        """See :class:`TokenDecoder`."""
        text = self._utf8.decode(b"", final=True)
        self._utf8.reset()
        return text


class WindowDecoder:
    """For any other decoder: decode the last few tokens with and without the new one, and emit the difference.

    The tokens before the new one are kept as context because decoders such as SentencePiece's drop the space in
    front of the first token.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._special = special_ids(tokenizer)
        self._context: list[int] = []
        self._pending: list[int] = []

    def push(self, token_id: int) -> str:
        """See :class:`TokenDecoder`."""
        if token_id in self._special:
            return ""
        self._pending.append(token_id)
        text = self._difference()
        if text.endswith("\ufffd") and len(self._pending) <= _LONGEST_TAIL:
            return ""
        self._context, self._pending = self._pending, []
        return text

    def flush(self) -> str:
        """See :class:`TokenDecoder`."""
        text = self._difference() if self._pending else ""
        self._context, self._pending = self._pending, []
        return text

    def _difference(self) -> str:
        before: str = self._tokenizer.decode(self._context, skip_special_tokens=False)
        after: str = self._tokenizer.decode(self._context + self._pending, skip_special_tokens=False)
        return after[len(before) :]


def special_ids(tokenizer: Tokenizer) -> frozenset[int]:
    """The ids of control tokens, which are no part of the text."""
    return frozenset(i for i, token in tokenizer.get_added_tokens_decoder().items() if token.special)


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's spelling of bytes as printable characters (``bytes_to_unicode`` in its encoder.py)."""
    plain = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in set(plain)]
    return {chr(byte): byte for byte in plain} | {chr(256 + i): byte for i, byte in enumerate(others)}


_ALPHABET = _byte_alphabet()


def token_bytes(token: str) -> bytes:
    """The bytes of a byte-level token; an added token outside the alphabet stands for its own UTF-8."""
    try:
        return bytes(_ALPHABET[character] for character in token)
    except KeyError:
        return token.encode("utf-8", "replace")


class StopMatcher:
    """Cuts a text at the first stop string that is completed, and holds back what may become one.

    "First" is by the character that completes a match (of two that end together, the longer), because that does
    not depend on how the text arrives.
    """

    def __init__(self, stops: tuple[str, ...]) -> None:
        self._stops = stops
        self._held = ""

    def push(self, text: str) -> tuple[str, str | None]:
        """Take more text.

        Returns:
            The text that is safe to emit, and the stop string that was met, or None.
        """
        if not self._stops:
            return text, None
        buffer = self._held + text
        found = [(at + len(stop), at, stop) for stop in self._stops if (at := buffer.find(stop)) >= 0]
        if found:
            _, start, stop = min(found)
            self._held = ""
            return buffer[:start], stop
        keep = max(_overlap(buffer, stop) for stop in self._stops)
        self._held = buffer[len(buffer) - keep :]
        return buffer[: len(buffer) - keep], None

    def flush(self) -> str:
        """The text that was held back, when nothing more comes."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of ``text`` that begins ``stop`` and is not all of it."""
    for length in range(min(len(text), len(stop) - 1), 0, -1):
        if text.endswith(stop[:length]):
            return length
    return 0
