"""What is a secret, going by its name, and how it is shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

MASK = "(hidden)"
_WORDS = ("token", "secret", "password", "passphrase")


def is_secret(name: str) -> bool:
    """Whether a setting, an option or a variable holds a secret, going by its name (``launch.api-key``)."""
    words = name.lower().rpartition(".")[2].strip("-").replace("-", "_").split("_")
    # "key" alone may be a key of a keyboard or of a table; an API key says so.
    return words[-1] in _WORDS or (words[-1] == "key" and len(words) > 1)


def masked_arguments(arguments: Sequence[str]) -> list[str]:
    """Engine arguments with the values of secret options (``--api-key X``, ``--api-key=X``) hidden."""
    shown: list[str] = []
    hide_next = False
    for argument in arguments:
        name, equals, _ = argument.partition("=")
        if hide_next and not argument.startswith("--"):
            shown.append(MASK)
            hide_next = False
            continue
        hide_next = name.startswith("--") and is_secret(name) and not equals
        shown.append(f"{name}={MASK}" if equals and name.startswith("--") and is_secret(name) else argument)
    return shown


def holds_secret(document: object, depth: int = 0) -> bool:
    """Whether parsed data (tables and lists) has a filled-in secret under any key, or among arguments."""
    if depth > 50:
        return True  # nobody's configuration; better closed than open
    if isinstance(document, Mapping):
        return any(
            (is_secret(str(name)) and isinstance(value, str) and value != "")
            or holds_secret(value, depth + 1)
            for name, value in document.items()
        )
    if isinstance(document, list):
        words = [item for item in document if isinstance(item, str)]
        return masked_arguments(words) != words or any(holds_secret(item, depth + 1) for item in document)
    return False
