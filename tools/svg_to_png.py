"""Turns Textual's SVG screenshots into PNG with rsvg-convert and the fonts of this machine.

usage: python tools/svg_to_png.py OUT_FOLDER SCREENSHOT.svg [...]

Textual lays its picture out for Fira Code from the web, with cells of 12.2 by 24.4 units. rsvg-convert knows
neither the web nor ``textLength``, and drops leading blanks, so each text is cut into runs without blanks at their
own places, in a font whose cells have that width.
"""

from __future__ import annotations

import html
import re
import subprocess
import sys
import unicodedata
from pathlib import Path

CELL = 12.2
FONT = "DejaVu Sans Mono, Noto Sans Mono CJK SC, monospace"
FONT_SIZE = CELL / 0.60205  # the advance of DejaVu Sans Mono, in ems

_TEXT = re.compile(
    r'<text class="(?P<style>[\w-]+-r\d+)" x="(?P<x>[\d.]+)" y="(?P<y>[\d.]+)"[^>]*>(?P<text>[^<]*)</text>'
)


def cells(character: str) -> int:
    """Columns that a character takes."""
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def placed(match: re.Match[str]) -> str:
    """One text as runs, each at its own column."""
    x, style, y = float(match["x"]), match["style"], match["y"]
    runs: list[str] = []
    column, start, run = 0, 0, ""

    def close() -> None:
        if run:
            runs.append(f'<text class="{style}" x="{x + start * CELL:.1f}" y="{y}">{html.escape(run)}</text>')

    for character in html.unescape(match["text"]):
        wide = cells(character) == 2
        if character in "\xa0 " or wide:
            close()
            run = ""
            if wide:
                start, run = column, character
                close()
                run = ""
        else:
            if not run:
                start = column
            run += character
        column += cells(character)
    close()
    return "".join(runs)


def convert(svg: Path, folder: Path, width: int) -> Path:
    """Write ``folder/NAME.png``."""
    text = svg.read_text()
    text = re.sub(r"@font-face \{.*?\}", "", text, flags=re.DOTALL)
    text = text.replace("font-family: Fira Code, monospace;", f"font-family: {FONT};")
    text = re.sub(r"font-size: 20px;", f"font-size: {FONT_SIZE:.3f}px;", text, count=1)
    text = _TEXT.sub(placed, text)
    target = folder / f"{svg.stem}.png"
    subprocess.run(["rsvg-convert", "-w", str(width), "-o", target], input=text.encode(), check=True)  # noqa: S607
    return target


if __name__ == "__main__":
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[2:]:
        print(convert(Path(name), out, 1400))
