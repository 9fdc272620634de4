"""The kernel's counters of out-of-memory kills, for telling such a death from any other SIGKILL.

Standard library only (the keeper reads them before the start and after the end of an engine).
"""

from __future__ import annotations


def oom_kills() -> dict[str, int]:
    """Kills counted so far: ``machine`` (/proc/vmstat) and ``group`` (this process's control group).

    A counter that this kernel or container does not show is left out.
    """
    found = {}
    if (machine := _counter("/proc/vmstat", "oom_kill")) is not None:
        found["machine"] = machine
    for path in _group_files():
        if (group := _counter(path, "oom_kill")) is not None:
            found["group"] = group
            break
    return found


def increases(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    """The counters that grew, with by how much."""
    return {name: after[name] - before[name] for name in before if after.get(name, 0) > before[name]}


def _counter(path: str, key: str) -> int | None:
    try:
        with open(path, encoding="ascii", errors="replace") as file:  # noqa: PTH123 - no pathlib in the keeper
            for line in file:
                words = line.split()
                if len(words) == 2 and words[0] == key and words[1].isdigit():
                    return int(words[1])
    except OSError:
        return None
    return None


def _group_files() -> list[str]:
    # cgroups(7): "0::/path" is version 2; "N:memory:/path" is version 1.
    try:
        with open("/proc/self/cgroup", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            lines = file.read().splitlines()
    except OSError:
        return []
    files = []
    for line in lines:
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        path = path.rstrip("/")
        if number == "0" and not controllers:
            files += [f"/sys/fs/cgroup{path}/memory.events", "/sys/fs/cgroup/memory.events"]
        elif "memory" in controllers.split(","):
            files += [
                f"/sys/fs/cgroup/memory{path}/memory.oom_control",
                "/sys/fs/cgroup/memory/memory.oom_control",
            ]
    return files
