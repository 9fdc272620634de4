"""Telling subscribers, so that one that fails neither hides the news from the others nor ends the telling."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TypeVar

Value = TypeVar("Value")


def notify(subscribers: Iterable[Callable[[Value], None]], value: Value) -> None:
    """Call each subscriber; a failure goes to the event loop's exception handler (raised if there is no loop)."""
    for subscriber in tuple(subscribers):
        try:
            subscriber(value)
        except Exception as error:
            try:
                loop = asyncio.get_running_loop()
            except RuntimeError:
                raise error from None
            loop.call_exception_handler({"message": "a subscriber to the engine failed", "exception": error})
