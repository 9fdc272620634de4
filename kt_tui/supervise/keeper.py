"""The keeper: a small process that owns one engine, ``python -P -m kt_tui.supervise.keeper FD``.

It stands between a panel and an engine so that neither the panel's death nor the engine's leaves anything behind:

- The engine lives as long as a panel holds a connection to the keeper, or the user chose to keep it. When the last
  connection closes (the kernel closes it even if a panel is killed with SIGKILL), the tree is ended.
- The keeper is the subreaper of all descendants, so that none can slip out of the tree; and the engine dies with the
  keeper by the parent-death signal.
- Output goes through a pty into a bounded log, so that it survives a panel.

Protocol: JSON lines. The first line on FD is the launch; then panels (on FD or on the socket next to the state file)
send ``{"op": "stop", "grace": S}`` and ``{"op": "keep", "value": true}`` and receive events ``started refused kept
exit gone``. Secrets come in the launch message and go to the engine's environment; no file ever holds one.

Standard library only, one thread.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import selectors
import signal
import socket
import struct
import subprocess
import sys
import time
from typing import Any

from kt_tui import processes
from kt_tui.supervise import child, evidence
from kt_tui.supervise.channel import Connection, read_launch
from kt_tui.supervise.logfile import BoundedLog

_TICK = 0.05  # seconds between looks at a tree that is being ended
_LEFTOVER_GRACE = 2.0  # seconds that descendants get after the engine itself has ended
_KILL_PATIENCE = 10.0  # seconds after SIGKILL before survivors are reported (uninterruptible waits)


class Keeper:
    """The keeper's whole state; `run` is its life."""

    def __init__(self, launch: dict[str, Any], owner: Connection) -> None:
        self.launch = launch
        self.connections = [owner]
        self.selector = selectors.DefaultSelector()
        self.kept = False
        self.engine: subprocess.Popen[bytes] | None = None
        self.started_ticks = 0
        self.started_at = time.time()
        self.exit_code: int | None = None
        self.term_at: float | None = None  # when SIGTERM was sent
        self.kill_at: float | None = None  # when SIGKILL is due
        self.killing_since: float | None = None
        self.asked_at: float | None = None  # when a stop was asked for
        self.peak_rss = 0
        folder = launch["folder"]
        os.makedirs(folder, mode=0o700, exist_ok=True)  # noqa: PTH103 - no pathlib in the keeper
        self.base = os.path.join(folder, launch["name"])  # noqa: PTH118
        self.folder_handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    # -- start ---------------------------------------------------------------------------------------------------

    def lock(self) -> bool:
        """Become the one keeper of this name; held until this process ends."""
        self.lock_handle = os.open(f"{self.base}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self.lock_handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def start(self) -> None:
        """Start the engine and listen; raises OSError if the program cannot be started."""
        child.become_subreaper()
        self.oom_before = evidence.oom_kills()
        self.log = BoundedLog(self.launch["log_path"], self.launch["log_limit"])
        self.terminal, theirs = child.open_terminal()
        environment = dict(self.launch["env"])
        environment[child.MARK] = self.launch["launch_id"]
        try:
            self.engine = child.spawn(self.launch["argv"], environment, self.launch["cwd"], theirs)
        finally:
            os.close(theirs)
        stat = processes.read_stat(self.engine.pid)
        self.started_ticks = stat.started if stat else 0
        self._listen()
        self.write_record()
        self.selector.register(self.terminal, selectors.EVENT_READ, "terminal")
        for connection in self.connections:
            self.selector.register(connection.link, selectors.EVENT_READ, connection)
            connection.send(self.hello())

    def _listen(self) -> None:
        # Through the folder's handle: a socket's path may have 107 bytes only, a home folder's may be longer.
        path = f"/proc/self/fd/{self.folder_handle}/{self.launch['name']}.sock"
        with contextlib.suppress(OSError):
            os.unlink(path)  # noqa: PTH108 - ours by the lock
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        mask = os.umask(0o177)
        try:
            self.listener.bind(path)
        except OSError as error:  # which does not say where
            raise OSError(error.errno, error.strerror, f"{self.base}.sock") from error
        finally:
            os.umask(mask)
        self.listener.listen(8)
        self.listener.setblocking(False)
        self.selector.register(self.listener, selectors.EVENT_READ, "listener")

    def hello(self) -> dict[str, Any]:
        """What a panel needs to know first. The key goes over the private socket only."""
        return {"event": "started", **self.record(), "api_key": self.launch.get("api_key")}

    def record(self) -> dict[str, Any]:
        """The state file's content; no secrets."""
        me = processes.read_stat(os.getpid())
        launch = self.launch
        return {
            "pid": self.engine.pid if self.engine else 0,
            "started_ticks": self.started_ticks,
            "session": self.engine.pid if self.engine else 0,
            "keeper_pid": os.getpid(),
            "keeper_started_ticks": me.started if me else 0,
            "owner_pid": launch["owner_pid"],
            "launch_id": launch["launch_id"],
            "host": launch["host"],
            "port": launch["port"],
            "model": launch["model"],
            "engine": launch["engine"],
            "argv": launch["public_argv"],
            "log_path": launch["log_path"],
            "kept": self.kept,
            "started_at": self.started_at,
            "exit_code": self.exit_code,
        }

    def write_record(self) -> None:
        """Write the state file atomically, readable by its user only."""
        temporary = f"{self.base}.json.new"
        try:
            handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(self.record(), file, indent=1)
                file.write("\n")
            os.replace(temporary, f"{self.base}.json")  # noqa: PTH105
        except OSError as error:
            # Without a state file the engine still runs and is still ended with its panel; it cannot be found again.
            print(f"the state file cannot be written: {error}", file=sys.stderr, flush=True)  # noqa: T201

    # -- life ----------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Serve until the whole tree is gone or has been reported as unkillable."""
        wake, waker = socket.socketpair()
        for end in (wake, waker):
            end.setblocking(False)
        signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
        # Handlers rather than SIG_IGN, which the engine would inherit.
        for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: self.ask_stop(self.launch["orphan_grace"]))
        self.selector.register(wake, selectors.EVENT_READ, "wake")
        while not self.finished():
            for key, _ in self.selector.select(self._timeout()):
                if key.data == "terminal":
                    self.read_terminal()
                elif key.data == "listener":
                    self.accept()
                elif key.data == "wake":
                    with contextlib.suppress(OSError):
                        wake.recv(4096)
                else:
                    self.serve(key.data)
            self.reap()
            if not self.connections and not self.kept and self.exit_code is None and self.asked_at is None:
                self.ask_stop(self.launch["orphan_grace"])

    def _timeout(self) -> float | None:
        # Children that die are told by SIGCHLD; a tree that is being ended is looked at often.
        ending = self.term_at is not None or self.exit_code is not None
        return _TICK if ending else None

    def read_terminal(self) -> bool:
        """Move output from the pty to the log; False when there is none (now, or ever again)."""
        if self.terminal < 0:
            return False
        try:
            data = os.read(self.terminal, 1 << 16)
        except BlockingIOError:
            return False
        except OSError:  # EIO: no process has the other end any more
            data = b""
        if not data:
            self.selector.unregister(self.terminal)
            os.close(self.terminal)
            self.terminal = -1
            return False
        self.log.write(data)
        return True

    def accept(self) -> None:
        """Take in another panel, if it is the same user's."""
        with contextlib.suppress(OSError):
            link, _ = self.listener.accept()
            credentials = link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
            if struct.unpack("3i", credentials)[1] != os.getuid():
                link.close()
                return
            connection = Connection(link)
            self.connections.append(connection)
            self.selector.register(link, selectors.EVENT_READ, connection)
            connection.send(self.hello())

    def serve(self, connection: Connection) -> None:
        """Handle what a panel sent, or its end."""
        messages = connection.receive()
        if messages is None:
            self.selector.unregister(connection.link)
            connection.link.close()
            self.connections.remove(connection)
            return
        for message in messages:
            if message.get("op") == "stop":
                grace = message.get("grace")
                self.ask_stop(float(grace) if isinstance(grace, int | float) else 10.0)
            elif message.get("op") == "keep":
                self.kept = message.get("value") is True
                self.write_record()
                self.tell({"event": "kept", "value": self.kept})

    def tell(self, event: dict[str, Any]) -> None:
        """Send an event to all panels."""
        for connection in self.connections:
            connection.send(event)

    # -- end -----------------------------------------------------------------------------------------------------

    def ask_stop(self, grace: float) -> None:
        """Begin to end the tree; asked again, the shorter grace counts."""
        now = time.monotonic()
        due = now + max(grace, 0.0)
        if self.asked_at is None:
            self.asked_at = now
        if self.term_at is None and self.engine is not None and self.exit_code is None:
            self.term_at = now
            self._signal_engine(signal.SIGTERM)
        self.kill_at = due if self.kill_at is None else min(self.kill_at, due)

    def _signal_engine(self, number: int) -> None:
        # Our own child and not yet reaped, so its pid cannot belong to anyone else.
        if self.engine is not None and self.exit_code is None:
            with contextlib.suppress(OSError):
                os.kill(self.engine.pid, number)

    def reap(self) -> None:
        """Collect dead children; notice the engine's own end."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if self.engine is not None and pid == self.engine.pid:
                self.exit_code = self.engine.returncode = os.waitstatus_to_exitcode(status)
                self.peak_rss = usage.ru_maxrss * 1024
                self._engine_ended()

    def _engine_ended(self) -> None:
        for _ in range(256):  # what the engine wrote last; bounded, because descendants may go on writing
            if not self.read_terminal():
                break
        now = time.monotonic()
        if self.asked_at is None or self.kill_at is None:
            self.kill_at = now + _LEFTOVER_GRACE
        else:
            self.kill_at = min(self.kill_at, now + _LEFTOVER_GRACE)
        for stat in processes.descendants(os.getpid()):
            processes.send_signal(stat, signal.SIGTERM)
        self.write_record()
        self.tell(
            {
                "event": "exit",
                "exit_code": self.exit_code,
                "asked": self.asked_at is not None,
                "oom": evidence.increases(self.oom_before, evidence.oom_kills()),
                "peak_rss": self.peak_rss,
                "lost_bytes": self.log.lost_bytes,
            }
        )

    def finished(self) -> bool:
        """Carry the ending on; True once nothing is left to do."""
        if self.term_at is None and self.exit_code is None:
            return False
        now = time.monotonic()
        left = processes.descendants(os.getpid())
        if left and self.kill_at is not None and now >= self.kill_at:
            if self.killing_since is None:
                self.killing_since = now
            for stat in left:
                processes.send_signal(stat, signal.SIGKILL)
        given_up = self.killing_since is not None and now - self.killing_since > _KILL_PATIENCE
        if (left or self.exit_code is None) and not given_up:
            return False
        self._report_gone(left)
        return True

    def _report_gone(self, left: list[processes.Stat]) -> None:
        while self.read_terminal():
            pass
        self.log.close()
        began = self.asked_at if self.asked_at is not None else time.monotonic()
        self.tell(
            {
                "event": "gone",
                "survivors": [[stat.pid, stat.name] for stat in left],
                "seconds": time.monotonic() - began,
            }
        )
        with contextlib.suppress(OSError):
            os.unlink(f"{self.base}.sock")  # noqa: PTH108
        if self.connections or self.asked_at is not None:
            # Somebody knows the end. Otherwise the state file tells the next panel how a kept engine ended.
            with contextlib.suppress(OSError):
                os.unlink(f"{self.base}.json")  # noqa: PTH108


def main(handle: int) -> int:
    """Run a keeper for the launch that arrives on the inherited socket ``handle``."""
    link = socket.socket(fileno=handle)
    link.set_inheritable(False)
    launch = read_launch(link)
    if launch is None:
        return 1
    owner = Connection(link)
    try:
        keeper = Keeper(launch, owner)
        if not keeper.lock():
            owner.send({"event": "refused", "kind": "busy"})
            return 1
        keeper.start()
    except OSError as error:
        owner.send(
            {
                "event": "refused",
                "kind": "start",
                "reason": error.strerror or str(error),
                "file": error.filename,
            }
        )
        return 1
    keeper.run()
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
