"""The engine's errors that a user can act on."""

from __future__ import annotations


class EngineError(Exception):
    """A problem told in one sentence: the thing, the reason, the way out. Shown without a traceback."""


class CheckpointError(EngineError):
    """A model's files are missing, damaged or of a kind that this engine does not run."""


class KvPoolFullError(EngineError):
    """The key-value cache has no room for the tokens of this step; nothing was computed."""


class ContextOverflowError(EngineError):
    """A sequence would grow past the model's context length; nothing was computed."""
