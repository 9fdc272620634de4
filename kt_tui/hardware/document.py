"""Reads frozen dataclasses from untrusted JSON: what fits is taken, what does not is named and left out."""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Hashable, Mapping
from typing import Any, TypeVar

T = TypeVar("T")

MAXIMUM_ITEMS = 65_536  # of one list; no machine has more CPUs
MAXIMUM_TEXT = 4_096
MAXIMUM_INTEGER = 1 << 62
MAXIMUM_PROBLEMS = 50


class MisfitError(Exception):
    """A value does not have the declared type."""


@functools.cache
def _hints(cls: Hashable) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def decode(cls: type[T], document: Mapping[str, object], where: str, problems: list[str]) -> T:
    """Build ``cls`` from ``document``; each key that does not fit keeps its default and adds to ``problems``.

    Args:
        cls: A frozen dataclass of scalars, tuples, mappings of text and other such dataclasses.
        document: The JSON object.
        where: The object's name in messages.
        problems: Receives one sentence per value that was left out.

    Raises:
        MisfitError: A field without default is missing or does not fit.
    """
    values: dict[str, Any] = {}
    hints = _hints(typing.cast(Hashable, cls))  # a class with a type variable in it is not seen as hashable
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if field.name not in document:
            if required:
                raise MisfitError(f"{where}.{field.name} is missing")
            continue
        try:
            values[field.name] = _value(
                hints[field.name], document[field.name], f"{where}.{field.name}", problems
            )
        except MisfitError as misfit:
            if required:
                raise
            if len(problems) < MAXIMUM_PROBLEMS:
                problems.append(f"{misfit}; ignored")
    return cls(**values)


def _value(hint: Any, value: object, where: str, problems: list[str]) -> Any:
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        if value is None:
            return None
        (hint,) = (option for option in typing.get_args(hint) if option is not type(None))
        return _value(hint, value, where, problems)
    if origin is tuple:
        return _items(typing.get_args(hint)[0], value, where, problems)
    if dataclasses.is_dataclass(hint):
        if not isinstance(value, Mapping):
            raise MisfitError(f"{where} is not an object")
        return decode(typing.cast(type, hint), value, where, problems)
    if origin is Mapping:
        if not isinstance(value, Mapping):
            raise MisfitError(f"{where} is not an object")
        return {str(k)[:MAXIMUM_TEXT]: str(v)[:MAXIMUM_TEXT] for k, v in list(value.items())[:MAXIMUM_ITEMS]}
    return _scalar(hint, value, where)


def _items(hint: Any, value: object, where: str, problems: list[str]) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise MisfitError(f"{where} is not a list")
    items = []
    for position, item in enumerate(value[:MAXIMUM_ITEMS]):
        try:
            items.append(_value(hint, item, f"{where}[{position}]", problems))
        except MisfitError as misfit:
            if len(problems) < MAXIMUM_PROBLEMS:
                problems.append(f"{misfit}; ignored")
    return tuple(items)


def _scalar(hint: Any, value: object, where: str) -> Any:
    if hint is bool:
        if isinstance(value, bool):
            return value
        raise MisfitError(f"{where} is neither true nor false")
    if hint is str:
        if isinstance(value, str):
            return value[:MAXIMUM_TEXT]
        raise MisfitError(f"{where} is not text")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise MisfitError(f"{where} is not a number")
    if not 0 <= value <= MAXIMUM_INTEGER:  # also turns NaN and infinity away
        raise MisfitError(f"{where} is out of range")
    if hint is float:
        return float(value)
    if hint is int and value == int(value):
        return int(value)
    raise MisfitError(f"{where} is not a whole number")
