"""Servers for the tests of the index: the packaged Valkey, and Redis where the machine has one."""

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from prefix_index.embedded import EmbeddedServer

REDIS = shutil.which("redis-server")


@pytest.fixture(scope="session", params=["valkey", *(["redis"] if REDIS else [])])
def server_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """A server shared by all tests; each uses pools of its own."""
    binary = Path(REDIS) if REDIS and request.param == "redis" else None
    with asyncio.Runner() as runner:
        server = EmbeddedServer(binary=binary)
        runner.run(server.start())
        yield server.url
        runner.run(server.stop())
