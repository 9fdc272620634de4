"""Binds the server's port before anything is loaded, and says who holds it if that fails."""

from __future__ import annotations

import errno
import socket

from engine.errors import EngineError


def bind(host: str, port: int) -> socket.socket:
    """A listening socket.

    Args:
        host: An address or a name that resolves to one of this machine's.
        port: 0 takes any free port.

    Raises:
        EngineError: The port is taken, or the address is not this machine's.
    """
    host = host.strip("[]")
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family, backlog=128)
    except OSError as error:
        raise EngineError(_why(host, port, error)) from error


def _why(host: str, port: int, error: OSError) -> str:
    if isinstance(error, socket.gaierror):
        return f"--host {host} is no address that can be resolved ({error.strerror}); use 127.0.0.1."
    if error.errno == errno.EADDRINUSE:
        return f"Port {port} on {host} is in use{_holder(port)}; stop that program or choose another --port."
    if error.errno == errno.EADDRNOTAVAIL:
        return f"--host {host} is not an address of this machine; use 127.0.0.1."
    if error.errno == errno.EACCES:
        return f"Port {port} may only be opened by root; choose a --port of 1024 or more."
    return f"Port {port} on {host} cannot be opened ({error.strerror or error})."


def _holder(port: int) -> str:
    """`` by NAME (pid N)``, or nothing where that cannot be read (another user's process)."""
    import psutil

    try:
        for connection in psutil.net_connections("tcp"):
            local = connection.laddr
            if connection.status == psutil.CONN_LISTEN and local and local.port == port and connection.pid:
                name = psutil.Process(connection.pid).name()
                return f" by {''.join(c for c in name if c.isprintable())[:60]} (pid {connection.pid})"
    except (psutil.Error, OSError):
        pass
    return ""
