"""``kt-tui chat``: talk to any OpenAI-compatible server; full screen, line by line, or one message."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kt_tui.errors import KtError, UsageError

if TYPE_CHECKING:
    from kt_tui.chat import Endpoint
    from kt_tui.chat.session import Session
    from kt_tui.config import Config
    from kt_tui.paths import Paths
    from kt_tui.services import ChatSession

KEY_VARIABLES = ("KT_TUI_API_KEY", "KT_ENGINE_API_KEY")
_PROMPT_LIMIT = 16 << 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.epilog = f"An API key is taken from {KEY_VARIABLES[0]}, so that no process list shows it."
    add = parser.add_argument
    add("-H", "--host", help="host or URL of the server (default: server.host, or where an engine runs)")
    add(
        "-p",
        "--port",
        type=_port,
        help="port of the server (default: server.port, or the running engine's)",
    )
    add("-m", "--model", default="", help="id of the model (default: the first that the server lists)")
    add("-t", "--temperature", type=_temperature, help="randomness, 0 to 2 (default: chat.temperature)")
    add(
        "--max-tokens",
        type=_positive,
        metavar="N",
        help="longest answer in tokens (default: chat.max_tokens)",
    )
    add("-s", "--system", help="system prompt (default: chat.system)")
    add("--once", metavar="TEXT", help="send this one message, print the answer (- reads standard input)")
    add(
        "--prompt-file",
        type=Path,
        metavar="FILE",
        help="send the file's text as one message, before that of --once",
    )
    add("--json", action="store_true", help="with --once or --prompt-file: the answer as one JSON document")
    add("--no-stream", action="store_true", help="get the answer in one piece")
    add("--no-save-history", action="store_true", help="leave this conversation out of the history")
    add(
        "--wait",
        type=_seconds,
        default=0.0,
        metavar="SECONDS",
        help="wait that long for a model that is loading",
    )


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is no port (1 to 65535)")
    return int(text)


def _positive(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number above 0")
    return int(text)


def _between(text: str, low: float, high: float) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not low <= value <= high:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from {low:g} to {high:g}")
    return value


def _temperature(text: str) -> float:
    return _between(text, 0.0, 2.0)


def _seconds(text: str) -> float:
    return _between(text, 0.0, 86400.0)


def run(arguments: argparse.Namespace) -> int:
    """Chat; 1 if an answer that was asked for by --once or --prompt-file failed."""
    from kt_tui.config import load_config
    from kt_tui.paths import user_paths

    paths = user_paths(os.environ)
    config = load_config(paths, os.environ)
    message = _message(arguments)
    if arguments.json and message is None:
        raise UsageError("--json needs --once TEXT or --prompt-file FILE.")
    if isinstance(sys.stdout.errors, str):
        sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    endpoint = _endpoint(arguments, paths, config)
    terminal = sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    asked = _asked(arguments, config, endpoint)
    if message is None and terminal:
        from kt_tui.ui.launcher import open_chat

        return open_chat(asked)
    from kt_tui.chat.session import Session

    session = Session(
        asked.endpoint, asked.options, asked.system, paths.chats if asked.saved else None, _warn
    )
    try:
        if message is not None:
            return _once(session, message, as_json=arguments.json)
        from kt_tui.cli.chat_lines import chat_by_lines

        return chat_by_lines(session)
    finally:
        session.close()


def _message(arguments: argparse.Namespace) -> str | None:
    """The one message to send; None for a conversation."""
    parts = []
    if arguments.prompt_file is not None:
        try:
            if arguments.prompt_file.stat().st_size > _PROMPT_LIMIT:
                raise KtError(
                    f"{arguments.prompt_file} is larger than {_PROMPT_LIMIT >> 20} MiB; send a part of it."
                )
            parts.append(arguments.prompt_file.read_text("utf-8", errors="replace"))
        except OSError as error:
            raise KtError(f"{arguments.prompt_file} cannot be read: {error.strerror}.") from error
    if arguments.once is not None:
        parts.append(sys.stdin.read(_PROMPT_LIMIT) if arguments.once == "-" else arguments.once)
    if not parts:
        return None
    text = "\n\n".join(part.strip("\n") for part in parts)
    if not text.strip():
        raise UsageError("There is no text to send.")
    return text


def _endpoint(arguments: argparse.Namespace, paths: Paths, config: Config) -> Endpoint:
    from kt_tui.chat import Endpoint
    from kt_tui.net import client_url

    key = next((os.environ[name] for name in KEY_VARIABLES if os.environ.get(name)), None)
    if arguments.host and "://" in arguments.host:
        if arguments.port is not None:
            raise UsageError("Give either a URL as --host, or --host and --port.")
        return Endpoint(arguments.host, key, arguments.model)
    host, port = str(config.get("server.host")), _as_port(config.get("server.port"))
    if arguments.host is None and arguments.port is None:
        host, port = _running(paths, host, port)
    return Endpoint(client_url(arguments.host or host, arguments.port or port), key, arguments.model)


def _as_port(value: object) -> int:
    return value if isinstance(value, int) else 30000


def _running(paths: Paths, host: str, port: int) -> tuple[str, int]:
    """Where to look without an address: the configured one, unless only another engine of ours runs."""
    from kt_tui.supervise import running_engines

    engines = running_engines(paths)
    if engines and all(engine.port != port for engine in engines):
        return engines[0].host, engines[0].port
    return host, port


def _asked(arguments: argparse.Namespace, config: Config, endpoint: Endpoint) -> ChatSession:
    from kt_tui.chat import ChatOptions
    from kt_tui.services import ChatSession

    def chosen(value: Any, key: str) -> Any:
        return config.get(key) if value is None else value

    options = ChatOptions(
        temperature=chosen(arguments.temperature, "chat.temperature"),
        max_tokens=chosen(arguments.max_tokens, "chat.max_tokens"),
        stream=not arguments.no_stream,
        wait_s=arguments.wait,
    )
    system = str(chosen(arguments.system, "chat.system") or "")
    return ChatSession(endpoint, options, system, saved=not arguments.no_save_history)


def _warn(text: str) -> None:
    from kt_tui.text import one_line

    print(f"kt-tui: {one_line(text, 1000)}", file=sys.stderr, flush=True)


@dataclass
class _Printed:
    """What has been written of an answer that is printed as it comes."""

    any: bool = False
    last: str = ""


def _once(session: Session, message: str, *, as_json: bool) -> int:
    from kt_tui.chat import ContentDelta, Status
    from kt_tui.chat.events import ChatEvent
    from kt_tui.cli.chat_lines import metrics_line
    from kt_tui.text import clean_text

    printed = _Printed()
    terminal = sys.stdout.isatty()

    def on_event(event: ChatEvent) -> None:
        if isinstance(event, ContentDelta) and not as_json:
            # A file or pipe gets the text as it is; a terminal must not be steered by it.
            sys.stdout.write(clean_text(event.text) if terminal else event.text)
            sys.stdout.flush()
            printed.any, printed.last = True, event.text[-1:] or printed.last

    answer = asyncio.run(session.ask(message, on_event))
    good = answer.status is Status.COMPLETE
    if as_json:
        print(json.dumps(session.document(answer)))
        return 0 if good else 1
    if printed.any and printed.last != "\n":
        print()
    if not good:
        _warn(answer.note if answer.status is Status.FAILED else "stopped; the answer is not complete")
        return 1
    if answer.note:
        _warn(answer.note)
    if sys.stderr.isatty():
        print(metrics_line(answer), file=sys.stderr)
    return 0
