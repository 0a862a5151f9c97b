"""A Valkey that outlives the gateways of a test, and patience with it: a busy machine is not what is tested here."""

from collections.abc import AsyncIterator

import pytest

from gateway.fixes import orders
from prefix_index import EmbeddedServer


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orders, "DEADLINE_S", 30.0)


@pytest.fixture
async def redis_url() -> AsyncIterator[str]:
    """To be asked for before gateways are."""
    async with EmbeddedServer() as server:
        yield server.url
