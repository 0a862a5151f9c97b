"""An engine that is only overloaded stays available, where it is the only one, on real ports."""

import asyncio
from contextlib import suppress

import httpx

from tests.gateway.conftest import StartGateway, start
from tests.gateway.scripted_engine import answer_chat, answer_json, scripted_engine
from tests.gateway.test_endpoint_health import QUICK, ask, asked_by, standing, until_in_state
from tests.hostile import Peer, hang


async def test_the_only_endpoint_is_asked_though_its_breaker_is_open_while_polls_are_answered(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    """What breaks off calls of an overloaded engine must not keep all others from it."""

    async def breaks_off(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 999\r\n\r\n{")
        peer.reset()

    async with scripted_engine(*[breaks_off] * 3, answer_chat("Hi")) as engine:
        gateway = await start(start_gateway, engine.url, **QUICK)
        for _ in range(3):
            with suppress(httpx.HTTPError):
                await ask(client, gateway)
        await until_in_state(client, gateway, "open")
        assert (await client.get(f"{gateway.url}/ready")).status_code == 200
        assert [model["id"] for model in (await client.get(f"{gateway.url}/v1/models")).json()["data"]] == ["m"]
        assert [await asked_by(client, gateway) for _ in range(3)] == ["e0"] * 3


async def test_who_finds_all_connections_to_an_endpoint_busy_is_told_so_and_nobody_is_blamed(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    async with scripted_engine(hang) as engine:
        few = {"limits__connections_per_endpoint": 1, "limits__connect_s": 0.05}
        gateway = await start(start_gateway, engine.url, **QUICK | few)
        first = asyncio.ensure_future(ask(client, gateway))
        await engine.asked.wait()
        answers = await asyncio.gather(*(ask(client, gateway) for _ in range(5)))
        assert {(answer.status_code, answer.json()["error"]["code"]) for answer in answers} == {(503, "overloaded")}
        assert "limits.connections_per_endpoint" in answers[0].json()["error"]["message"]
        assert answers[0].headers["retry-after"]
        assert (await standing(client, gateway))["breaker_opened"] == 0
        first.cancel()


async def test_what_a_full_engine_answers_with_429_goes_to_another_and_is_no_fault(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    full = answer_json({"error": "Model is overloaded", "error_type": "overloaded"}, 429)
    async with scripted_engine(full) as busy, scripted_engine(answer_chat("Hi")) as idle:
        gateway = await start(start_gateway, busy.url, idle.url, **QUICK)
        assert {await asked_by(client, gateway) for _ in range(8)} == {"e1"}
        assert busy.requests
        assert gateway.metric("prefixgate_endpoint_faults_total", endpoint="e0") == 0
        idle.scripts[:] = [full]
        answer = await ask(client, gateway)
        assert (answer.status_code, answer.json()["error"]) == (429, "Model is overloaded")
