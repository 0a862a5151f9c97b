"""Requests that wait in the gateway while all endpoints are full: real engines' ports, real clients."""

import asyncio
import json
from pathlib import Path

import httpx
import openai
import pytest

from prefix_index import EmbeddedServer
from tests.gateway.conftest import StartGateway, ledger_rows, settled, start
from tests.gateway.scripted_engine import METRICS, answer_chat, scripted_engine
from tests.gateway.taps import Taps, chat, key_of, post, waiting
from tests.gateway.test_dialects import two_tenants

HIGH_AND_LOW = {"queue__classes": [{"name": "high", "asked_by": ["*"]}, {"name": "low", "service_tiers": ["flex"]}]}
"""Whoever says nothing is of the high class."""


async def test_an_engine_never_has_more_than_its_bound_and_what_waits_comes_in_order(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    taps = Taps()
    async with scripted_engine(taps.keeps_alive) as engine:
        gateway = await start(start_gateway, engine.url, queue__max_running=2, timing__header="always")
        async with asyncio.TaskGroup() as group:
            tasks = []
            for at in range(6):
                tasks.append(group.create_task(post(client, gateway, f"r{at}")))
                await (taps.has(at + 1) if at < 2 else waiting(gateway, at - 1))
            health = (await client.get(f"{gateway.url}/health")).json()
            taps.answer(6)
        rows = await settled(gateway, 6)
    answers = [task.result() for task in tasks]
    assert (taps.most_running, taps.names) == (2, [f"r{at}" for at in range(6)])
    assert health["queue"] == {"waiting": {"default": 4}, "full": ["e0"], "bound_requests": {"e0": 2}}
    assert [answer.status_code for answer in answers] == [200] * 6
    assert ["queue;dur" in answer.headers["x-prefixgate-timing"] for answer in answers] == [False] * 2 + [True] * 4
    assert [row.state for row in rows] == ["complete"] * 6
    assert gateway.metric("prefixgate_queue_turns_total", why="in_order") == 4
    assert gateway.metric("prefixgate_queue_seconds_count") == 4
    assert gateway.metric("prefixgate_queue_requests") == gateway.metric("prefixgate_endpoint_full") == 0


async def test_a_tenant_with_many_requests_does_not_delay_one_with_few(
    start_gateway: StartGateway, client: httpx.AsyncClient, tmp_path: Path
) -> None:
    taps, ((one, two), keys) = Taps(), two_tenants(tmp_path)
    async with scripted_engine(taps.keeps_alive) as engine:
        gateway = await start(start_gateway, engine.url, queue__max_running=1, queue__most_passed=0, keys_file=keys)
        async with asyncio.TaskGroup() as group:
            for at in range(20):
                group.create_task(post(client, gateway, f"many{at}", key_of(one)))
            await waiting(gateway, 19)
            for at in range(2):
                group.create_task(post(client, gateway, f"few{at}", key_of(two)))
            await waiting(gateway, 21)
            taps.answer(22)
    # By the tokens that are computed: of the many the prefix is cached, so that five of them count as one of the few.
    first, second = sorted(map(taps.names.index, ("few0", "few1")))  # which of them came first is chance
    assert first <= 2
    assert second <= 2 + 2 * 5


async def test_a_lower_class_yields_and_is_asked_for_by_header_or_service_tier(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    taps = Taps()
    async with scripted_engine(taps.keeps_alive) as engine:
        gateway = await start(start_gateway, engine.url, queue__max_running=1, **HIGH_AND_LOW)
        async with asyncio.TaskGroup() as group:
            group.create_task(post(client, gateway, "running"))
            await taps.has(1)
            asks: list[tuple[str, dict[str, str], dict[str, object]]] = [
                ("flex", {}, {"service_tier": "flex"}),
                ("low", {"x-prefixgate-priority": "low"}, {}),
                ("unknown", {"x-prefixgate-priority": "urgent!"}, {}),
                ("plain", {}, {}),
            ]
            for at, (name, headers, fields) in enumerate(asks):
                group.create_task(post(client, gateway, name, headers, **fields))
                await waiting(gateway, at + 1)
            counted = {name: gateway.metric("prefixgate_queue_requests", **{"class": name}) for name in ("high", "low")}
            taps.answer(5)
    assert counted == {"high": 2, "low": 2}
    assert taps.names == ["running", "unknown", "plain", "flex", "low"]
    assert b"x-prefixgate" not in b"".join(engine.requests).lower()


async def test_a_client_that_leaves_while_it_waits_costs_nothing_and_frees_its_place(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    taps = Taps()
    async with scripted_engine(taps.keeps_alive) as engine:
        gateway = await start(start_gateway, engine.url, queue__max_running=1, queue__tenant_requests=1)
        async with asyncio.TaskGroup() as group:
            group.create_task(post(client, gateway, "running"))
            await taps.has(1)
            leaves = group.create_task(post(client, gateway, "leaves"))
            await waiting(gateway, 1)
            leaves.cancel()
            await waiting(gateway, 0)
            group.create_task(post(client, gateway, "stays"))
            await waiting(gateway, 1)
            taps.answer(2)
        rows = await settled(gateway, 2)
    assert taps.names == ["running", "stays"]
    assert [row.state for row in rows] == ["complete"] * 2
    assert gateway.metric("prefixgate_queue_left_total") == 1


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
async def test_more_than_may_wait_are_refused_in_the_dialect_of_their_client_with_a_time_to_come_again(
    start_gateway: StartGateway, client: httpx.AsyncClient, path: str
) -> None:
    taps = Taps()
    classes = [{"name": "default", "max_requests": 1}]
    async with scripted_engine(taps.keeps_alive) as engine:
        gateway = await start(start_gateway, engine.url, queue__max_running=1, queue__classes=classes)
        async with asyncio.TaskGroup() as group:
            group.create_task(post(client, gateway, "running"))
            await taps.has(1)
            group.create_task(post(client, gateway, "waits"))
            await waiting(gateway, 1)
            refused = await client.post(f"{gateway.url}{path}", json=chat("refused"))
            taps.answer(2)
        assert len(await settled(gateway, 2)) == 2
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
    error = refused.json()["error"]
    assert error.get("code", error["type"]) in ("queue_full", "overloaded_error")


async def test_a_tenant_that_has_too_many_waiting_is_told_429_and_the_official_client_raises_its_rate_limit_error(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    taps = Taps()
    async with scripted_engine(taps.keeps_alive) as engine:
        gateway = await start(start_gateway, engine.url, queue__max_running=1, queue__tenant_requests=1)
        official = openai.AsyncOpenAI(api_key="k", base_url=f"{gateway.url}/v1", max_retries=0)
        async with official, asyncio.TaskGroup() as group:
            group.create_task(post(client, gateway, "running"))
            await taps.has(1)
            group.create_task(post(client, gateway, "waits"))
            await waiting(gateway, 1)
            with pytest.raises(openai.RateLimitError) as refused:
                await official.chat.completions.create(model="m", messages=[{"role": "user", "content": "x"}])
            taps.answer(2)
    assert refused.value.code == "tenant_queue_full"


@pytest.mark.parametrize("field", [{"x-prefixgate-deadline-ms": "150"}, {"x-stainless-read-timeout": "0.15"}])
async def test_a_client_with_a_deadline_is_told_when_it_is_over_and_no_engine_works_for_nobody(
    start_gateway: StartGateway, client: httpx.AsyncClient, field: dict[str, str]
) -> None:
    taps = Taps()
    async with scripted_engine(taps.keeps_alive) as engine:
        gateway = await start(start_gateway, engine.url, queue__max_running=1)
        async with asyncio.TaskGroup() as group:
            group.create_task(post(client, gateway, "running"))
            await taps.has(1)
            late = await post(client, gateway, "late", field)
            taps.answer(1)
        assert len(await settled(gateway, 1)) == 1
    assert (late.status_code, late.json()["error"]["code"]) == (503, "queue_timeout")
    assert int(late.headers["retry-after"]) >= 1
    assert taps.names == ["running"]


async def test_limits_held_for_a_request_that_is_not_served_in_time_are_given_back(
    start_gateway: StartGateway, client: httpx.AsyncClient, tmp_path: Path
) -> None:
    taps, ((one, _), keys) = Taps(), two_tenants(tmp_path)
    tree = json.loads(keys.read_text())
    tree["tenants"][0]["limits"] = {"concurrent": 2}
    keys.write_text(json.dumps(tree))
    async with scripted_engine(taps.keeps_alive) as engine:
        gateway = await start(start_gateway, engine.url, queue__max_running=1, keys_file=keys)
        async with asyncio.TaskGroup() as group:
            group.create_task(post(client, gateway, "running", key_of(one)))
            await taps.has(1)
            codes = [
                (await post(client, gateway, "late", {**key_of(one), "x-prefixgate-deadline-ms": "50"})).status_code
                for _ in range(3)
            ]
            taps.answer(1)
    assert codes == [503, 503, 503]


async def test_an_engine_that_says_requests_wait_in_it_gets_no_more_until_it_says_otherwise(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    """No bound is told: it is learned from the engine's own metrics."""
    taps = Taps()
    async with scripted_engine(taps.keeps_alive) as engine:
        gateway = await start(start_gateway, engine.url, queue__max_running="auto")
        async with asyncio.TaskGroup() as group:
            for at in range(3):
                group.create_task(post(client, gateway, f"r{at}"))
            await taps.has(3)
            engine.metrics = METRICS.replace(b'running{engine="0",model_name="m"} 0', b'running{engine="0"} 2').replace(
                b'waiting{engine="0",model_name="m"} 0', b'waiting{engine="0"} 1'
            )
            while await asyncio.to_thread(gateway.metric, "prefixgate_endpoint_bound_requests") != 2:
                await asyncio.sleep(0.02)
            group.create_task(post(client, gateway, "waits"))
            await waiting(gateway, 1)
            taps.answer(3)
            await taps.has(4)
            taps.answer(1)
    assert taps.names[3] == "waits"


async def test_replicas_share_a_bound_and_each_has_its_part_of_it(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    """One replica has filled the endpoint and refills each place at once: the other is not starved.

    Until it has heard of the first, the other takes the bound for its own: at most the bound for each is ever running.
    """
    taps = Taps()
    async with EmbeddedServer() as valkey, scripted_engine(taps.keeps_alive) as engine:
        flags = {"queue__max_running": 4, "index__redis_url": valkey.url, "index__deadline_ms": 5000}
        greedy = await start(start_gateway, engine.url, **flags)
        other = await start(start_gateway, engine.url, **flags)
        async with asyncio.TaskGroup() as group:
            for at in range(12):
                group.create_task(post(client, greedy, f"g{at}"))
            await waiting(greedy, 8)
            for at in range(6):
                group.create_task(post(client, other, f"o{at}"))
            await taps.has(6)  # the four, and its part, which is two, of the other
            for answered in range(1, 19):
                taps.answer(1)
                await taps.has(min(max(answered + 2, 6), 18))
    assert taps.most_running <= 8
    assert sorted(taps.names) == sorted([f"g{at}" for at in range(12)] + [f"o{at}" for at in range(6)])


async def test_nothing_waits_where_no_endpoint_has_a_bound(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    taps = Taps()
    async with scripted_engine(taps.keeps_alive) as engine:
        gateway = await start(start_gateway, engine.url)
        async with asyncio.TaskGroup() as group:
            for at in range(8):
                group.create_task(post(client, gateway, f"r{at}"))
            await taps.has(8)
            health = (await client.get(f"{gateway.url}/health")).json()
            taps.answer(8)
        assert len(await asyncio.to_thread(ledger_rows, gateway.ledger_path)) == 8
    assert "queue" not in health


@pytest.mark.parametrize(
    ("owner", "told"), [("vllm", [b'"priority":0', b'"priority":1']), ("sglang", [b'"priority":0', b'"priority":-1'])]
)
async def test_an_engine_is_told_the_priority_of_the_class_in_its_own_terms_and_never_what_the_client_wrote(
    start_gateway: StartGateway, client: httpx.AsyncClient, owner: str, told: list[bytes]
) -> None:
    async with scripted_engine(answer_chat("Hi"), owner=owner) as engine:
        backend = {"url": engine.url, "id": "e0", "pass_priority": True}
        gateway = await start(start_gateway, backends=[backend], **HIGH_AND_LOW)
        for fields in ({"priority": -1000}, {"priority": -1000, "service_tier": "flex"}):
            assert (await post(client, gateway, "x", **fields)).status_code == 200
    assert all(b"1000" not in body for body in engine.bodies)
    assert [body[body.index(b'"priority"') :].rstrip(b"}").split(b",")[0] for body in engine.bodies] == told


async def test_an_engine_is_told_nothing_where_the_configuration_does_not_say_so(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    async with scripted_engine(answer_chat("Hi")) as engine:
        gateway = await start(start_gateway, engine.url, queue__max_running=1, **HIGH_AND_LOW)
        assert (await post(client, gateway, "x", priority=-1000, service_tier="flex")).status_code == 200
    assert b'"priority"' not in engine.bodies[0]
