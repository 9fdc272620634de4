"""The cost of a streamed answer in a chat with 200 messages: processor share and key-to-paint time.

    python -m bench.chat_stream [--messages N] [--rate TOKENS_PER_S] [--seconds S] [--no-peer] [--json]

The real panel in a pseudo-terminal of 120x40 reads from a local server that sends one token at a time, while keys are
typed into the message field. In the same run, for comparison: the panel without a stream, a minimal Textual program
with one input (the floor of key to paint), and Textual's own Markdown widgets with the same history and stream.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from bench.terminal import Terminal, environment, program, spread

GOAL_CPU, GOAL_P95 = 20.0, 50.0
KEYS = 40
SAMPLE = """Two things make node 1 slower:

1. expert pages were **first touched** on node 0, so node 1 reads them over the inter-socket link;
2. the GPU hangs off node 0, which adds a copy, see `numa_maps`.

```python
def first_touch(pages: list[int]) -> int:
    return sum(page for page in pages if page % 2 == 0)
```

| node | memory | remote |
|:--|--:|--:|
| 0 | 402 GiB | 3.1 % |
| 1 | 233 GiB | 12 % |

To check, watch *remote* while the next prompt is prefilled.

"""


def tokens() -> list[str]:
    """The sample again and again, in pieces of about four characters."""
    text = SAMPLE * 40
    return [text[at : at + 4] for at in range(0, len(text), 4)]


class Handler(BaseHTTPRequestHandler):
    """Streams the sample to any chat request."""

    rate = 50.0

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        began = time.perf_counter()
        try:
            for number, token in enumerate(tokens()):
                chunk = {"choices": [{"index": 0, "delta": {"content": token}, "finish_reason": None}]}
                self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())
                self.wfile.flush()
                time.sleep(max(began + (number + 1) / self.rate - time.perf_counter(), 0))
            self.wfile.write(b"data: [DONE]\n\n")
        except OSError:
            return

    def do_GET(self) -> None:
        body = json.dumps({"object": "list", "data": [{"id": "bench", "object": "model"}]}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments: object) -> None:
        """Quiet."""


def panel(url: str, messages: int, *, stream: bool) -> None:
    """The real panel, its chat filled, maybe with a question on its way."""
    from kt_tui.chat import ChatOptions, Conversation, Endpoint, Message
    from kt_tui.services import ChatSession, build_services
    from kt_tui.ui.app import KtApp
    from kt_tui.ui.screens.chat import ChatScreen

    session = ChatSession(Endpoint(url), ChatOptions(), saved=False)
    app = KtApp(build_services(os.environ), chat_session=session)
    history = [
        Message(
            "user" if number % 2 == 0 else "assistant", f"message {number}" if number % 2 == 0 else SAMPLE
        )
        for number in range(messages)
    ]

    async def fill(_pilot: object) -> None:
        # A mode of its own: a screen on top of another is painted again whenever the other one is.
        screen = ChatScreen()
        app.add_mode("bench", lambda: screen)
        await app.switch_mode("bench")
        screen.controller.replace(Conversation(messages=history))
        if stream:
            screen.controller.submit("streamed-now")
        else:
            screen.notify("streamed-now")

    app.run(auto_pilot=fill)


def minimal() -> None:
    """The floor: one input and nothing else."""
    from textual.app import App, ComposeResult
    from textual.widgets import Input, Static

    class Minimal(App[None]):
        def compose(self) -> ComposeResult:
            yield Static("streamed-now")
            yield Input()

    Minimal().run()


def widgets(messages: int, rate: float) -> None:
    """The peer: one Markdown widget a message, Textual's own stream for the last."""
    from textual.app import App, ComposeResult
    from textual.containers import VerticalScroll
    from textual.widgets import Input, Markdown

    class Widgets(App[None]):
        AUTO_FOCUS = "Input"

        def compose(self) -> ComposeResult:
            with VerticalScroll() as scroll:
                scroll.can_focus = False
                for number in range(messages):
                    yield Markdown(f"message {number}" if number % 2 == 0 else SAMPLE)
                yield Markdown(id="answer")
            yield Input(placeholder="")

        def on_mount(self) -> None:
            self.query_one(VerticalScroll).anchor()
            self.call_after_refresh(lambda: self.run_worker(self.stream()))

        async def stream(self) -> None:
            answer = Markdown.get_stream(self.query_one("#answer", Markdown))
            self.query_one(Input).placeholder = "streamed-now"
            for token in tokens():
                await answer.write(token)
                await asyncio.sleep(1 / rate)

    Widgets().run()


