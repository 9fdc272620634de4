"""Splitting streamed Markdown into blocks that can never change again, and the unfinished rest.

A top-level block is settled when a complete line has begun the next one: CommonMark closes blocks by what
follows, line by line, so nothing that arrives later can reach back. The one exception of the standard, link
definitions, is switched off in the parser. Whatever the size of the chunks, the blocks at the end are the
same as those of the whole text given at once.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from markdown_it import MarkdownIt
from markdown_it.token import Token

_EAGER = 4_096  # characters of unfinished text that are parsed again at every new line
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})")


@dataclass(frozen=True)
class Block:
    """One top-level block: its kind (markdown-it's token type), source and the blank line before it."""

    kind: str
    source: str
    gap: bool
    closed: bool = True


@cache
def parser() -> MarkdownIt:
    """CommonMark with tables and strikethrough; HTML stays text, links are never guessed."""
    markdown = MarkdownIt("commonmark", {"html": False, "linkify": False, "breaks": True})
    return markdown.enable(["table", "strikethrough"]).disable(["reference", "html_block", "html_inline"])


def split_blocks(source: str, *, gap: bool = False) -> list[Block]:
    """The top-level blocks of a whole text. ``gap``: whether a blank line came before it."""
    lines = source.split("\n")
    blocks: list[Block] = []
    for token in _top_level(source):
        first, last = _span(token)
        spaced = not lines[first - 1].strip() if first else gap
        blocks.append(_block(token, lines[first:last], spaced))
    return blocks


class Segmenter:
    """Takes text in any chunks; ``settled`` only ever grows, ``tail`` is the text after it."""

    def __init__(self) -> None:
        self.settled: list[Block] = []
        self.tail = ""
        self._gap = False
        self._examined = 0  # characters of the tail that hold no block boundary, as far as is known
        self._fence = ""  # the opening marker while the tail is one open fence
        self._next_parse = 0  # tail length below which parsing is not worth it yet

    @property
    def gap(self) -> bool:
        """Whether a blank line precedes the tail."""
        return self._gap

    @property
    def fence(self) -> str:
        """The marker of the fence that the tail is inside of, or an empty string."""
        return self._fence

    def feed(self, text: str) -> None:
        """Adds text, whose line ends are already plain newlines."""
        self.tail += text
        if "\n" not in text and "\n" not in self.tail[self._examined :]:
            return
        if self._fence:
            self._seek_fence_end()
        elif len(self.tail) >= self._next_parse:
            self._settle()

    def finish(self) -> None:
        """Settles everything; nothing more will come."""
        self.settled.extend(split_blocks(self.tail, gap=self._gap))
        self.tail, self._fence, self._examined = "", "", 0

    def _settle(self) -> None:
        complete = self.tail.rfind("\n") + 1
        if complete == 0:
            return
        lines = self.tail[:complete].split("\n")[:-1]
        tops = _top_level(self.tail[:complete])
        if not tops:  # only blank lines
            self._drop_lines(lines, len(lines))
            return
        for token in tops[:-1]:
            first, last = _span(token)
            spaced = self._gap if first == 0 else not lines[first - 1].strip()
            self.settled.append(_block(token, lines[first:last], spaced))
        if begin := _span(tops[-1])[0]:
            self._drop_lines(lines, begin)
        if tops[-1].type == "fence" and (opening := _FENCE.match(self.tail)):
            self._fence, self._examined = opening[1], self.tail.find("\n") + 1
            self._seek_fence_end()
        elif not self._fence:
            self._examined = self.tail.rfind("\n") + 1
            # Parsing again at every line of a very long block would cost its square.
            size = len(self.tail)
            self._next_parse = 0 if size < _EAGER else size + size // 8

    def _drop_lines(self, lines: list[str], count: int) -> None:
        self._gap = not lines[count - 1].strip()
        self.tail = self.tail[sum(len(line) + 1 for line in lines[:count]) :]
        self._examined = self._next_parse = 0

    def _seek_fence_end(self) -> None:
        closing = re.compile(rf" {{0,3}}{re.escape(self._fence[0])}{{{len(self._fence)},}}[ \t]*")
        while (end := self.tail.find("\n", self._examined)) >= 0:
            line, self._examined = self.tail[self._examined : end], end + 1
            if closing.fullmatch(line):
                block = Block("fence", self.tail[:end], self._gap)
                self.settled.append(block)
                self.tail, self._gap, self._fence = self.tail[end + 1 :], False, ""
                self._examined = self._next_parse = 0
                self._settle()
                return


def _span(token: Token) -> tuple[int, int]:
    first, last = token.map or (0, 0)
    return first, last


def _block(token: Token, lines: list[str], gap: bool) -> Block:
    source = "\n".join(lines).rstrip("\n")
    closed = True
    if token.type == "fence":
        body = source.split("\n")
        closed = len(body) > 1 and body[-1].lstrip(" ").startswith(token.markup)
    return Block(token.type.removesuffix("_open"), source, gap, closed)


def _top_level(source: str) -> list[Token]:
    markdown = parser()
    tokens: list[Token] = []
    markdown.block.parse(source, markdown, {}, tokens)
    return [token for token in tokens if token.level == 0 and token.nesting >= 0 and token.map]
