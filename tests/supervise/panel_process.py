"""A panel that can be killed: starts a fake engine, tells what it did as JSON lines, and waits.

python panel_process.py HOME PORT WAIT_FOR(starting|loading|ready) KEEP(0|1) [engine options]
"""

import asyncio
import json
import sys
from pathlib import Path

from kt_tui.paths import user_paths
from kt_tui.supervise import EngineSpec, Supervisor

home, port, wait_for, keep, *options = sys.argv[1:]


async def main():
    supervisor = Supervisor(user_paths({"KT_TUI_HOME": home}))
    fake = str(Path(__file__).with_name("fake_engine.py"))
    argv = (sys.executable, fake, "--port", port, *options)
    await supervisor.start(EngineSpec(argv, {}, "127.0.0.1", int(port), "fake", api_key="sesame"))
    changed = asyncio.Event()
    supervisor.subscribe(lambda status: status.state == wait_for and changed.set())
    if supervisor.status.state != wait_for:
        await changed.wait()
    if keep == "1":
        await supervisor.keep_running()
    record = json.loads((supervisor._paths.engines / f"port-{port}.json").read_text())
    print(json.dumps({"pid": supervisor.status.pid, "keeper": record["keeper_pid"]}), flush=True)
    await asyncio.sleep(300)


asyncio.run(main())
