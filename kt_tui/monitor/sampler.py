"""The sampling thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from kt_tui.monitor.history import History
from kt_tui.monitor.snapshot import GpuSample, Snapshot


@dataclass(frozen=True)
class EngineTarget:
    """The engine to watch: its process and where it answers."""

    pid: int
    base_url: str
    api_key: str | None = field(default=None, repr=False)


class Sampler:
    """One thread that publishes a `Snapshot` every ``interval`` seconds.

    Subscribers are called from that thread and must hand over quickly (``post_message``, ``call_soon_threadsafe``).

    Args:
        target: Asked at each tick which engine to watch; None for no engine.
        gpus: Reads all GPUs; raises with a sentence when there is no driver. None for no GPU reader.
        interval: Seconds between snapshots, 0.1 to 60; may be changed while running.
        capacity: Snapshots that ``history`` remembers.
    """

    def __init__(
        self,
        target: Callable[[], EngineTarget | None] = lambda: None,
        gpus: Callable[[], Sequence[GpuSample]] | None = None,
        interval: float = 1.0,
        capacity: int = 600,
    ) -> None:
        self.history = History(capacity)
        self.interval = interval
        self.latest: Snapshot | None = None

    def subscribe(self, callback: Callable[[Snapshot], None]) -> Callable[[], None]:
        """Call ``callback`` with each snapshot; the function given back ends that."""
        raise NotImplementedError

    def start(self) -> None:
        """Start the thread; does nothing if it runs."""
        raise NotImplementedError

    def stop(self) -> None:
        """Stop the thread and wait for it (at most two seconds)."""
        raise NotImplementedError
