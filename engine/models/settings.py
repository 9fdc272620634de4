"""Reading a model's settings from its configuration, which is somebody else's file and may say anything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from engine.errors import CheckpointError
from engine.weights.index import Checkpoint


class Settings(BaseModel):
    """The base of a family's settings: frozen, checked, blind to keys that it does not use."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

    @classmethod
    def read(cls, checkpoint: Checkpoint) -> Self:
        """Read the settings of a checkpoint.

        Raises:
            CheckpointError: A setting is missing, impossible, or asks for what this family does not have.
        """
        values = {key: value for key, value in checkpoint.config.items() if value is not None}
        try:
            return cls.model_validate(_with_rope(values))
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(str(part) for part in first["loc"])
            reason = first["msg"].removeprefix("Value error, ")
            source = checkpoint.path if checkpoint.path.is_file() else checkpoint.path / "config.json"
            given = (
                "" if first["type"] == "missing" or not where else f" (it is {str(first['input'])[:80]!r})"
            )
            raise CheckpointError(
                f"{source}: {where + ': ' if where else ''}{reason}{given}; the engine cannot run this model"
            ) from None


def _with_rope(values: Mapping[str, Any]) -> dict[str, Any]:
    """Bring both spellings of RoPE settings into one.

    Older files give ``rope_theta``, ``rotary_dim`` and ``rope_scaling`` at the top; newer ones put all of it into
    ``rope_parameters``.
    """
    flat = dict(values)
    nested = flat.pop("rope_parameters", None)
    if isinstance(nested, dict):
        for key in ("rope_theta", "partial_rotary_factor"):
            if nested.get(key) is not None:
                flat[key] = nested[key]
        if nested.get("rope_type", "default") != "default":
            flat["rope_scaling"] = nested
    return flat
