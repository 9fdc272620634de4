"""The panel's end of the connection to a keeper."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import kt_tui
from kt_tui.supervise.types import EngineError

_LINE_LIMIT = 4 << 20
_START_PATIENCE = 30.0


class KeeperLink:
    """A connection to one keeper: events in, orders out."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        process: subprocess.Popen[bytes] | None = None,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._process = process

    async def receive(self) -> dict[str, Any] | None:
        """The next event; None once the keeper has gone."""
        while True:
            try:
                line = await self._reader.readline()
            except (OSError, ValueError):
                return None
            if not line:
                return None
            with contextlib.suppress(ValueError):
                event = json.loads(line)
                if isinstance(event, dict):
                    return event

    async def send(self, order: Mapping[str, Any]) -> None:
        """Send one order; a keeper that has gone does not get it."""
        with contextlib.suppress(OSError):
            self._writer.write(json.dumps(order).encode() + b"\n")
            await self._writer.drain()

    async def close(self, *, goes_on: bool = False) -> None:
        """Let go of the keeper; ``goes_on`` if it is not expected to end now."""
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()
        if self._process is not None:
            await asyncio.to_thread(_collect, self._process, 0.0 if goes_on else 0.5)


def _collect(process: subprocess.Popen[bytes], patience: float) -> None:
    try:
        process.wait(timeout=patience)
    except subprocess.TimeoutExpired:
        # It goes on: for a kept engine, or until the tree is gone. Its parent will be init.
        process.returncode = 0


def _spawn(theirs: socket.socket, errors: Path) -> subprocess.Popen[bytes]:
    environment = dict(os.environ)
    # Found also when the package is run from a folder without being installed; -P keeps the folder itself out.
    root = str(Path(kt_tui.__file__).parent.parent)
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [root, environment.get("PYTHONPATH")]))
    with theirs, errors.open("wb") as error_file:
        errors.chmod(0o600)
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "kt_tui.supervise.keeper", str(theirs.fileno())],
            env=environment,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=error_file,
            pass_fds=(theirs.fileno(),),
            start_new_session=True,
        )


async def start_keeper(launch: Mapping[str, Any], errors: Path) -> tuple[KeeperLink, dict[str, Any]]:
    """Start a keeper with ``launch``; gives the link and its ``started`` event.

    Raises:
        EngineError: The keeper or the engine's program cannot be started.
    """
    ours, theirs = socket.socketpair()
    try:
        process = await asyncio.to_thread(_spawn, theirs, errors)
    except OSError as error:
        ours.close()
        where = f"{error.filename}: " if error.filename else ""
        raise EngineError(f"The engine cannot be started: {where}{error.strerror or error}.") from error
    reader, writer = await asyncio.open_unix_connection(sock=ours, limit=_LINE_LIMIT)
    link = KeeperLink(reader, writer, process)
    try:
        await link.send(launch)
        event = await asyncio.wait_for(link.receive(), _START_PATIENCE)
    except TimeoutError:
        event = None
    except asyncio.CancelledError:
        # Nobody waits for this engine any more; without a connection its keeper ends it.
        writer.close()
        raise
    if event is not None and event.get("event") == "started":
        return link, event
    await link.close()
    raise EngineError(_refusal(event, launch, errors))


def _refusal(event: Mapping[str, Any] | None, launch: Mapping[str, Any], errors: Path) -> str:
    if event is None:
        with contextlib.suppress(OSError, IndexError):
            last = errors.read_text(errors="replace").strip().splitlines()[-1]
            return f"The process that watches over an engine could not be started: {last}"
        return "The process that watches over an engine could not be started; try again."
    if event.get("kind") == "busy":
        return (
            f"Another kt-tui is starting an engine on port {launch['port']}; stop it or choose another port."
        )
    where = f"{event['file']}: " if event.get("file") else ""
    return f"The engine cannot be started: {where}{event.get('reason')}."


async def connect_keeper(folder: Path, name: str) -> tuple[KeeperLink, dict[str, Any]] | None:
    """Connect to the running keeper of ``name``; None if it does not answer."""
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        # A socket's path may have 107 bytes only; through the folder's handle it always fits.
        opening = asyncio.open_unix_connection(f"/proc/self/fd/{handle}/{name}.sock", limit=_LINE_LIMIT)
        reader, writer = await asyncio.wait_for(opening, 5.0)
    except (OSError, TimeoutError):
        return None
    finally:
        os.close(handle)
    link = KeeperLink(reader, writer)
    try:
        event = await asyncio.wait_for(link.receive(), 5.0)
    except TimeoutError:
        event = None
    if event is None or event.get("event") != "started":
        await link.close()
        return None
    return link, event
