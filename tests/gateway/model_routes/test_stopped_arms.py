"""What an arm is stopped for, through a gateway, and that it gets nothing then."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry

from gateway.model_routes import Arm, GuardRule, ModelRoute, ModelRoutes, RouteParts
from gateway.route_metrics import RouteMetrics
from prefix_index import EmbeddedServer, pool_tag
from prefix_index.redis_clients import connect_one
from tests.gateway.conftest import RunningGateway, StartGateway, start
from tests.gateway.model_routes.test_routes import answers, ask
from tests.gateway.scripted_engine import chat_stream, scripted_engine
from tests.hostile import Behaviour, Peer
from tests.until import until

ADMIN = {"authorization": "Bearer letmein"}
SPLIT = {
    "name": "fast",
    "sticky": "request",
    "arms": [{"model": "m", "name": "stable"}, {"model": "n", "name": "canary"}],
}
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def stream_that_ends(how: str) -> Behaviour:
    """One token, and then `reset` or `end`, which says neither usage nor that it is done; or `hang` at once."""

    async def plays(peer: Peer) -> None:
        await peer.read_request()
        if how == "hang":
            await peer.hang()
            return
        event = chat_stream("Hi")[0]
        await peer.send(_HEAD + b"%x\r\n%s\r\n" % (len(event), event))
        if how == "reset":
            peer.reset()
        else:
            await peer.send(b"0\r\n\r\n")

    return plays


async def shown(client: httpx.AsyncClient, gateway: RunningGateway) -> dict[str, Any]:
    (route,) = (await client.get(f"{gateway.url}/admin/routes", headers=ADMIN)).json()
    return dict(route)


async def stop(client: httpx.AsyncClient, gateway: RunningGateway, arm: str) -> None:
    where = {"name": "fast", "arm": arm}
    assert (await client.post(f"{gateway.url}/admin/routes", headers=ADMIN, params=where)).status_code == 200


@pytest.mark.parametrize(("how", "failed"), [("reset", 1), ("end", 1), ("hang", 0)])
async def test_a_stream_that_breaks_off_is_a_failure_of_its_arm_and_one_whose_client_leaves_is_none(
    start_gateway: StartGateway, client: httpx.AsyncClient, token_file: Path, how: str, failed: int
) -> None:
    route = {**SPLIT, "canary": {"arm": "canary"}}
    async with scripted_engine(answers("m")) as one, scripted_engine(stream_that_ends(how), model="n") as two:
        gateway = await start(start_gateway, one.url, two.url, model_routes=[route], admin_token_file=token_file)
        async with asyncio.timeout(30):
            while not two.requests:
                asking = asyncio.ensure_future(ask(client, gateway, "fast", stream=True))
                asked = asyncio.ensure_future(two.asked.wait())
                await asyncio.wait([asking, asked], return_when=asyncio.FIRST_COMPLETED)
                asked.cancel()
                if how == "hang" and two.requests:
                    asking.cancel()
                await asyncio.wait([asking])
            while not (side := (await shown(client, gateway))["canary"]["watched"])["requests"]:
                await asyncio.sleep(0.02)
    assert (side["requests"], side["failed"]) == (1, failed)


async def test_an_arm_that_is_stopped_gets_nothing_also_where_nobody_is_there_for_the_others(
    start_gateway: StartGateway, client: httpx.AsyncClient, token_file: Path
) -> None:
    async with scripted_engine(answers("n"), model="n") as two:
        async with scripted_engine(answers("m")) as one:
            gateway = await start(start_gateway, one.url, two.url, model_routes=[SPLIT], admin_token_file=token_file)
            await stop(client, gateway, "canary")
        await until(lambda: not gateway.metric("prefixgate_endpoint_healthy", endpoint="e0"))
        found = [await ask(client, gateway, "fast") for _ in range(12)]
    assert {answer.status_code for answer in found} == {503}
    assert two.bodies == []


async def test_a_name_whose_arms_are_all_stopped_leads_to_its_fallback_or_nowhere(
    start_gateway: StartGateway, client: httpx.AsyncClient, token_file: Path
) -> None:
    async with (
        scripted_engine(answers("m")) as one,
        scripted_engine(answers("n"), model="n") as two,
        scripted_engine(answers("o"), model="o") as three,
    ):
        routes = [{**SPLIT, "fallbacks": ["o"]}]
        urls = one.url, two.url, three.url
        gateway = await start(start_gateway, *urls, model_routes=routes, admin_token_file=token_file)
        for arm in ("stable", "canary"):
            await stop(client, gateway, arm)
        found = [await ask(client, gateway, "fast") for _ in range(6)]
        alone = await ask(client, gateway, "fast", headers={"x-prefixgate-fallbacks": "never"})
    assert {answer.headers["x-prefixgate-model"] for answer in found} == {"o"}
    assert (alone.status_code, alone.json()["error"]["code"]) == (503, "service_unavailable")
    assert one.bodies == two.bodies == []


def test_of_an_arm_that_had_no_requests_of_late_the_metrics_say_nothing() -> None:
    nobody: Any = None
    registry, clock = CollectorRegistry(), [0.0]
    arms = Arm("stable", "m", 1), Arm("canary", "n", 1)
    guarded = ModelRoute("fast", arms, guard=GuardRule("canary", 0.05, 2.0, 20, 600.0))
    routes = ModelRoutes([guarded], RouteParts(nobody, nobody, RouteMetrics(registry), lambda: clock[0]))
    routes._guards["fast"].note("canary", failed=False, ttft_s=0.2)
    shown = []
    for clock[0] in (0.0, 601.0):
        routes.show()
        for name in ("prefixgate_model_canary_failed_ratio", "prefixgate_model_canary_ttft_seconds"):
            shown += [
                registry.get_sample_value(name, {"route": "fast", "side": side}) for side in ("watched", "others")
            ]
    assert shown == [0.0, None, 0.2, None, *[None] * 4]


async def test_a_gateway_that_starts_gives_a_stopped_arm_not_even_its_first_request(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    async with (
        EmbeddedServer() as redis,
        scripted_engine(answers("m")) as one,
        scripted_engine(answers("n"), model="n") as two,
    ):
        before = connect_one(redis.url)
        await before.set(f"{pool_tag('default')}:arm:fast\0canary", "an operator stopped it")
        await before.aclose()
        gateway = await start(start_gateway, one.url, two.url, index__redis_url=redis.url, model_routes=[SPLIT])
        found = [await ask(client, gateway, "fast") for _ in range(8)]
    assert {answer.headers["x-prefixgate-route-rule"] for answer in found} == {"split:stable"}
