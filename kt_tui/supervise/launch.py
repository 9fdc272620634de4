"""From a launch plan to what the supervisor starts, and what it needs on disk for that."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kt_tui.paths import Paths
from kt_tui.secret import MASK, masked_arguments
from kt_tui.supervise import cleanup
from kt_tui.supervise.records import is_locked, read_record, record_name
from kt_tui.supervise.types import EngineError, EngineSpec
from kt_tui.tomlfile import reason

if TYPE_CHECKING:
    from kt_tui.launch.plan import LaunchPlan

LOGS_KEPT = 10  # logs of earlier launches
_ORPHAN_GRACE = 4.0  # seconds between SIGTERM and SIGKILL when the panel is gone


def spec_from_plan(plan: LaunchPlan, api_key: str | None = None) -> EngineSpec:
    """The launch that ``plan`` describes; the API key travels in the environment of the engine only."""
    from kt_tui.launch.command import API_KEY_VARIABLE

    environment = dict(plan.env)
    key = api_key or environment.get(API_KEY_VARIABLE) or None
    if key:
        environment[API_KEY_VARIABLE] = key
    return EngineSpec(
        argv=tuple(plan.argv),
        env=environment,
        host=plan.host,
        port=plan.port,
        model=plan.served_name or plan.model_name,
        engine=plan.engine,
        api_key=key,
    )


def public_argv(spec: EngineSpec) -> list[str]:
    """The arguments as a state file may hold them: values of options that carry secrets are blanked."""
    return [MASK if spec.api_key and spec.api_key in word else word for word in masked_arguments(spec.argv)]


def refuse_if_taken(paths: Paths, spec: EngineSpec) -> None:
    """Raise `EngineError` if an engine of this user is, or is about to be, on the port of ``spec``."""
    name = record_name(spec.port)
    if not is_locked(paths.engines / f"{name}.lock"):
        return
    record = read_record(paths.engines / f"{name}.json")
    if record is None:
        raise EngineError(
            f"Another kt-tui is just starting an engine on port {spec.port}; choose another port."
        )
    whose = "was left running" if record.kept else f"belongs to another kt-tui (process {record.owner_pid})"
    raise EngineError(
        f"Port {spec.port} is taken: the engine there (model {record.model}, process {record.pid}) {whose}; "
        "stop it there, or choose another port."
    )


def prepare_folders(paths: Paths, spec: EngineSpec) -> Path:
    """Make the private folders for state and logs, drop old logs, and name the log of this launch."""
    try:
        for folder in (paths.engines, paths.logs):
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(0o700)
        cleanup.prune_logs(paths.logs, LOGS_KEPT)
    except OSError as error:
        where = error.filename or paths.state
        raise EngineError(
            f"The engine cannot be started without a place for its log and state: {where}: {reason(error)}."
        ) from error
    safe = "".join(c if c.isalnum() or c in "-_." else "-" for c in spec.model)[:60].lstrip(".") or "engine"
    return paths.logs / f"{time.strftime('%Y%m%d-%H%M%S')}-{safe}-{spec.port}.log"


def message(
    paths: Paths, spec: EngineSpec, environ: Mapping[str, str], log_path: Path, log_limit: int
) -> dict[str, Any]:
    """What the keeper is told; it goes over a private socket, so it may hold secrets."""
    return {
        "argv": list(spec.argv),
        # A log is no terminal that could move its cursor; programs that ask are told so.
        "env": {**environ, **spec.env, "TERM": "dumb"},
        "cwd": str(Path.cwd()),
        "host": spec.host,
        "port": spec.port,
        "model": spec.model,
        "engine": spec.engine,
        "public_argv": public_argv(spec),
        "folder": str(paths.engines),
        "name": record_name(spec.port),
        "log_path": str(log_path),
        "log_limit": log_limit,
        "launch_id": uuid.uuid4().hex,
        "owner_pid": os.getpid(),
        "orphan_grace": _ORPHAN_GRACE,
        "api_key": spec.api_key,
    }
