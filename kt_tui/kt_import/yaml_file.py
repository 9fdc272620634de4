"""YAML of another program: plain data, or one sentence. Nothing in such a file is run, and none can exhaust memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kt_tui.errors import KtError
from kt_tui.tomlfile import read_text

MAX_BYTES = 1 << 20
MAX_VALUES = 50_000
MAX_DEPTH = 20


class YamlError(KtError):
    """A file that cannot be taken over; says which, where and why."""


def read_yaml(path: Path) -> dict[str, Any] | None:
    """The mapping that a YAML file holds, with text keys; None when there is no file, or nothing in it.

    Raises:
        KtError: It is unreadable, too long, no YAML (with line and column), no mapping, or grows when it is read.
    """
    text = read_text(path)
    if text is None:
        return None
    if len(text.encode()) > MAX_BYTES:
        raise YamlError(f"{path} is too long for a file of the kt command line; it was not taken over")
    document = _plain(_load(text, path), path)
    if document is None:
        return None
    if not isinstance(document, dict):
        raise YamlError(f"{path}:1:1: this is no mapping of names to values; it was not taken over")
    return document


def _load(text: str, path: Path) -> object:
    import yaml

    class Loader(yaml.SafeLoader):
        """Dates stay text, and ``<<`` is no merge: merges of merges grow without bound when they are read."""

        yaml_implicit_resolvers = {  # noqa: RUF012 (as the base class has it)
            first: [(tag, pattern) for tag, pattern in resolvers if tag not in _LEFT_AS_TEXT]
            for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
        }

    try:
        return Loader(text).get_single_data()  # type: ignore[no-untyped-call]
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        raise YamlError(f"{path}{place}: {error.problem or error.context}; it was not taken over") from error
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        first = str(error).partition("\n")[0]
        raise YamlError(f"{path}: {first[:200]}; it was not taken over") from error
    except RecursionError as error:
        raise YamlError(f"{path}: it is nested too deeply; it was not taken over") from error


_LEFT_AS_TEXT = ("tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:merge")


def _plain(value: object, path: Path) -> object:
    """The data with every reference written out, so that nothing is shared; refused when that is too much."""
    left = MAX_VALUES

    def copied(value: object, depth: int) -> object:
        nonlocal left
        left -= 1
        if left < 0 or depth > MAX_DEPTH:
            raise YamlError(f"{path} holds far more than such files do, or itself; it was not taken over")
        if isinstance(value, dict):
            return {str(key): copied(item, depth + 1) for key, item in value.items()}
        if isinstance(value, (list, tuple, set)):
            return [copied(item, depth + 1) for item in value]
        return value if value is None or isinstance(value, (str, int, float, bool)) else str(value)

    return copied(value, 0)
