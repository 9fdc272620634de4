"""The terminal outlives the panel: a small parent process waits for it and cleans up what it could not.

A full-screen program that ends by SIGKILL leaves the terminal on its alternate screen, without echo, reporting the
mouse. So the panel runs as a child. If it ends by a signal, the parent, which has loaded nothing that could break,
restores the terminal and says what happened. If the parent is the one that is killed, the kernel sends the panel
SIGTERM, and the panel leaves in its own clean way.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import termios
from collections.abc import Callable

# Leave the alternate screen, show the cursor, end mouse, focus, paste, in-band resize and Kitty keyboard reports, wrap
# lines again, default colours. Each is harmless where it is not set.
RESTORE = (
    "\x1b[?1049l\x1b[?25h\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?1015l\x1b[?1016l"
    "\x1b[?1004l\x1b[?2004l\x1b[?2048l\x1b[<u\x1b[?7h\x1b[0m"
)
_PR_SET_PDEATHSIG = 1
_FORWARDED = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def run_guarded(panel: Callable[[], int], after: str) -> int:
    """Run ``panel`` in a child process and give its exit code.

    Args:
        panel: Draws on the terminal until the user leaves; gives an exit code.
        after: What a user should know if the panel is killed, one sentence without its subject.

    Returns:
        The panel's exit code; 128 + N if signal N ended it, as in a shell.
    """
    saved = termios.tcgetattr(sys.stdin.fileno())
    sys.stdout.flush()
    sys.stderr.flush()
    parent = os.getpid()
    # SIGINT of the terminal reaches both; only the panel answers it.
    old = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, *_FORWARDED)}
    child = os.fork()
    if child == 0:
        for number, handler in old.items():
            signal.signal(number, handler)
        _die_with(parent)
        os._exit(_exit_code(panel))
    for number in _FORWARDED:
        signal.signal(number, lambda received, _frame: _send(child, received))
    try:
        status = _wait(child)
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
    if not os.WIFSIGNALED(status):
        return os.waitstatus_to_exitcode(status)
    ended_by = os.WTERMSIG(status)
    with contextlib.suppress(OSError, termios.error):  # the terminal itself may be gone
        os.write(sys.stdout.fileno(), RESTORE.encode())
        termios.tcsetattr(sys.stdin.fileno(), termios.TCSADRAIN, saved)
        name = signal.Signals(ended_by).name
        print(f"kt-tui: the panel was ended by {name}; {after}", file=sys.stderr)  # noqa: T201
    return 128 + ended_by


def _exit_code(panel: Callable[[], int]) -> int:
    try:
        code = panel()
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else 1
    except BaseException:
        import traceback

        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    return code


def _wait(child: int) -> int:
    """The child's final status. When it suspends itself (Ctrl+Z), so do we, and the shell gets the terminal."""
    while True:
        _, status = os.waitpid(child, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            return status
        os.kill(os.getpid(), signal.SIGSTOP)
        _send(child, signal.SIGCONT)


def _send(process: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, number)


def _die_with(parent: int) -> None:
    """Have the kernel send us SIGTERM when the parent ends (Linux; elsewhere nothing happens)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)
