"""Addresses: what a server binds to is not always what a client connects to; and whether a port is free."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import socket
from dataclasses import dataclass
from pathlib import Path

from kt_tui import processes


def client_host(host: str) -> str:
    """The host that a client on this machine uses for a server bound to ``host`` (``0.0.0.0`` -> loopback)."""
    bare = host.strip().strip("[]")
    if bare in {"", "*", "0.0.0.0"}:  # noqa: S104 - recognised, never bound
        return "127.0.0.1"
    return "::1" if bare == "::" else bare


def client_url(host: str, port: int) -> str:
    """``http://HOST:PORT`` for a client on this machine, IPv6 in brackets.

    A zone (``fe80::1%eth0``) stays as it is: RFC 6874 would write ``%25``, which HTTP clients do not understand.
    """
    name = client_host(host)
    return f"http://[{name}]:{port}" if ":" in name else f"http://{name}:{port}"


def is_loopback(host: str) -> bool:
    """Whether a server bound to ``host`` (or a URL with that host) is reachable from this machine only."""
    bare = host.strip().strip("[]").split("%")[0]
    if bare.lower() == "localhost" or bare.lower().endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(bare).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True)
class PortOwner:
    """A process that listens on a port."""

    pid: int
    command: str


def bind_problem(host: str, port: int) -> str | None:
    """Why a server cannot listen on ``host:port`` now, in words, or None if it can."""
    if not 1 <= port <= 65535:
        return f"{port} is not a port: choose one from 1024 to 65535"
    bare = host.strip().strip("[]") or "0.0.0.0"  # noqa: S104 - what a server would do with an empty host
    try:
        found = socket.getaddrinfo(bare, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        return f"the host {host!r} has no address here ({error.strerror or error}); 127.0.0.1 is this machine"
    family, kind, protocol, _, address = found[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
            # Two sockets may be bound with SO_REUSEADDR, but only one may listen.
            probe.listen(1)
        except OSError as error:
            return _bind_sentence(error, host, port)
    return None


def _bind_sentence(error: OSError, host: str, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        owner = port_owner(port)
        by = f" by process {owner.pid} ({owner.command[:80]})" if owner else ""
        free = free_port(host, port + 1)
        way = f"; port {free} is free" if free else ""
        return f"port {port} is in use{by}{way}"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"{host} is not an address of this machine; use 127.0.0.1, or 0.0.0.0 for all its networks"
    if error.errno == errno.EACCES:
        return f"port {port} is reserved for the administrator; choose one above 1023"
    return f"{host}:{port} cannot be used ({error.strerror or error})"


def free_port(host: str, first: int, tries: int = 50) -> int | None:
    """The first port from ``first`` on that a server could listen on, or None."""
    bare = host.strip().strip("[]") or "127.0.0.1"
    family = socket.AF_INET6 if ":" in bare else socket.AF_INET
    for port in range(first, min(first + tries, 65536)):
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((bare, port))
                probe.listen(1)
            except OSError:
                continue
            return port
    return None


def is_listening(host: str, port: int, timeout: float = 0.5) -> bool:
    """Whether something accepts connections at ``host:port``."""
    try:
        with socket.create_connection((client_host(host), port), timeout=timeout):
            return True
    except OSError:
        return False


def port_owner(port: int) -> PortOwner | None:
    """The process that listens on TCP ``port``, if this user may see it (``/proc/net/tcp``, proc(5))."""
    inodes = _listening_inodes(port)
    if not inodes:
        return None
    targets = {f"socket:[{inode}]" for inode in inodes}
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            for handle in (process / "fd").iterdir():
                with contextlib.suppress(OSError):
                    if str(handle.readlink()) in targets:
                        pid = int(process.name)
                        return PortOwner(pid, processes.command_line(pid))
    return None


def _listening_inodes(port: int) -> set[str]:
    listening = "0A"
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if len(fields) > 9 and fields[3] == listening and int(fields[1].rsplit(":", 1)[1], 16) == port:
                found.add(fields[9])
    return found
