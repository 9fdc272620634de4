"""All that a checkpoint says about text: tokenizer, chat template, end tokens, default sampling."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from tokenizers import Tokenizer

from engine.text.stream import TokenDecoder, new_decoder
from engine.text.template import ChatTemplate


@dataclass(frozen=True)
class TextModel:
    """Text in, token ids out, and back.

    Attributes:
        tokenizer: The fast tokenizer.
        template: How a conversation is written for the model; None if the checkpoint has none.
        end_ids: Tokens that end an answer.
        sampling_defaults: What the model's makers recommend (``temperature``, ``top_k``, ``top_p``, ``min_p``), for
            requests that say nothing.
        begin_id: Token to put before a plain text, where the tokenizer does not do so by itself.
    """

    tokenizer: Tokenizer
    template: ChatTemplate | None
    end_ids: frozenset[int]
    sampling_defaults: Mapping[str, float] = field(default_factory=dict)
    begin_id: int | None = None

    @cached_property
    def longest_token(self) -> int:
        """Length of the longest token, in the vocabulary's own characters (bytes, for a byte-level one)."""
        return max(map(len, self.tokenizer.get_vocab()), default=1)

    def exceeds(self, text: str, tokens: int) -> bool:
        """Whether ``text`` is so long that it cannot fit into ``tokens`` tokens, told without encoding it."""
        return len(text) > tokens * self.longest_token

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """Token ids of a text; control tokens written in it are recognised.

        Args:
            text: The text.
            add_special_tokens: Let the tokenizer add what it adds to a plain text, often a token for its
                beginning. A rendered chat template already holds it.
        """
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=add_special_tokens).ids
        if add_special_tokens and self.begin_id is not None:
            return [self.begin_id, *ids]
        return ids

    def new_decoder(self) -> TokenDecoder:
        """A decoder for one generation."""
        return new_decoder(self.tokenizer)
