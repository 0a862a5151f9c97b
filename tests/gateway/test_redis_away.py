"""Redis away at the start, gone in the middle, back again: requests are served, the ledger stays exact."""

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from prefix_index import EmbeddedServer
from tests.gateway.conftest import RunningGateway, StartGateway, settled
from tests.gateway.scripted_engine import ScriptedEngine, answer_chat, scripted_engine
from tests.hostile import HostileServer, hang

CHAT = {"model": "m", "messages": [{"role": "user", "content": "Where are the books on gravity?"}]}


@pytest.fixture
async def engine() -> AsyncIterator[ScriptedEngine]:
    async with scripted_engine(answer_chat("Hi")) as running:
        yield running


async def ask(client: httpx.AsyncClient) -> httpx.Response:
    answer = await client.post("/v1/chat/completions", json=CHAT)
    assert answer.status_code == 200
    return answer


async def health_of_index(client: httpx.AsyncClient) -> str | None:
    degraded: dict[str, str] = (await client.get("/health")).json()["degraded"]
    return degraded.get("index")


async def until_index(client: httpx.AsyncClient, *, degraded: bool) -> None:
    async with asyncio.timeout(15):
        while (await health_of_index(client) is not None) != degraded:
            await ask(client)


def client_of(gateway: RunningGateway) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=gateway.url, timeout=30)


async def test_without_redis_at_the_start_prefixes_are_still_followed(
    engine: ScriptedEngine, start_gateway: StartGateway
) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        url = f"redis://127.0.0.1:{nobody.getsockname()[1]}/0"
        gateway = await asyncio.to_thread(start_gateway, engine.url, index__redis_url=url)
        async with client_of(gateway) as client:
            answers = [await ask(client) for _ in range(4)]
            assert await health_of_index(client) is not None
    assert answers[-1].headers["x-prefixgate-cached-tokens"] == "32"
    assert len(await settled(gateway, 4)) == 4


async def test_a_redis_that_accepts_and_never_answers_costs_no_request(
    engine: ScriptedEngine, start_gateway: StartGateway
) -> None:
    async with HostileServer([hang]) as frozen:
        url = f"redis://127.0.0.1:{frozen.port}/0"
        gateway = await asyncio.to_thread(start_gateway, engine.url, index__redis_url=url)
        async with client_of(gateway) as client:
            await asyncio.gather(*(ask(client) for _ in range(20)))
            assert len(await settled(gateway, 20)) == 20
            await until_index(client, degraded=True)


async def test_redis_that_dies_in_the_middle_is_replaced_by_the_twin_and_used_again_when_it_is_back(
    engine: ScriptedEngine, start_gateway: StartGateway, tmp_path: Path
) -> None:
    async with EmbeddedServer(directory=tmp_path) as server:
        gateway = await asyncio.to_thread(
            start_gateway, engine.url, index__redis_url=server.url, index__deadline_ms=500.0
        )
        async with client_of(gateway) as client:
            for _ in range(3):
                await ask(client)
            assert await health_of_index(client) is None
            await server.stop()
            await until_index(client, degraded=True)
            assert (await ask(client)).headers["x-prefixgate-cached-tokens"] == "32"


async def test_a_private_server_that_was_killed_is_back_before_long(
    engine: ScriptedEngine, start_gateway: StartGateway, tmp_path: Path
) -> None:
    kept = tmp_path / "kept"
    gateway = await asyncio.to_thread(start_gateway, engine.url, index__dir=kept)
    async with client_of(gateway) as client:
        answers = [await ask(client) for _ in range(3)]
        (killed,) = servers_on(kept)
        os.kill(killed, signal.SIGKILL)
        async with asyncio.timeout(15):
            while not servers_on(kept) or killed in servers_on(kept):
                answers.append(await ask(client))
        await until_index(client, degraded=False)
        answers.append(await ask(client))
    assert answers[-1].headers["x-prefixgate-cached-tokens"] == "32"


def servers_on(directory: Path) -> list[int]:
    """The processes that work in a directory: a server that keeps its data there."""
    found = []
    for place in Path("/proc").glob("[0-9]*/cwd"):
        with suppress(OSError):
            if place.readlink() == directory:
                found.append(int(place.parent.name))
    return found


async def test_a_private_server_that_cannot_start_is_a_degraded_index_in_health(
    engine: ScriptedEngine, start_gateway: StartGateway, tmp_path: Path
) -> None:
    (tmp_path / "appendonlydir").write_text("in the way")
    gateway = await asyncio.to_thread(start_gateway, engine.url, index__dir=tmp_path)
    async with client_of(gateway) as client:
        answers = [await ask(client) for _ in range(2)]
        assert await health_of_index(client) == "unreachable"
    assert answers[-1].headers["x-prefixgate-cached-tokens"] == "32"


async def test_without_any_server_wanted_the_index_of_the_process_is_not_degraded(
    engine: ScriptedEngine, start_gateway: StartGateway
) -> None:
    gateway = await asyncio.to_thread(start_gateway, engine.url, index__embedded=False)
    async with client_of(gateway) as client:
        await ask(client)
        assert await health_of_index(client) is None
