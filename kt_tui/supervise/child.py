"""Starting the engine process: own session, no input, a pty for its output, dies with its keeper.

Standard library only (used by the keeper).
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import pty
import signal
import struct
import subprocess
import termios

_PR_SET_PDEATHSIG = 1  # prctl(2)
_PR_SET_CHILD_SUBREAPER = 36
_COLUMNS, _ROWS = 160, 50

MARK = "KT_TUI_LAUNCH"
"""Environment variable that marks every process of one launch."""


def become_subreaper() -> None:
    """Have orphaned descendants become children of this process, so that none can slip out of its tree."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def open_terminal() -> tuple[int, int]:
    """A pty (our end, the engine's end) that passes output through unchanged (line ends too) and echoes nothing."""
    ours, theirs = pty.openpty()
    attributes = termios.tcgetattr(theirs)
    attributes[1] &= ~termios.OPOST
    attributes[3] &= ~(termios.ECHO | termios.ICANON | termios.ISIG)
    termios.tcsetattr(theirs, termios.TCSANOW, attributes)
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", _ROWS, _COLUMNS, 0, 0))
    os.set_blocking(ours, False)
    return ours, theirs


def spawn(
    argv: list[str], environment: dict[str, str], folder: str, terminal: int
) -> subprocess.Popen[bytes]:
    """Start ``argv``.

    Raises:
        OSError: The program is not there or cannot be executed.
    """
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    keeper = os.getpid()

    def in_child() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != keeper:  # it died before the line above took effect
            os._exit(1)

    return subprocess.Popen(
        argv,
        env=environment,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=terminal,
        stderr=terminal,
        start_new_session=True,
        preexec_fn=in_child,  # noqa: PLW1509 - the keeper has a single thread, so nothing can be locked in the child
    )
