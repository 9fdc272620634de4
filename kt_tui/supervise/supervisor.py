"""One engine, from start to proven end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from kt_tui.net import bind_problem
from kt_tui.paths import Paths
from kt_tui.supervise import cleanup, health, launch
from kt_tui.supervise.link import KeeperLink, connect_keeper, start_keeper
from kt_tui.supervise.log import LogRing
from kt_tui.supervise.reasons import Ending, explain
from kt_tui.supervise.records import EngineRecord, all_records, record_name
from kt_tui.supervise.tail import LogTail
from kt_tui.supervise.tracker import WATCHED_STATES, Tracker
from kt_tui.supervise.types import EngineError, EngineSpec, EngineState, EngineStatus, StopReport, Survivor

LOG_LIMIT = 16 << 20  # bytes of one log file; two are kept
_LOG_INTERVAL, _QUIET_LOG_INTERVAL = 0.1, 0.4  # seconds between looks; the longer one after some in vain
_QUIET = 20
_ATTACH_LOG = 256 << 10


class Supervisor:
    """Starts, watches and ends one engine. All methods belong to one asyncio loop; so do the callbacks.

    Args:
        paths: Where state files and logs go.
        environ: What the engine's environment is laid over; the panel's own by default.
        log_limit: Bytes of the current log file; one previous file of that size is kept.
    """

    def __init__(
        self, paths: Paths, environ: Mapping[str, str] | None = None, log_limit: int = LOG_LIMIT
    ) -> None:
        self._paths = paths
        self._environ = os.environ if environ is None else environ
        self._log_limit = log_limit
        self.log = LogRing()
        self.api_key: str | None = None
        self._tracker = Tracker()
        self.log.subscribe(self._tracker.lines)
        self._link: KeeperLink | None = None
        self._tail: LogTail | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._launch = cleanup.Launch("", 0, 0)
        self._gone: asyncio.Future[dict[str, Any] | None] | None = None
        self._start_lock = asyncio.Lock()
        self._stop_lock = asyncio.Lock()

    @property
    def status(self) -> EngineStatus:
        """The engine at this moment."""
        return self._tracker.status

    def subscribe(self, callback: Callable[[EngineStatus], None]) -> Callable[[], None]:
        """Call ``callback`` with each new status; the function given back ends that."""
        return self._tracker.subscribe(callback)

    # -- start ---------------------------------------------------------------------------------------------------

    async def start(self, spec: EngineSpec) -> None:
        """Launch the engine and return once its process exists; readiness is told through the status.

        Raises:
            EngineError: One runs already, the port is taken, or the program cannot be started.
        """
        if self.status.state.active:
            raise EngineError(f"An engine ({self.status.model}) is {self.status.state} here; stop it first.")
        self._tracker.begin(spec)
        try:
            async with self._start_lock:
                await self._begin(spec)
        except EngineError as error:
            self._tracker.finish(EngineState.FAILED, str(error))
            raise
        except asyncio.CancelledError:
            self._tracker.finish(EngineState.STOPPED, "the start was cancelled")
            raise

    async def _begin(self, spec: EngineSpec) -> None:
        if self._gone is not None:
            # The tree of a crashed engine is still being ended.
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(self._gone), 15.0)
        await self._release()
        self.log.clear()
        name = record_name(spec.port)
        launch.refuse_if_taken(self._paths, spec)
        await asyncio.to_thread(cleanup.end_leftovers, self._paths, name)
        if problem := await asyncio.to_thread(bind_problem, spec.host, spec.port):
            raise EngineError(f"The engine cannot listen: {problem}.")
        log_path = launch.prepare_folders(self._paths, spec)
        message = launch.message(self._paths, spec, self._environ, log_path, self._log_limit)
        link, started = await start_keeper(message, self._paths.engines / f"{name}.err")
        self.api_key = spec.api_key
        self._watch(link, started, LogTail(log_path, self.log))

    def _watch(self, link: KeeperLink, started: Mapping[str, Any], tail: LogTail) -> None:
        self._link, self._tail = link, tail
        self._gone = asyncio.get_running_loop().create_future()
        self._launch = cleanup.Launch(
            str(started["launch_id"]), int(started["pid"]), int(started["started_ticks"])
        )
        self._tracker.started(started)
        self._spawn(self._follow_keeper(link))
        self._spawn(self._follow_log(tail))
        self._spawn(self._follow_health())

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- watch ---------------------------------------------------------------------------------------------------

    async def _follow_keeper(self, link: KeeperLink) -> None:
        while (event := await link.receive()) is not None:
            match event.get("event"):
                case "kept":
                    self._tracker.change(kept=event.get("value") is True)
                case "exit":
                    self._drain_log()
                    self._tracker.exited(event)
                case "gone":
                    if self.status.state.active and self.status.state is not EngineState.STOPPING:
                        self._finish(
                            EngineState.STOPPED, "stopped from outside this kt-tui", self.status.exit_code
                        )
                    self._resolve_gone(event)
                case _:
                    pass
        # Without a "gone" the keeper was killed; the engine died with it, others of its tree perhaps not.
        if self._gone is not None and not self._gone.done():
            left = await asyncio.to_thread(cleanup.end_family, self._launch)
            if self.status.state is not EngineState.STOPPING:
                words = f"; {len(left)} of its processes could not be ended" if left else ""
                reason = f"The process that watches over the engine was killed, and the engine ended with it{words}."
                self._finish(EngineState.FAILED, reason, None)
            self._resolve_gone(None)

    def _resolve_gone(self, event: dict[str, Any] | None) -> None:
        if self._gone is not None and not self._gone.done():
            self._gone.set_result(event)

    def _finish(self, state: EngineState, reason: str, exit_code: int | None) -> None:
        self._drain_log()
        self._tracker.finish(state, reason, exit_code)

    async def _follow_log(self, tail: LogTail) -> None:
        quiet = 0
        while self._tail is tail:
            more, seen = False, self.log.last_seq
            with contextlib.suppress(OSError):
                more = tail.poll()
            quiet = quiet + 1 if self.log.last_seq == seen else 0
            await asyncio.sleep(0 if more else _LOG_INTERVAL if quiet < _QUIET else _QUIET_LOG_INTERVAL)

    def _drain_log(self) -> None:
        if self._tail is not None:
            with contextlib.suppress(OSError):
                self._tail.finish()
            self._tail = None

    async def _follow_health(self) -> None:
        import httpx

        timing = health.TIMING.get(self.status.engine, health.TIMING["embedded"])
        # Plain HTTP on this machine: no proxy, and no certificates to read (which costs 20 ms of the screen's time).
        async with httpx.AsyncClient(trust_env=False, verify=False, timeout=timing.timeout) as client:  # noqa: S501
            while self.status.state in WATCHED_STATES:
                self._tracker.health(await health.ask_health(client, self.status.base_url, self.api_key))
                ready = self.status.state is EngineState.READY
                await asyncio.sleep(timing.ready if ready else timing.loading)

    # -- end -----------------------------------------------------------------------------------------------------

    async def stop(self, grace: float = 10.0) -> StopReport:
        """End the whole tree: SIGTERM, ``grace`` seconds, SIGKILL; then prove that it is gone.

        Called again while it works, it shortens the grace to the smaller one.
        """
        async with self._start_lock:
            pass  # an engine that is just being started can be stopped only after that
        if self._link is None or self._gone is None:
            return StopReport(gone=True)
        if self.status.state.active:
            self._tracker.change(state=EngineState.STOPPING, reason="stopping the engine", progress=None)
            await self._link.send({"op": "stop", "grace": grace})
        async with self._stop_lock:
            return await self._prove_gone(grace)

    async def _prove_gone(self, grace: float) -> StopReport:
        began = time.monotonic()
        if self._link is None or self._gone is None:
            return StopReport(gone=True)
        known = await asyncio.to_thread(cleanup.family, self._launch)
        patience = grace + 15.0  # the keeper itself gives up 10 s after SIGKILL
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(self._gone), patience)
        if not self._gone.done():
            await asyncio.to_thread(cleanup.end_family, self._launch)
        host, port = self.status.host, self.status.port
        left = await asyncio.to_thread(cleanup.family, self._launch, known)
        port_open = await asyncio.to_thread(cleanup.port_still_open, host, port)
        survivors = tuple(Survivor(stat.pid, stat.name) for stat in left)
        report = StopReport(not survivors and not port_open, survivors, time.monotonic() - began, port_open)
        if self.status.state is EngineState.STOPPING:
            reason = cleanup.stop_words(report)
            self._finish(
                EngineState.STOPPED if report.gone else EngineState.FAILED, reason, self.status.exit_code
            )
        await self._release()
        return report

    async def _release(self) -> None:
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._drain_log()
        if self._link is not None:
            await self._link.close(goes_on=self.status.kept and self.status.state.active)
            self._link = None

    async def keep_running(self, keep: bool = True) -> None:
        """Whether the engine goes on when this panel ends (also by a crash)."""
        if self._link is None or not self.status.state.active:
            raise EngineError("There is no running engine to keep.")
        await self._link.send({"op": "keep", "value": keep})
        for _ in range(100):
            if self.status.kept is keep:
                return
            await asyncio.sleep(0.02)
        raise EngineError("The engine's keeper did not confirm; the engine may end with this panel.")

    async def attach(self) -> bool:
        """Take over an engine that an earlier panel left running; False if there is none.

        One that ended in the meantime is told through the status.
        """
        if self.status.state.active:
            return False
        await self._release()
        for record in all_records(self._paths):
            if record.kept and record.keeper_alive and record.exit_code is None:
                connected = await connect_keeper(self._paths.engines, record.name)
                if connected is not None:
                    link, started = connected
                    key = started.get("api_key")
                    self.api_key = key if isinstance(key, str) else None
                    self.log.clear()
                    self._watch(link, started, LogTail(record.log_path, self.log, only_last=_ATTACH_LOG))
                    return True
            elif not record.keeper_alive:
                await asyncio.to_thread(cleanup.end_leftovers, self._paths, record.name)
                self._tell_end(record)
        return False

    def _tell_end(self, record: EngineRecord) -> None:
        if record.kept and record.exit_code is not None:
            reason = explain(Ending(exit_code=record.exit_code, was_ready=True))
            self._tracker.set(
                EngineStatus(
                    state=EngineState.FAILED,
                    reason=f"The engine that was left running has ended. {reason}",
                    model=record.model,
                    engine=record.engine,
                    started_at=record.started_at,
                    exit_code=record.exit_code,
                    log_path=record.log_path,
                )
            )

    async def close(self) -> None:
        """Let go: a kept engine goes on, any other is stopped."""
        if self.status.state.active and not self.status.kept:
            await self.stop(grace=5.0)
        await self._release()
