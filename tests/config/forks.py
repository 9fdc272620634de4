"""Work in a child process."""

from __future__ import annotations

import os
from collections.abc import Callable


def forked(work: Callable[[], None]) -> int:
    """Run ``work`` in a child process; gives its id."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return child
