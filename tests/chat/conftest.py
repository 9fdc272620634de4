import sys
from pathlib import Path

import pytest

# Tests are imported by path; the helpers beside them are found here.
sys.path.insert(0, str(Path(__file__).parent))

from raw_server import RawServer


@pytest.fixture
async def server():
    """A TCP server on a free loopback port that answers with the bytes that it was given."""
    async with RawServer() as made:
        yield made
