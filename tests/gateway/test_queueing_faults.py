"""Requests that wait while engines fail, clients leave and gateways stop: no place is lost, nobody is billed."""

import asyncio

import httpx

from tests.gateway.conftest import StartGateway, settled, start
from tests.gateway.scripted_engine import USAGE, answer_chat, answer_json, scripted_engine
from tests.gateway.taps import Taps, post, waiting
from tests.hostile import Peer, reset_before_first_byte


async def test_answers_that_fail_give_their_places_back(start_gateway: StartGateway, client: httpx.AsyncClient) -> None:
    """Refusals, faults, connections that break: a place that is lost for ever makes an endpoint full for ever."""
    refusal = answer_json({"error": {"message": "no"}}, 400)
    fault = answer_json({"error": {"message": "broken"}}, 500)
    resets = [reset_before_first_byte] * 2  # a kept connection that breaks is dialled once more
    async with scripted_engine(*resets, refusal, fault, answer_chat("Hi")) as engine:
        gateway = await start(start_gateway, engine.url, queue__max_running=1)
        codes = [(await post(client, gateway, f"r{at}")).status_code for at in range(4)]
        assert gateway.metric("prefixgate_endpoint_full") == 0
    assert codes == [502, 400, 500, 200]


async def test_what_waits_goes_elsewhere_when_its_endpoint_dies_and_another_comes_up(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    taps, other = Taps(), Taps()
    async with scripted_engine(taps.keeps_alive) as engine, scripted_engine(other.keeps_alive) as second:
        second.silent = True
        gateway = await start(start_gateway, engine.url, second.url, queue__max_running=1)
        async with asyncio.TaskGroup() as group:
            group.create_task(post(client, gateway, "running"))
            await taps.has(1)
            group.create_task(post(client, gateway, "waits"))
            await waiting(gateway, 1)
            second.silent = False
            await other.has(1)
            other.answer(1)
            taps.answer(1)
    assert other.names == ["waits"]


async def test_a_request_whose_attempt_failed_waits_for_another_endpoint_and_goes_first(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    good = Taps()
    let_fail = asyncio.Event()

    async def keeps_alive(peer: Peer) -> None:
        await peer.read_request()
        await let_fail.wait()
        peer.reset()

    async with scripted_engine(keeps_alive) as bad, scripted_engine(good.keeps_alive) as engine:
        gateway = await start(start_gateway, bad.url, engine.url, queue__max_running=1, queue__most_passed=0)
        async with asyncio.TaskGroup() as group:
            first = [group.create_task(post(client, gateway, f"first{at}")) for at in range(2)]
            await asyncio.gather(bad.asked.wait(), good.has(1))
            group.create_task(post(client, gateway, "waits"))
            await waiting(gateway, 1)
            let_fail.set()
            await waiting(gateway, 2)  # it goes where there is room now, and fails there too
            good.answer(3)
            await asyncio.wait(first)
        rows = await settled(gateway, 3)
    assert good.names[1].startswith("first")
    assert good.names[2] == "waits"
    assert sorted(row.attempts for row in rows) == [1, 2, 2]


async def test_a_client_that_leaves_after_a_failed_attempt_while_it_waits_again_is_billed_nothing(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    good = Taps()
    let_fail = asyncio.Event()

    async def keeps_alive(peer: Peer) -> None:
        await peer.read_request()
        await let_fail.wait()
        peer.reset()

    async with scripted_engine(keeps_alive) as bad, scripted_engine(good.keeps_alive) as engine:
        gateway = await start(start_gateway, bad.url, engine.url, queue__max_running=1)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(post(client, gateway, f"r{at}")) for at in range(2)]
            await asyncio.gather(bad.asked.wait(), good.has(1))
            let_fail.set()
            await waiting(gateway, 1)
            failed = next(task for at, task in enumerate(tasks) if f"r{at}" not in good.names)
            failed.cancel()
            await waiting(gateway, 0)
            good.answer(1)
        rows = await settled(gateway, 2)
    assert sorted((row.state, row.output_tokens, row.attempts) for row in rows) == [
        ("complete", USAGE["completion_tokens"], 1),
        ("failed", None, 1),
    ]


async def test_a_gateway_that_stops_serves_what_waits(start_gateway: StartGateway, client: httpx.AsyncClient) -> None:
    taps = Taps()
    async with scripted_engine(taps.keeps_alive) as engine:
        gateway = await start(start_gateway, engine.url, queue__max_running=1, limits__drain_s=20)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(post(client, gateway, "running"))]
            await taps.has(1)
            tasks.append(group.create_task(post(client, gateway, "waits")))
            await waiting(gateway, 1)
            gateway.server.should_exit = True
            taps.answer(2)
        assert [task.result().status_code for task in tasks] == [200, 200]


async def test_a_gateway_that_stops_tells_those_whose_turn_does_not_come_rather_than_cut_them(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    taps = Taps()
    async with scripted_engine(taps.keeps_alive) as engine:
        gateway = await start(start_gateway, engine.url, queue__max_running=1, limits__drain_s=2)
        async with asyncio.TaskGroup() as group:
            running = group.create_task(post(client, gateway, "running"))
            await taps.has(1)
            waits = group.create_task(post(client, gateway, "waits"))
            await waiting(gateway, 1)
            gateway.server.should_exit = True
            told = await waits
            taps.answer(1)
            await running
    assert (told.status_code, told.json()["error"]["code"]) == (503, "queue_full")
