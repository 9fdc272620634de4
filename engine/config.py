"""What ``python -m engine serve`` was asked to do: parsed and validated, one message per bad field."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NoReturn, cast

API_KEY_VARIABLE = "KT_ENGINE_API_KEY"

Device = Literal["auto", "cpu", "cuda"]
Numerics = Literal["auto", "exact", "fast"]
Store = Literal["keep", "int8", "int8_g32", "int4", "int4_g32"]
LogLevel = Literal["debug", "info", "warning", "error"]

DEVICES: tuple[Device, ...] = ("auto", "cpu", "cuda")
NUMERICS: tuple[Numerics, ...] = ("auto", "exact", "fast")
STORES: tuple[Store, ...] = ("keep", "int8", "int8_g32", "int4", "int4_g32")
LOG_LEVELS: tuple[LogLevel, ...] = ("debug", "info", "warning", "error")


class ConfigError(Exception):
    """Wrong usage of the command line; ``problems`` holds one sentence for each bad field."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """All settings of one engine process.

    Attributes:
        model: A checkpoint directory (safetensors) or a GGUF file.
        host: Address that the HTTP server binds.
        port: TCP port; 0 takes any free one.
        cpu_threads: Threads of the kernel team; None means one per usable physical core.
        cpu_numerics: How integer weight formats (GGUF) are multiplied: ``fast`` rounds activations to int8, as
            llama.cpp does; ``exact`` does not; ``auto`` takes the format's default.
        cpu_store: What linear maps and experts in float formats (bf16, FP8) become when they are loaded: integers with
            one scale a row or (g32) one for 32 columns, which are smaller and less exact; ``keep`` leaves them.
        gpu_experts: Routed experts per layer kept on the GPU; None lets the engine decide.
        max_total_tokens: Tokens that the KV cache holds for all sequences together; None lets the engine decide.
        max_running_requests: Requests that take part in one step.
        max_queued_requests: Requests that may wait for a place; more are refused with status 429.
        chunked_prefill_size: Prompt tokens that one step computes at most.
        context_length: Tokens of one sequence, at most what the model was made for; None takes the model's.
        served_model_name: The id under which clients ask for the model; None takes the path's name.
        api_key: What clients must send as a bearer token; None asks for nothing. Never shown in a repr.
        device: Where attention and shared parts run.
        log_level: ``debug`` adds tracebacks.
    """

    model: Path
    host: str = "127.0.0.1"
    port: int = 30000
    cpu_threads: int | None = None
    cpu_numerics: Numerics = "auto"
    cpu_store: Store = "keep"
    gpu_experts: int | None = None
    max_total_tokens: int | None = None
    max_running_requests: int = 16
    max_queued_requests: int = 256
    chunked_prefill_size: int = 512
    context_length: int | None = None
    served_model_name: str | None = None
    api_key: str | None = field(default=None, repr=False)
    device: Device = "auto"
    log_level: LogLevel = "info"

    @property
    def model_name(self) -> str:
        """The id under which the model is served."""
        if self.served_model_name:
            return self.served_model_name
        name = self.model.resolve().name
        return name.removesuffix(".gguf") or "model"


@dataclass(frozen=True, slots=True)
class _Option:
    """One command-line option: the field it fills, how its text is read, what it says in the help."""

    field: str
    read: Callable[[str], object]
    help: str
    metavar: str = "N"

    @property
    def flag(self) -> str:
        return "--" + self.field.replace("_", "-")


def _integer(minimum: int, maximum: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise ValueError(f"needs a whole number, not {text!r}") from None
        if not minimum <= value <= maximum:
            raise ValueError(f"must be between {minimum} and {maximum}, not {value}")
        return value

    return read


def _choice(choices: tuple[str, ...]) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in choices:
            raise ValueError(f"must be one of {', '.join(choices)}, not {text!r}")
        return text

    return read


def _text(text: str) -> str:
    if not text.strip() or not text.isprintable():
        raise ValueError("must be printable text that is not empty")
    return text


def _api_key(text: str) -> str:
    # The value is a secret: no message may quote it.
    if not text.isascii() or not text.isprintable() or " " in text or not text:
        raise ValueError("must be printable ASCII without spaces, because it travels in an HTTP header")
    return text


_MOST_TOKENS = 1 << 31

OPTIONS: tuple[_Option, ...] = (
    _Option("host", _text, "address to bind (default 127.0.0.1: this machine only)", "ADDRESS"),
    _Option("port", _integer(0, 65535), "TCP port (default 30000; 0 takes a free one)"),
    _Option(
        "cpu_threads", _integer(1, 4096), "threads for the experts (default: one per usable physical core)"
    ),
    _Option(
        "cpu_numerics",
        _choice(NUMERICS),
        "auto, exact or fast: whether activations are rounded to int8 for GGUF weights (default auto)",
        "MODE",
    ),
    _Option(
        "cpu_store",
        _choice(STORES),
        f"{', '.join(STORES)}: what bf16 and FP8 weights become in memory (default keep)",
        "FORMAT",
    ),
    _Option("gpu_experts", _integer(0, 65536), "routed experts per layer to keep on the GPU"),
    _Option(
        "max_total_tokens",
        _integer(16, _MOST_TOKENS),
        "tokens that the KV cache holds, all requests together",
    ),
    _Option("max_running_requests", _integer(1, 1024), "requests computed at once (default 16)"),
    _Option("max_queued_requests", _integer(0, 65536), "requests that may wait (default 256)"),
    _Option("chunked_prefill_size", _integer(1, 1 << 20), "prompt tokens per step (default 512)"),
    _Option(
        "context_length", _integer(1, _MOST_TOKENS), "tokens per request (default: what the model allows)"
    ),
    _Option("served_model_name", _text, "the model's id for clients (default: the path's name)", "NAME"),
    _Option(
        "api_key", _api_key, f"bearer token that clients must send; better given as {API_KEY_VARIABLE}", "KEY"
    ),
    _Option("device", _choice(DEVICES), "auto, cpu or cuda (default auto)", "DEVICE"),
    _Option("log_level", _choice(LOG_LEVELS), "debug, info, warning or error (default info)", "LEVEL"),
)


class _Parser(argparse.ArgumentParser):
    """argparse, except that a usage error is raised for the caller to print."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError([message])


