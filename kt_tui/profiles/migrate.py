"""Profiles of earlier schema versions, brought to the present one in memory.

A file changes only when it is saved, and what it held before then stays beside it (``NAME.toml.v1.bak``).

- Version 2 names launch options as the command line does. Version 1 took the names of the engine's flags too, which
  have changed since (``kt-amx-method``).
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

SCHEMA_VERSION = 2

_OPTIONS_OF_1 = {
    "kt-amx-method": "kt-method",
    "kt-amx-weight-path": "weights-path",
    "kt-weight-path": "weights-path",
    "kt-cpuinfer": "cpu-threads",
    "kt-num-gpu-experts": "gpu-experts",
    "kt-gpu-prefill-token-threshold": "kt-gpu-prefill-threshold",
}
_FLAGS_OF_1 = {"--kt-amx-method": "--kt-method", "--kt-amx-weight-path": "--kt-weight-path"}


def migrate(document: MutableMapping[str, Any], version: int) -> list[str]:
    """Bring a document of ``version`` to `SCHEMA_VERSION`, in place; comments of a styled document stay.

    Returns:
        What was done, one sentence for each change. Of a document that is current already: nothing.
    """
    done: list[str] = []
    if version < 2:
        options = document.get("options")
        if isinstance(options, MutableMapping):
            done += _rename(options)
        extra = document.get("extra")
        if isinstance(extra, list):
            done += _rename_flags(extra)
    if version < SCHEMA_VERSION and "schema_version" in document:
        document["schema_version"] = SCHEMA_VERSION
    return done


def _rename(options: MutableMapping[str, Any]) -> list[str]:
    done = []
    for old, new in _OPTIONS_OF_1.items():
        if old not in options:
            continue
        value = options.pop(old)
        if new in options:
            done.append(f"option {old} was left out, since {new} is set as well")
        else:
            options[new] = value
            done.append(f"option {old} is now {new}")
    return done


def _rename_flags(extra: list[Any]) -> list[str]:
    done = []
    for number, word in enumerate(extra):
        flag, equals, value = str(word).partition("=")
        if flag in _FLAGS_OF_1:
            extra[number] = _FLAGS_OF_1[flag] + equals + value
            done.append(f"{flag} is now {_FLAGS_OF_1[flag]}")
    return done
