"""A small model that does what the prompt says, on a cache that checks how it is used. No weights, no kernels."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from engine.loading import Kernels
from engine.runner import Row, RunnerStats, Sequence
from engine.text.model import TextModel
from engine.text.stream import _ALPHABET
from engine.text.template import ChatTemplate

PAGE = 16
BYTE_OF = {byte: letter for letter, byte in _ALPHABET.items()}
CONTROL = ("<|im_start|>", "<|im_end|>")
START, END = 256, 257
VOCABULARY = 258
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def byte_tokenizer() -> Tokenizer:
    """One token per byte (its id is the byte), and two control tokens."""
    vocabulary = {BYTE_OF[byte]: byte for byte in range(256)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(t, normalized=False, special=True) for t in CONTROL])
    return tokenizer


def text_model(template: str | None = CHATML, **defaults: float) -> TextModel:
    compiled = ChatTemplate(template, "the test", {}) if template else None
    return TextModel(byte_tokenizer(), compiled, frozenset({END}), defaults)


@dataclass
class Held:
    tokens: list[int]
    pages: int = 0


class FakeRunner:
    """Keeps the tokens of each sequence, as a cache would, and asks `next_logits` what follows all of them."""

    def __init__(
        self,
        next_logits: Callable[[list[int]], torch.Tensor] | None = None,
        *,
        context_length: int = 1024,
        kv_tokens: int = 8192,
        step_s: float = 0.0,
    ) -> None:
        self.vocab_size = VOCABULARY
        self.context_length = context_length
        self.kernels = Kernels("scalar", 1, "auto", "keep")
        self.pages = kv_tokens // PAGE
        self.step_s = step_s
        self.held: dict[int, Held] = {}
        self.steps: list[list[int]] = []
        self.fail_next: Exception | None = None
        self._next = next_logits or obey
        self._ids = 0

    @property
    def stats(self) -> RunnerStats:
        used = sum(h.pages for h in self.held.values())
        return RunnerStats(used * PAGE, self.pages * PAGE, 1000, 2000, ((1, 2), (3, 4)))

    def open_sequence(self) -> Sequence:
        self._ids += 1
        self.held[self._ids] = Held([])
        return Sequence(self._ids)

    def close_sequence(self, sequence: Sequence) -> None:
        self.held.pop(sequence.id, None)

    def reserve(self, sequence: Sequence, tokens: int) -> bool:
        held = self.held[sequence.id]
        pages = -(-(len(held.tokens) + tokens) // PAGE)
        if sum(h.pages for h in self.held.values()) - held.pages + max(pages, held.pages) > self.pages:
            return False
        held.pages = max(pages, held.pages)
        return True

    def step(self, rows: list[Row]) -> list[torch.Tensor | None]:
        if self.step_s:
            time.sleep(self.step_s)
        if self.fail_next is not None:
            error, self.fail_next = self.fail_next, None
            raise error
        assert rows
        assert len({row.sequence.id for row in rows}) == len(rows)
        self.steps.append([len(row.tokens) for row in rows])
        answers: list[torch.Tensor | None] = []
        for row in rows:
            held = self.held[row.sequence.id]
            assert row.tokens
            held.tokens.extend(row.tokens)
            assert len(held.tokens) <= held.pages * PAGE, "tokens without reserved pages"
            assert len(held.tokens) <= self.context_length
            answers.append(self._next(held.tokens) if row.want_logits else None)
        return answers


def only(token: int) -> torch.Tensor:
    logits = torch.zeros(VOCABULARY)
    logits[token] = 30.0
    return logits


def obey(tokens: list[int]) -> torch.Tensor:
    """What follows a conversation whose last user message is an order.

    ``say TEXT`` gives the text, ``hex F0 9F`` the bytes, ``forever`` a's without end, ``random`` letters at
    random, ``nan`` no numbers; anything else is repeated.
    """
    start = len(tokens) - tokens[::-1].index(START) if START in tokens else 0
    done = bytes(t for t in tokens[start:] if t < 256).removeprefix(b"assistant\n")
    before = bytes(t if t < 256 else 0 for t in tokens[: max(start - 1, 0)])
    order = before.rpartition(b"\0user\n")[2].partition(b"\0")[0].decode()
    kind, _, rest = order.partition(" ")
    if kind == "forever":
        return only(ord("a"))
    if kind == "nan":
        return torch.full((VOCABULARY,), torch.nan)
    if kind == "random":
        logits = torch.full((VOCABULARY,), -torch.inf)
        logits[ord("a") : ord("z") + 1] = 0.0
        return logits
    wanted = {"say": rest.encode(), "hex": bytes.fromhex(rest) if kind == "hex" else b""}.get(
        kind, order.encode()
    )
    return only(wanted[len(done)] if len(done) < len(wanted) else END)
