"""From "start this model" to a running engine: find, make if needed, plan, launch. Knows no widgets."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kt_tui.errors import KtError
from kt_tui.ui.figures import size

if TYPE_CHECKING:
    from kt_tui.catalog import ModelEntry, PrepareProgress
    from kt_tui.launch import LaunchPlan
    from kt_tui.services import LaunchRequest, Services

PREPARE_PHASES = {
    "verify": "checking what is there",
    "source": "reading the source weights",
    "weights": "writing the weights",
    "tokenizer": "writing the tokenizer",
    "checksums": "taking checksums",
}
PUBLISH_INTERVAL = 0.1


@dataclass(frozen=True)
class Activity:
    """What the panel itself is busy with, before an engine process exists.

    Attributes:
        title: The work in a few words.
        phase: The part of it that runs now, in words.
        share: 0..1 of this part; None when there is no telling.
        detail: Sizes, counts.
        cancellable: Whether Esc ends it.
    """

    title: str
    phase: str = ""
    share: float | None = None
    detail: str = ""
    cancellable: bool = False


class LaunchRefusedError(KtError):
    """The plan has errors; nothing was started."""


class Starter:
    """Does one launch or one preparation at a time and tells how far it is.

    Args:
        services: The domain.
        publish: Called in the loop's thread with each new activity, and with None at the end.
    """

    def __init__(self, services: Services, publish: Callable[[Activity | None], None]) -> None:
        self._services = services
        self._publish = publish
        self._cancel = threading.Event()
        self._busy = False

    @property
    def busy(self) -> bool:
        """Whether work is under way."""
        return self._busy

    def cancel(self) -> None:
        """End a preparation; its `run` raises `kt_tui.catalog.PrepareCancelled`."""
        self._cancel.set()

    async def prepare(self, name: str) -> ModelEntry:
        """Make or mend a model and give its entry as it is afterwards. Raises KtError."""
        with self._working():
            entry = await asyncio.to_thread(self._services.find_model, name)
            return await self._prepare(entry)

    async def verify(self, name: str) -> list[str]:
        """Read every byte of a model; gives the problems found. Raises KtError."""
        with self._working():
            entry = await asyncio.to_thread(self._services.find_model, name)
            report = self._reporter(f"Verifying {entry.name}")
            return await asyncio.to_thread(self._services.verify, entry, report, self._cancel)

    async def launch(self, request: LaunchRequest, *, force: bool = False) -> LaunchPlan:
        """Start an engine and return once its process exists.

        Raises:
            LaunchRefusedError: The plan has errors; ``force`` overrules those that are predictions.
            KtError: No such model, it cannot be made, or the engine cannot be started.
        """
        from kt_tui.supervise import spec_from_plan

        with self._working():
            entry = await asyncio.to_thread(self._services.find_model, request.model)
            if entry.preparable and not self._services.is_prepared(entry):
                await self._prepare(entry)
            self._publish(Activity(f"Starting {entry.name}", "planning"))
            plan = await asyncio.to_thread(self._services.plan, request)
            if problems := plan.blocking(force=force):
                raise LaunchRefusedError(f"{entry.name} was not started: {'; '.join(map(str, problems))}")
            self._publish(Activity(f"Starting {entry.name}", "starting the engine's process"))
            await self._services.supervisor.start(spec_from_plan(plan))
            return plan

    async def _prepare(self, entry: ModelEntry) -> ModelEntry:
        report = self._reporter(f"Making {entry.name}")
        await asyncio.to_thread(self._services.prepare, entry, report, self._cancel)
        return await asyncio.to_thread(self._services.find_model, entry.name)

    @contextmanager
    def _working(self) -> Iterator[None]:
        if self._busy:
            raise KtError("something is being prepared or started already; wait for it, or press Esc")
        self._busy = True
        self._cancel.clear()
        try:
            yield
        finally:
            self._busy = False
            self._publish(None)

    def _reporter(self, title: str) -> Callable[[PrepareProgress], None]:
        """A progress callback for a worker thread; what it tells arrives in the loop, ten times a second."""
        loop = asyncio.get_running_loop()
        last = 0.0
        last_phase = ""

        def report(progress: PrepareProgress) -> None:
            nonlocal last, last_phase
            now = time.monotonic()
            if (
                progress.phase == last_phase
                and progress.done < progress.total
                and now - last < PUBLISH_INTERVAL
            ):
                return
            last, last_phase = now, progress.phase
            loop.call_soon_threadsafe(self._progressed, title, progress)

        self._publish(Activity(title, cancellable=True))
        return report

    def _progressed(self, title: str, progress: PrepareProgress) -> None:
        if not self._busy:
            return  # told by the thread just before it ended
        known = progress.total > 0
        self._publish(
            Activity(
                title,
                PREPARE_PHASES.get(progress.phase, progress.phase),
                progress.done / progress.total if known else None,
                f"{size(progress.done)} of {size(progress.total)}" if known else "",
                cancellable=True,
            )
        )
