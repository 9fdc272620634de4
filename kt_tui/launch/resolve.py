"""From many sources to one value a parameter, each with its origin."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from kt_tui.launch.schema import Parameter, Value


class Origin(StrEnum):
    """Where a value comes from; the first that has one wins."""

    CLI = "cli"
    PROFILE = "profile"
    ENVIRONMENT = "environment"
    CONFIG = "config"
    MODEL = "model"
    HARDWARE = "hardware"
    DEFAULT = "default"


class Settings(Protocol):
    """What resolution asks of the configuration (`kt_tui.config.Config` is one)."""

    def get(self, key: str) -> object:
        """The value of a dotted key; KeyError without one."""

    def origin(self, key: str) -> str:
        """``config`` if the user's file sets it."""


@dataclass(frozen=True)
class Resolved:
    """A value and its origin; None means that nobody sets it and the engine decides by itself."""

    value: Value | None
    origin: Origin


@dataclass(frozen=True)
class Sources:
    """The values that each source has, by option name."""

    cli: Mapping[str, object] = field(default_factory=dict)
    profile: Mapping[str, object] = field(default_factory=dict)
    environ: Mapping[str, str] = field(default_factory=dict)
    settings: Settings | None = None
    model: Mapping[str, object] = field(default_factory=dict)
    hardware: Mapping[str, object] = field(default_factory=dict)

    def candidates(self, parameter: Parameter) -> Iterable[tuple[Origin, object, str]]:
        """Origin, raw value and a name for messages, best first."""
        named: tuple[tuple[Origin, Mapping[str, object], str], ...] = (
            (Origin.CLI, self.cli, f"--{parameter.name}"),
            (Origin.PROFILE, self.profile, f"the profile's {parameter.name}"),
        )
        for origin, values, where in named:
            if values.get(parameter.name) is not None:
                yield origin, values[parameter.name], where
        if parameter.environment and self.environ.get(parameter.environment):
            yield Origin.ENVIRONMENT, self.environ[parameter.environment], parameter.environment
        if (configured := self._configured(parameter.config_key)) is not None:
            yield Origin.CONFIG, configured, f"config.toml's {parameter.config_key}"
        if self.model.get(parameter.name) is not None:
            yield Origin.MODEL, self.model[parameter.name], f"the model's {parameter.name}"
        if self.hardware.get(parameter.name) is not None:
            yield Origin.HARDWARE, self.hardware[parameter.name], parameter.name

    def _configured(self, key: str) -> object:
        if self.settings is None:
            return None
        try:
            return self.settings.get(key) if self.settings.origin(key) == Origin.CONFIG else None
        except KeyError:
            return None


def resolve(parameters: Iterable[Parameter], sources: Sources) -> tuple[dict[str, Resolved], dict[str, str]]:
    """Give every parameter its value.

    Returns:
        Name -> value with origin, and name -> a sentence for each value that could not be read. A bad value does
        not fall through to the next source: what a user asked for is never silently replaced by something else.
    """
    values: dict[str, Resolved] = {}
    problems: dict[str, str] = {}
    for parameter in parameters:
        values[parameter.name] = Resolved(parameter.default, Origin.DEFAULT)
        for origin, raw, where in sources.candidates(parameter):
            try:
                values[parameter.name] = Resolved(parameter.read(raw), origin)
            except ValueError as error:
                values[parameter.name] = Resolved(None, origin)
                problems[parameter.name] = f"{where} {error}"
            break
    return values, problems
