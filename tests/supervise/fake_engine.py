"""A small stand-in for an engine: the same process protocol, told by options what to do wrong.

python fake_engine.py --port P [--steps N] [--delay S] [--ignore-term] [--spawn N] [--flood LINES] [--fail TEXT]
                      [--noise BYTES]
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

parser = argparse.ArgumentParser()
parser.add_argument("--port", type=int, required=True)
parser.add_argument("--steps", type=int, default=3)
parser.add_argument("--delay", type=float, default=0.05)
parser.add_argument("--ignore-term", action="store_true")
parser.add_argument("--spawn", type=int, default=0)
parser.add_argument("--flood", type=int, default=0)
parser.add_argument("--fail", default="")
parser.add_argument("--die-when-ready", action="store_true")
options = parser.parse_args()

state = {"phase": "start", "progress": 0.0, "ready": False}


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        if self.path == "/key":
            self.answer(200, {"key": os.environ.get("KT_ENGINE_API_KEY"), "argv": sys.argv})
        elif self.path == "/stdin":
            self.answer(200, {"stdin": sys.stdin.read(), "sid": os.getsid(0)})
        elif state["ready"]:
            self.answer(200, {"status": "ok", "model": "fake"})
        else:
            self.answer(503, {"phase": state["phase"], "progress": state["progress"], "detail": "step"})

    def answer(self, status, document):
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


if options.ignore_term:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)

for number in range(options.spawn):
    # Grandchildren in sessions of their own, with the environment emptied for the odd ones, deaf to SIGTERM.
    subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(300)",
        ],
        start_new_session=True,
        env={} if number % 2 else None,
    )

server = ThreadingHTTPServer(("127.0.0.1", options.port), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
for step in range(options.steps):
    state.update(phase="weights", progress=(step + 1) / options.steps)
    print(f'kt-engine phase=weights progress={state["progress"]:.2f} detail="step {step}"')
    sys.stdout.write(f"\rloading {step}")
    time.sleep(options.delay)
print("\x1b[32m done\x1b[0m")
if options.fail:
    print(f"kt-engine error: {options.fail}", flush=True)
    sys.exit(3)
state["ready"] = True
for line in range(options.flood):
    print(f"line {line} " + "x" * 60)
if options.die_when_ready:
    time.sleep(0.3)
    os.kill(os.getpid(), signal.SIGKILL)
while True:
    time.sleep(1)
