"""Speeds that others published for a model, with who says so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Published:
    """Tokens per second of one conversation on one machine.

    Attributes:
        machine: The machine, in words.
        source: Who published it.
        prompt: Prompt tokens of each figure; empty when the source does not tell.
        prefill: Prompt tokens per second.
        decode: Tokens of an answer per second.
    """

    machine: str
    source: str
    prompt: tuple[int, ...] = ()
    prefill: tuple[float, ...] = ()
    decode: tuple[float, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As plans print it."""
        return {
            key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()
        }


def published_of(rows: object) -> tuple[Published, ...]:
    """Rows as ``models.toml`` writes them.

    Raises:
        ValueError: A row is no such table; says what is wrong.
    """
    if not isinstance(rows, list):
        raise ValueError("must be a list of tables")
    return tuple(_row(row) for row in rows)


def _row(row: object) -> Published:
    if not isinstance(row, Mapping) or not set(row) <= {"machine", "source", "prompt", "prefill", "decode"}:
        raise ValueError("holds tables of machine, source, prompt, prefill and decode")
    texts = [row.get(name) for name in ("machine", "source")]
    if not all(isinstance(text, str) and text for text in texts):
        raise ValueError("needs a machine and a source in each table")
    lists = [row.get(name, []) for name in ("prompt", "prefill", "decode")]
    for values in lists:
        if not isinstance(values, list) or not all(type(v) in (int, float) and v > 0 for v in values):
            raise ValueError("prompt, prefill and decode must be lists of numbers above 0")
    prompt, prefill, decode = lists
    if not (prefill or decode) or any(len(values) not in (0, len(prompt or values)) for values in lists[1:]):
        raise ValueError("needs as many figures of prefill or decode as prompts")
    return Published(
        str(texts[0]),
        str(texts[1]),
        tuple(int(value) for value in prompt),
        tuple(float(value) for value in prefill),
        tuple(float(value) for value in decode),
    )
