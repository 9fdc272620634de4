"""The launch parameters: one table that the command line, forms, files and commands are made from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

Value = int | str


class Kind(StrEnum):
    """What a parameter's value is."""

    INTEGER = "integer"
    TEXT = "text"
    CHOICE = "choice"
    PATH = "path"
    SECRET = "secret"  # noqa: S105 (a kind, not a password)


class Group(StrEnum):
    """Where a parameter belongs in a form."""

    MODEL = "Model"
    COMPUTE = "Compute"
    MEMORY = "Memory"
    SERVER = "Server"


@dataclass(frozen=True)
class Parameter:
    """One launch parameter.

    Attributes:
        name: Long option without dashes; also its key in profiles, ``launch.NAME`` and JSON documents.
        kind: What its value is.
        help: One line, without a full stop.
        group: Where it belongs in a form.
        flags: Engine -> the flag that carries it; an engine that is absent does not know the parameter.
        short: One-letter option, with its dash.
        aliases: Other long options for the same, with their dashes.
        unit: Unit of a number, for people.
        minimum: Smallest integer.
        maximum: Largest integer.
        choices: Allowed words.
        default: Value that the engine takes by itself; None if it is worked out.
        environment: Variable of this process that sets it.
        config: Key in ``config.toml``; None means ``launch.NAME``.
        advanced: Left out of a short form.
    """

    name: str
    kind: Kind
    help: str
    group: Group
    flags: Mapping[str, str] = field(default_factory=dict)
    short: str | None = None
    aliases: tuple[str, ...] = ()
    unit: str | None = None
    minimum: int | None = None
    maximum: int | None = None
    choices: tuple[str, ...] = ()
    default: Value | None = None
    environment: str | None = None
    config: str | None = None
    advanced: bool = False

    @property
    def config_key(self) -> str:
        """Its key in ``config.toml``."""
        return self.config or f"launch.{self.name}"

    @property
    def is_secret(self) -> bool:
        """Whether its value must never be shown, logged or put on a command line."""
        return self.kind is Kind.SECRET

    def read(self, value: object) -> Value:
        """The value that a text, or a value of a TOML file, stands for. Ranges are checked elsewhere.

        Raises:
            ValueError: It is none; the message says what is needed and does not quote secrets.
        """
        if self.kind is Kind.INTEGER:
            return _integer(value)
        if not isinstance(value, str) or not value.strip():
            raise ValueError("needs text that is not empty")
        if not value.isprintable():
            raise ValueError("must not contain control characters")
        if self.kind is Kind.CHOICE and value not in self.choices:
            raise ValueError(f"must be one of {', '.join(self.choices)}, not {value[:60]!r}")
        if self.is_secret and (not value.isascii() or " " in value):
            raise ValueError("must be ASCII without spaces, because it travels in an HTTP header")
        return value

    def range_problem(self, value: Value) -> str | None:
        """Why a number is out of range, or None."""
        if not isinstance(value, int):
            return None
        if self.minimum is not None and value < self.minimum:
            return f"{self.name} is {value}; it must be at least {self.minimum}"
        if self.maximum is not None and value > self.maximum:
            return f"{self.name} is {value}; it must be at most {self.maximum}"
        return None


def _integer(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 62:
        return value
    if isinstance(value, str):
        text = value.strip().replace("_", "")
        if text.removeprefix("-").isdecimal() and text.isascii() and len(text) <= 18:
            return int(text)
    raise ValueError(f"needs a whole number, not {str(value)[:60]!r}")


EMBEDDED = "embedded"
SGLANG = "sglang"
ENGINES = (EMBEDDED, SGLANG)
MOST_TOKENS = 1 << 31


def _embedded(flag: str) -> Mapping[str, str]:
    return {EMBEDDED: flag}


SCHEMA: tuple[Parameter, ...] = (
    Parameter(
        "model-path",
        Kind.PATH,
        "checkpoint folder or GGUF file, in place of the model's own",
        Group.MODEL,
        _embedded("--model"),
        advanced=True,
    ),
    Parameter(
        "served-model-name",
        Kind.TEXT,
        "name under which clients ask for the model",
        Group.MODEL,
        _embedded("--served-model-name"),
    ),
    Parameter(
        "context-length",
        Kind.INTEGER,
        "tokens that one conversation may have",
        Group.MODEL,
        _embedded("--context-length"),
        unit="tokens",
        minimum=1,
        maximum=MOST_TOKENS,
    ),
    Parameter(
        "cpu-threads",
        Kind.INTEGER,
        "threads that compute; more than there are physical cores is slower",
        Group.COMPUTE,
        _embedded("--cpu-threads"),
        unit="threads",
        minimum=1,
        maximum=4096,
    ),
    Parameter(
        "cpu-numerics",
        Kind.CHOICE,
        "whether activations are rounded to int8 for GGUF weights (fast) or not (exact)",
        Group.COMPUTE,
        _embedded("--cpu-numerics"),
        choices=("auto", "exact", "fast"),
        default="auto",
        advanced=True,
    ),
    Parameter(
        "cpu-store",
        Kind.CHOICE,
        "what bf16 and FP8 weights become in memory: integers are smaller and faster, and less exact",
        Group.COMPUTE,
        _embedded("--cpu-store"),
        choices=("keep", "int8", "int8_g32", "int4", "int4_g32"),
        default="keep",
        advanced=True,
    ),
    Parameter(
        "device",
        Kind.CHOICE,
        "where attention runs",
        Group.COMPUTE,
        _embedded("--device"),
        choices=("auto", "cpu", "cuda"),
        default="auto",
        advanced=True,
    ),
    Parameter(
        "chunked-prefill-size",
        Kind.INTEGER,
        "prompt tokens computed in one step; larger is faster and takes more scratch memory",
        Group.COMPUTE,
        _embedded("--chunked-prefill-size"),
        unit="tokens",
        minimum=1,
        maximum=1 << 20,
        default=512,
    ),
    Parameter(
        "max-total-tokens",
        Kind.INTEGER,
        "tokens that the key-value cache holds for all conversations together",
        Group.MEMORY,
        _embedded("--max-total-tokens"),
        unit="tokens",
        minimum=64,
        maximum=MOST_TOKENS,
    ),
    Parameter(
        "max-running-requests",
        Kind.INTEGER,
        "requests that are computed at the same time",
        Group.MEMORY,
        _embedded("--max-running-requests"),
        unit="requests",
        minimum=1,
        maximum=1024,
        default=16,
    ),
    Parameter(
        "host",
        Kind.TEXT,
        "address that the server listens on; 127.0.0.1 keeps it on this machine",
        Group.SERVER,
        _embedded("--host"),
        short="-H",
        default="127.0.0.1",
        environment="KT_TUI_HOST",
        config="server.host",
    ),
    Parameter(
        "port",
        Kind.INTEGER,
        "TCP port that the server listens on",
        Group.SERVER,
        _embedded("--port"),
        short="-p",
        minimum=1,
        maximum=65535,
        default=30000,
        environment="KT_TUI_PORT",
        config="server.port",
    ),
    Parameter(
        "api-key",
        Kind.SECRET,
        "key that clients must send; better set as KT_ENGINE_API_KEY, so that no process list shows it",
        Group.SERVER,
        _embedded(""),
        environment="KT_ENGINE_API_KEY",
        advanced=True,
    ),
)

BY_NAME: Mapping[str, Parameter] = {parameter.name: parameter for parameter in SCHEMA}


def parameters_for(engine: str) -> tuple[Parameter, ...]:
    """The parameters that an engine knows."""
    return tuple(parameter for parameter in SCHEMA if engine in parameter.flags)