def measure(command: list[str], home: str, seconds: float) -> dict[str, float]:
    """CPU percent of one core, key-to-paint in ms, resident memory in MiB."""
    terminal = Terminal(command, environment(home))
    try:
        terminal.wait_for("streamed-now", limit=90)
        terminal.run(2.0)
        before, began, written = terminal.cpu_seconds(), time.perf_counter(), len(terminal.output)
        terminal.run(seconds)
        elapsed = time.perf_counter() - began
        cpu = 100 * (terminal.cpu_seconds() - before) / elapsed
        rate = (len(terminal.output) - written) / elapsed / 1000
        p50, p95 = spread(terminal.key_to_paint(KEYS, 0.11))
        return {
            "cpu_percent": cpu,
            "kb_per_s": rate,
            "key_p50_ms": p50,
            "key_p95_ms": p95,
            "rss_mib": terminal.process.memory_info().rss / 2**20,
        }
    finally:
        terminal.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--messages", type=int, default=200)
    parser.add_argument("--rate", type=float, default=50.0)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--no-peer", action="store_true", help="leave Textual's Markdown widgets out")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--run", choices=("panel", "idle", "minimal", "widgets"), help=argparse.SUPPRESS)
    parser.add_argument("--url", default="", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    match arguments.run:
        case "panel" | "idle":
            panel(arguments.url, arguments.messages, stream=arguments.run == "panel")
            return
        case "minimal":
            minimal()
            return
        case "widgets":
            widgets(arguments.messages, arguments.rate)
            return
    Handler.rate = arguments.rate
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    names = {
        "panel": "kt-tui, streaming",
        "idle": "kt-tui, no stream",
        "minimal": "minimal Textual, no stream",
    }
    if not arguments.no_peer:
        names["widgets"] = "Textual Markdown, streaming"
    rows = {}
    for run, name in names.items():
        with tempfile.TemporaryDirectory() as home:
            options = [
                "--run",
                run,
                "--url",
                url,
                "--messages",
                str(arguments.messages),
                "--rate",
                str(arguments.rate),
            ]
            rows[name] = measure(program("bench.chat_stream", *options), home, arguments.seconds)
    server.shutdown()
    if arguments.json:
        print(json.dumps({"programs": rows, "messages": arguments.messages, "tokens_per_s": arguments.rate}))
        return
    print(f"{arguments.messages} messages of history, {arguments.rate:g} tokens/s, terminal 120x40")
    print(f"{'':<28}{'CPU':>8}{'output':>12}{'key p50':>10}{'key p95':>10}{'memory':>10}")
    floor = rows[names["minimal"]]["key_p50_ms"]
    for name, row in rows.items():
        print(
            f"{name:<28}{row['cpu_percent']:>6.1f} %{row['kb_per_s']:>7.1f} KB/s{row['key_p50_ms']:>7.0f} ms"
            f"{row['key_p95_ms']:>7.0f} ms{row['rss_mib']:>6.0f} MiB   {row['key_p50_ms'] / floor:.1f} x the floor"
        )
    print(f"goals: at most {GOAL_CPU:.0f} % of a core while streaming, key p95 at most {GOAL_P95:.0f} ms")


if __name__ == "__main__":
    main()
