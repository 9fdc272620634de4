"""One engine, from start to proven end."""

from __future__ import annotations

from collections.abc import Callable

from kt_tui.paths import Paths
from kt_tui.supervise.log import LogRing
from kt_tui.supervise.types import EngineSpec, EngineStatus, StopReport


class Supervisor:
    """Starts, watches and ends one engine. All methods belong to one asyncio loop; so do the callbacks."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self.log = LogRing()
        self.status = EngineStatus()
        self.api_key: str | None = None

    def subscribe(self, callback: Callable[[EngineStatus], None]) -> Callable[[], None]:
        """Call ``callback`` with each new status; the function given back ends that."""
        raise NotImplementedError

    async def start(self, spec: EngineSpec) -> None:
        """Launch the engine and return once its process exists; readiness is told through the status.

        Raises:
            EngineError: One runs already, the port is taken, or the program cannot be started.
        """
        raise NotImplementedError

    async def stop(self, grace: float = 10.0) -> StopReport:
        """End the whole tree: SIGTERM, ``grace`` seconds, SIGKILL; then prove that it is gone."""
        raise NotImplementedError

    async def attach(self) -> bool:
        """Take over an engine that an earlier panel left running; False if there is none."""
        raise NotImplementedError

    async def keep_running(self, keep: bool = True) -> None:
        """Whether the engine goes on when this panel ends (also by a crash)."""
        raise NotImplementedError

    async def close(self) -> None:
        """Let go: a kept engine goes on, any other is stopped."""
        raise NotImplementedError
