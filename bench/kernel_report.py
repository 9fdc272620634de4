"""Rows of `bench.kernels` as text, as JSON lines and as the table of docs/kernels.md."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

BEGIN, END = "<!-- kernels:begin -->", "<!-- kernels:end -->"
SMALL_BATCH = 16
"""Up to so many tokens the memory is the limit, above it the arithmetic."""


@dataclass(frozen=True)
class Row:
    """One measurement; `figure` and `limit` are in `unit`, and all are medians over the rounds."""

    operation: str
    format: str
    shape: str
    mode: str
    tokens: int
    threads: int
    isa: str
    milliseconds: float
    unit: str
    figure: float
    limit: float
    share: float

    def __str__(self) -> str:
        if self.operation == "error":
            return f"error     {self.format:13} {self.shape:38} fast mode beside exact: {self.figure:.4f}"
        return (
            f"{self.operation:9} {self.format:13} {self.shape:38} {self.mode:5} {self.tokens:5} tokens "
            f"{self.threads:3} threads {self.isa:11} {self.milliseconds:9.2f} ms {self.figure:8.1f} "
            f"{self.unit:8} of {self.limit:8.1f} = {self.share:.2f}"
        )


def goal(row: Row) -> float | None:
    """The share that is aimed at, or None."""
    if row.operation in {"alone", "attention", "error", "operands"}:
        return None
    if row.tokens <= SMALL_BATCH:
        if row.isa == "avx2" and row.format.startswith(("fp8", "int4")):
            return 0.85
        return 0.92 if row.tokens == 1 else 0.85
    if row.isa == "amx":
        return 0.60 if row.tokens >= 4096 else None
    if row.mode == "fast" and row.format.startswith(("q", "int", "mxfp4")):
        return 0.60
    return 0.75 if row.tokens <= 256 else 0.85


def read_lines(paths: Iterable[Path]) -> list[tuple[dict[str, str], list[Row]]]:
    """Machine and rows of files of JSON lines; the first line of each tells of the machine."""
    found = []
    for path in paths:
        first, *lines = path.read_text("utf-8").splitlines()
        found.append((json.loads(first), [Row(**json.loads(line)) for line in lines]))
    return found


def markdown(machines: Iterable[tuple[dict[str, str], list[Row]]]) -> str:
    """One table a machine."""
    parts = []
    for machine, rows in machines:
        parts.append(
            ", ".join(f"{key} {value}" if key != "cpu" else value for key, value in machine.items()) + ":\n"
        )
        parts.append(
            "| operation | format, mode | shape | tokens | threads | figure | limit | share | goal |"
        )
        parts.append("|---|---|---|---|---|---|---|---|---|")
        for row in rows:
            if row.operation == "error":
                parts.append(
                    f"| error of fast beside exact | {row.format} | {row.shape} | {row.tokens} | {row.threads} | "
                    f"{row.figure:.4f} {row.unit} | | | |"
                )
                continue
            aim = goal(row)
            met = "" if aim is None else f"{aim:.2f} {'met' if row.share >= aim else 'missed'}"
            parts.append(
                f"| {row.operation} | {row.format}, {row.mode} | {row.shape} | {row.tokens} | {row.threads} | "
                f"{row.figure:.1f} {row.unit} | {row.limit:.1f} | {row.share:.2f} | {met} |"
            )
        parts.append("")
    return "\n".join(parts)


def replace_table(page: str, table: str) -> str:
    """The page with what lies between the markers replaced.

    Raises:
        ValueError: The page has no markers.
    """
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no {BEGIN} and {END}")
    return f"{before}{BEGIN}\n\n{table}\n{END}{after}"


def to_json(row: Row) -> str:
    """One JSON object a row."""
    return json.dumps(
        {key: round(value, 4) if isinstance(value, float) else value for key, value in asdict(row).items()}
    )
