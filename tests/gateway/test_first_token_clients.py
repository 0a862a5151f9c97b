"""Clients in Python see each token before the engine sends the next one (others: `make test-clients`)."""

import asyncio

import pytest

from tests.gateway.conftest import StartGateway, settled, start
from tests.gateway.first_token import PYTHON_CLIENTS, ROUND_S, patient_engine


@pytest.mark.parametrize("name", PYTHON_CLIENTS)
async def test_a_client_sees_each_token_before_the_engine_sends_the_next(
    name: str, start_gateway: StartGateway
) -> None:
    async with patient_engine() as (engine, handshake):
        gateway = await start(start_gateway, engine.url, poll_interval_s=600.0)  # late is not down
        async with asyncio.timeout(ROUND_S):
            await PYTHON_CLIENTS[name](gateway.url, 3, handshake.seen)
        rows = await settled(gateway, 3)
    assert handshake.answers == 3
    assert {(row.state, row.output_tokens) for row in rows} == {("complete", 2)}  # the engine's own word
