"""A checkpoint's chat template: Jinja from a stranger, so rendered in a sandbox with limits.

The environment follows transformers' ``apply_chat_template``: the same whitespace rules, filters, globals and tags,
so that a template written for it gives the same text here.

As there, the rendered text is one string, in which the tokenizer then recognises control tokens. So a user who
writes ``<|im_end|>`` ends the turn; templates have no way to tell their own markers from quoted ones.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from types import FrameType
from typing import Any

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.parser
import jinja2.sandbox
import jinja2.utils

from engine.errors import CheckpointError
from engine.request import RequestError

RENDER_SECONDS = 5.0
"""How long a template may run; ordinary ones take about a millisecond."""

LONGEST_OUTPUT = 32 << 20
"""Characters that a template may produce, and that a text inside it may have."""

_LARGEST_EXPONENT = 64
_TEMPLATE_FILE = "<template>"  # the file name that jinja2 gives to compiled templates


class _GenerationTag(jinja2.ext.Extension):
    """``{% generation %}``: marks the assistant's words for training; here it renders its body and nothing else."""

    tags = {"generation"}  # noqa: RUF012  # the base class declares a plain set

    def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Namespace(jinja2.utils.Namespace):
    """``namespace()`` without underscore names, which reach into Python."""

    def __setitem__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            raise jinja2.exceptions.SecurityError("a namespace takes no names that begin with an underscore")
        super().__setitem__(name, value)


class _Sandbox(jinja2.sandbox.ImmutableSandboxedEnvironment):
    """The sandbox, with the operators guarded that make much from little."""

    intercepted_binops = frozenset({"*", "**", "%"})

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if operator == "*":
            size = _length(left) * _count(right) or _length(right) * _count(left)
            if size > LONGEST_OUTPUT:
                raise jinja2.TemplateError("it makes a text that is too long")
        elif operator == "**" and (not isinstance(right, int | float) or abs(right) > _LARGEST_EXPONENT):
            raise jinja2.TemplateError("it makes a number that is too large")
        elif operator == "%" and isinstance(left, str) and re.search(r"%[^%a-zA-Z]*(\d{5}|\*)", left):
            raise jinja2.TemplateError("it makes a text that is too long")
        return super().call_binop(context, operator, left, right)


def _length(value: object) -> int:
    return len(value) if isinstance(value, str | list | tuple) else 0


def _count(value: object) -> int:
    return max(value, 0) if isinstance(value, int) else 0


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """``tojson`` without Jinja's escaping of HTML."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise_exception(message: object) -> None:
    raise jinja2.TemplateError(str(message))


def _strftime_now(layout: str) -> str:
    return datetime.now().astimezone().strftime(layout)


def _environment() -> _Sandbox:
    environment = _Sandbox(
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,
        extensions=[_GenerationTag, jinja2.ext.loopcontrols],
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    environment.globals["namespace"] = _Namespace
    return environment


@contextmanager
def _deadline(seconds: float) -> Iterator[None]:
    """Stop template code that runs too long.

    The sandbox bounds one ``range`` but not nested loops, and a thread cannot be killed; a trace function that
    only follows the template's own frames can raise inside them.
    """
    end = time.monotonic() + seconds

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        del event, argument
        if frame.f_code.co_filename != _TEMPLATE_FILE:
            return None
        if time.monotonic() > end:
            raise jinja2.TemplateError(f"it ran longer than {seconds:g} seconds")
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


class ChatTemplate:
    """A compiled chat template.

    Args:
        source: The Jinja text.
        origin: The file that it is from, for messages.
        special_tokens: ``bos_token``, ``eos_token`` and the like, which templates refer to by these names.

    Raises:
        CheckpointError: The template is not valid Jinja.
    """

    def __init__(self, source: str, origin: str, special_tokens: Mapping[str, str]) -> None:
        self.source = source
        self._special_tokens = dict(special_tokens)
        try:
            self._template = _environment().from_string(source)
        except (jinja2.TemplateError, RecursionError, ValueError) as error:
            raise CheckpointError(
                f"The chat template in {origin} is not valid ({_reason(error)}): fetch the file again."
            ) from error

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        variables: Mapping[str, Any] | None = None,
        seconds: float = RENDER_SECONDS,
    ) -> str:
        """Write a conversation as the model was trained to read it.

        Args:
            messages: Role, content and what else the template reads. Keys whose value is None are left out, as
                transformers does.
            add_generation_prompt: End with the beginning of the assistant's turn.
            variables: Further names for the template (``chat_template_kwargs``).
            seconds: How long the template may run.

        Raises:
            RequestError: The template refuses the conversation, or exceeds a limit.
        """
        names = {
            **self._special_tokens,
            **(variables or {}),
            "messages": [{key: value for key, value in m.items() if value is not None} for m in messages],
            "add_generation_prompt": add_generation_prompt,
        }
        names.setdefault("tools", None)
        names.setdefault("documents", None)
        try:
            with _deadline(seconds):
                return self._collect(names)
        except RecursionError:
            reason = "it calls itself without end"
        except Exception as error:  # a template can raise anything that Python can
            reason = _reason(error)
        raise RequestError(
            f"The model's chat template refused the messages: {reason}.",
            param="messages",
            code="chat_template",
        )

    def _collect(self, names: Mapping[str, Any]) -> str:
        pieces: list[str] = []
        size = 0
        for piece in self._template.generate(names):
            size += len(piece)
            if size > LONGEST_OUTPUT:
                raise jinja2.TemplateError(f"its text is longer than {LONGEST_OUTPUT} characters")
            pieces.append(piece)
        return "".join(pieces)


def _reason(error: BaseException) -> str:
    """An error in at most a line. Its words may come from the template, so control characters are dropped."""
    text = " ".join(str(error).split())
    text = "".join(c for c in text if c.isprintable())[:300].rstrip(".")
    if isinstance(error, jinja2.TemplateSyntaxError):
        return f"line {error.lineno}: {text}"
    return text if isinstance(error, jinja2.TemplateError) and text else f"{type(error).__name__}: {text}"