def parser() -> argparse.ArgumentParser:
    """The parser of ``python -m engine``. Values stay text here; :func:`parse_config` reads and checks them."""
    top = _Parser(prog="python -m engine", description="The embedded inference engine.", allow_abbrev=False)
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=_Parser)
    serve = commands.add_parser(
        "serve",
        help="load a model and serve it over HTTP",
        description="Load a model and serve it over HTTP.",
        allow_abbrev=False,
    )
    serve.add_argument(
        "--model", "--model-path", required=True, metavar="DIR_OR_GGUF", help="checkpoint to load"
    )
    for option in OPTIONS:
        serve.add_argument(option.flag, metavar=option.metavar, help=option.help)
    return top


def parse_config(argv: Sequence[str], environ: Mapping[str, str]) -> EngineConfig:
    """Read the arguments of ``python -m engine``.

    Args:
        argv: The arguments, beginning with the command ``serve``.
        environ: The process environment; ``KT_ENGINE_API_KEY`` gives the API key without showing it in a process list.

    Raises:
        ConfigError: With one sentence per bad field.
        SystemExit: With code 0, after ``--help``.
    """
    arguments = parser().parse_args(list(argv))
    values: dict[str, object] = {}
    problems: list[str] = []
    for option in OPTIONS:
        text = cast("str | None", getattr(arguments, option.field))
        source = option.flag
        if option.field == "api_key" and text is None:
            text, source = environ.get(API_KEY_VARIABLE) or None, API_KEY_VARIABLE
        if text is None:
            continue
        try:
            values[option.field] = option.read(text)
        except ValueError as error:
            problems.append(f"{source} {error}")
    if not str(arguments.model).strip():
        problems.append("--model must be the path of a checkpoint directory or a GGUF file, not empty")
    if problems:
        raise ConfigError(problems)
    return EngineConfig(model=Path(arguments.model), **values)  # type: ignore[arg-type]  # each was read by its option
