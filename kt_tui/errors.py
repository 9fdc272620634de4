"""The one base of errors that a user can act on."""

from __future__ import annotations


class KtError(Exception):
    """A problem told in one sentence: the thing, the reason, the way out. Shown without a traceback."""

    exit_code = 1


class UsageError(KtError):
    """The user's words are off (exit code 2)."""

    exit_code = 2
