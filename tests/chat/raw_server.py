"""A server that sends exactly the bytes that a test wants, cut where it wants them."""

import asyncio
import json


def sse(*chunks, done=True, end="\n\n"):
    """An event stream; chunks are documents or raw text."""
    events = [chunk if isinstance(chunk, str) else f"data: {json.dumps(chunk)}" for chunk in chunks]
    if done:
        events.append("data: [DONE]")
    return "".join(event + end for event in events).encode()


def delta(**fields):
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": None}]}


def finish(reason="stop"):
    return {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}


def usage(prompt, completion, **more):
    return {"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": completion, **more}}


def response(body, status="200 OK", content_type="text/event-stream", length=False):
    head = f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nConnection: close\r\n"
    if length:
        head += f"Content-Length: {len(body)}\r\n"
    return head.encode() + b"\r\n" + body


class RawServer:
    """Answers each request by the first rule whose path fits; keeps what it was asked."""

    def __init__(self):
        self.rules = {}
        self.requests = []
        self.disconnected = asyncio.Event()
        self.connected = asyncio.Event()
        self.cuts = ()
        self.pause = 0.0
        self.hold = False  # keep the connection open after the body

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.models("served")
        return self

    async def __aexit__(self, *_):
        self._server.close()

    def models(self, *names):
        body = json.dumps({"object": "list", "data": [{"id": name} for name in names]}).encode()
        self.rules["/v1/models"] = [response(body, content_type="application/json", length=True)]

    def chat(self, *answers):
        """Answers of /v1/chat/completions, one a request; the last one repeats."""
        self.rules["/v1/chat/completions"] = list(answers)

    def stream(self, *chunks, **options):
        self.chat(response(sse(*chunks, **options)))

    @property
    def bodies(self):
        return [json.loads(body) for path, _, body in self.requests if path.endswith("completions")]

    async def _serve(self, reader, writer):
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            path = head.split(" ")[1]
            headers = dict(line.split(": ", 1) for line in head.split("\r\n")[1:] if ": " in line)
            headers = {name.lower(): value for name, value in headers.items()}
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            self.requests.append((path, headers, body))
            answers = self.rules.get(
                path, [response(b"{}", "404 Not Found", "application/json", length=True)]
            )
            answer = answers.pop(0) if len(answers) > 1 else answers[0]
            await self._send(answer, writer)
            self.connected.set()
            if self.hold:
                await reader.read()
                self.disconnected.set()
        except (ConnectionError, asyncio.IncompleteReadError):
            self.disconnected.set()
        finally:
            writer.close()

    async def _send(self, answer, writer):
        start = 0
        for cut in (*sorted(self.cuts), len(answer)):
            writer.write(answer[start:cut])
            await writer.drain()
            start = cut
            if self.pause:
                await asyncio.sleep(self.pause)
