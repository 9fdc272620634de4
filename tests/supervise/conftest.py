import socket
import sys
from pathlib import Path

import pytest

from kt_tui.paths import user_paths
from kt_tui.supervise import EngineSpec, Supervisor

# Tests are imported by path; the helpers beside them are found here.
sys.path.insert(0, str(Path(__file__).parent))

FAKE_ENGINE = Path(__file__).with_name("fake_engine.py")


@pytest.fixture
def port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def paths(tmp_path):
    return user_paths({"KT_TUI_HOME": str(tmp_path / "home")})


@pytest.fixture
def spec(port):
    def build(*options, **changes):
        argv = (sys.executable, str(FAKE_ENGINE), "--port", str(port), *options)
        values = {"argv": argv, "env": {}, "host": "127.0.0.1", "port": port, "model": "fake"}
        return EngineSpec(**(values | changes))

    return build


@pytest.fixture
async def supervisor(paths):
    made = Supervisor(paths)
    yield made
    await made.stop(grace=0.5)
    await made.close()
