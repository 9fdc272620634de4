"""Waiting for states, and an independent view of process trees."""

import asyncio
import time

import psutil

from kt_tui.supervise import EngineState


async def reach(supervisor, *states, patience=30.0):
    """Wait for one of the states; the history of states passed on the way."""
    seen = [supervisor.status.state]
    changed = asyncio.Event()

    def note(status):
        seen.append(status.state)
        changed.set()

    unsubscribe = supervisor.subscribe(note)
    try:
        async with asyncio.timeout(patience):
            while supervisor.status.state not in states:
                changed.clear()
                await changed.wait()
    finally:
        unsubscribe()
    return seen


async def ready(supervisor):
    await reach(supervisor, EngineState.READY, EngineState.FAILED)
    assert supervisor.status.state is EngineState.READY, supervisor.status.reason


def tree_of(pid):
    """The process and its descendants, by psutil: an oracle that is not the code under test."""
    root = psutil.Process(pid)
    return [root, *root.children(recursive=True)]


def all_gone(processes, patience=10.0):
    _, alive = psutil.wait_procs(processes, timeout=0)
    due = time.monotonic() + patience
    while alive and time.monotonic() < due:
        time.sleep(0.05)
        alive = [p for p in alive if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]
    return not alive
