"""What users of routers saw go wrong with fleets as a whole: paths on which nobody counted, a router that lost all it
knew when it was replaced, one that searched all of Redis for each request, one that fell over at a thousand requests.

Each test is one such story and has its name; whole gateways on real ports, engines answer from a script.
"""

import asyncio
import json
from typing import Any, Final

import httpx
import pytest
from redis.asyncio import Redis

from prefix_index import EmbeddedServer
from tests.gateway.conftest import RunningGateway, StartGateway, start
from tests.gateway.scripted_engine import METRICS, USAGE, answer_chat, answer_json, scripted_engine
from tests.gateway.test_regressions_relay import CHAT, answers, ask, nothing_is_left
from tests.hostile import Peer
from tests.until import until

IN_TIME_S: Final = 20.0
MESSAGES: Final[list[dict[str, Any]]] = [{"role": "user", "content": "Where are the books?"}]
EVERY_PATH: Final[dict[str, dict[str, Any]]] = {
    "/v1/chat/completions": {"messages": MESSAGES},
    "/v1/completions": {"prompt": "Where are the books?"},
    "/v1/messages": {"messages": MESSAGES, "max_tokens": 5},
    "/v1/responses": {"input": "Where are the books?"},
    "/v1/embeddings": {"input": "Where are the books?"},
    "/v1/rerank": {"query": "books", "documents": ["a", "b"]},
}


async def loads(client: httpx.AsyncClient, gateway: RunningGateway) -> dict[str, int]:
    """Requests in flight at each endpoint, as `/health` has them."""
    endpoints = (await client.get(f"{gateway.url}/health")).json()["endpoints"]
    return {name: endpoint["in_flight_requests"] for name, endpoint in endpoints.items()}


@pytest.mark.parametrize("path", EVERY_PATH)
@pytest.mark.parametrize("streams", [True, False])
async def test_load_is_counted_on_every_path_so_that_no_endpoint_gets_all(
    path: str, streams: bool, start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    """A proxy counted load on one of its paths only; to the others every engine looked idle, and one got all."""
    go_on = asyncio.Event()

    async def waits(peer: Peer) -> None:
        await asyncio.wait_for(go_on.wait(), IN_TIME_S)
        await answer_json({"usage": USAGE, "data": [], "results": []})(peer)

    async with (
        scripted_engine(waits, routes=frozenset(EVERY_PATH)) as one,
        scripted_engine(waits, routes=frozenset(EVERY_PATH)) as other,
    ):
        gateway = await start(start_gateway, one.url, other.url, health__stall_s=0)
        body = {"model": "m", "stream": streams} | EVERY_PATH[path]
        asked = [asyncio.ensure_future(client.post(f"{gateway.url}{path}", json=body)) for _ in range(8)]
        await until(lambda: loads(client, gateway), lambda found: sum(found.values()) >= 8, within_s=IN_TIME_S)
        assert min((await loads(client, gateway)).values()) >= 1
        go_on.set()
        await asyncio.gather(*asked)
        await nothing_is_left(gateway)


async def test_fail_over_keeps_affinity_a_gateway_that_starts_anew_knows_what_the_one_before_it_knew(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    """A router that was replaced knew nothing, and no conversation found its prefix again."""
    async with (
        EmbeddedServer() as redis,
        scripted_engine(answer_chat("Hi")) as one,
        scripted_engine(answer_chat("Hi")) as other,
    ):
        shared = {"index__redis_url": redis.url, "index__deadline_ms": 500.0}
        before = await start(start_gateway, one.url, other.url, **shared)
        began = await ask(client, before)
        assert began.headers["x-prefixgate-cached-tokens"] == "0"
        for _ in range(3):
            went_on = await ask(client, before)
        before.server.should_exit = True
        await until(
            lambda: is_there(client, before), lambda found: not (before.server.started and found), within_s=IN_TIME_S
        )
        after = await start(start_gateway, one.url, other.url, **shared)
        again = await ask(client, after)
        assert again.headers["x-prefixgate-cached-tokens"] == went_on.headers["x-prefixgate-cached-tokens"] == "32"
        assert again.headers["x-prefixgate-endpoint"] == began.headers["x-prefixgate-endpoint"]


async def is_there(client: httpx.AsyncClient, gateway: RunningGateway) -> bool:
    """Whether a gateway answers."""
    try:
        await client.get(f"{gateway.url}/ready")
    except httpx.HTTPError:
        return False
    return True


async def test_redis_is_never_searched_for_a_request(start_gateway: StartGateway, client: httpx.AsyncClient) -> None:
    """Scoring asked Redis for all KEYS, each time, and stood behind it."""
    async with EmbeddedServer() as server, scripted_engine(answer_chat("Hi")) as engine:
        gateway = await start(start_gateway, engine.url, index__redis_url=server.url, index__deadline_ms=500.0)
        for number in range(10):
            messages = [{"role": "user", "content": f"{number}: Where are the books?"}]
            assert (await ask(client, gateway, messages=messages)).status_code == 200
        async with Redis.from_url(server.url) as redis:
            asked = set(await redis.info("commandstats"))
    assert any("fcall" in name or "evalsha" in name for name in asked), "it was in use"
    searched = {"keys", "scan", "hscan", "sscan", "zscan"}
    assert {name for name in asked if name.removeprefix("cmdstat_").partition("|")[0] in searched} == set()


async def test_more_than_a_thousand_requests_at_once_are_all_answered(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    """Beyond a thousand a router crashed; beyond an engine's bound it answered 400, or 500."""
    async with scripted_engine(answer_chat("Hi")) as one, scripted_engine(answer_chat("Hi")) as other:
        patient = {"poll_interval_s": 600, "limits__connect_s": 60.0}  # these engines accept a hundred at a time
        gateway = await start(start_gateway, one.url, other.url, **patient)
        async with asyncio.timeout(100):
            found = await asyncio.gather(*(answers(gateway, 1) for _ in range(1100)))
        assert sum(({status: n for (status, _), n in one.items()}.get(200, 0)) for one in found) == 1100
        await nothing_is_left(gateway)


async def test_block_size_mismatch_engines_of_two_block_sizes_are_both_matched_and_say_theirs(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    """Two sizes in one fleet, and nothing matched at either, in silence."""
    async with scripted_engine(answer_chat("Hi")) as small, scripted_engine(answer_chat("Hi")) as large:
        small.metrics = METRICS.replace(b'block_size="16"', b'block_size="8"')
        gateway = await start(start_gateway, small.url, large.url, scheduling__policy="round_robin")
        health = (await client.get(f"{gateway.url}/health")).json()
        assert [health["endpoints"][name]["block_size_tokens"] for name in ("e0", "e1")] == [8, 16]
        expected: dict[str, set[str]] = {"e0": set(), "e1": set()}
        for _ in range(10):
            answer = await ask(client, gateway)
            expected[answer.headers["x-prefixgate-endpoint"]].add(answer.headers["x-prefixgate-cached-tokens"])
        # 40 tokens of which the engines report 32: whole blocks of both.
        assert ("32" in expected["e0"], "32" in expected["e1"]) == (True, True)


async def test_short_prompts_of_one_model_are_not_taken_for_one_prompt(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    """Prompts shorter than a block all had the same first hash, and each was expected where another had been."""
    ids = [list(range(number, number + 9)) for number in range(0, 90, 9)]
    usage = {"prompt_tokens": 9, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 0}}
    async with scripted_engine(answer_json({"choices": [{"text": "Hi"}], "usage": usage})) as engine:
        gateway = await start(start_gateway, engine.url)
        for prompt in ids * 2:
            answer = await client.post(f"{gateway.url}/v1/completions", json={"model": "m", "prompt": prompt})
            assert answer.headers["x-prefixgate-cached-tokens"] == "0"


@pytest.mark.parametrize(
    "header",
    ["x-prefixgate-endpoint", "target-pod", "routing-strategy", "x-gateway-destination-endpoint", "host", "forwarded"],
)
async def test_a_clients_header_never_says_where_its_request_goes(
    header: str, start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    """A routing header from outside sent requests to a wrong port, and they failed with 500."""
    async with scripted_engine(answer_chat("Hi")) as engine:
        gateway = await start(start_gateway, engine.url)
        answer = await client.post(
            f"{gateway.url}/v1/chat/completions", content=json.dumps(CHAT), headers={header: "127.0.0.1:9"}
        )
        assert (answer.status_code, answer.headers["x-prefixgate-endpoint"]) == (200, "e0")


async def test_a_slow_or_frozen_redis_is_no_endpoints_fault(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    """Our own deadline to the index ran out, and the endpoints' breakers opened."""

    async def hangs(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(65536):
            pass
        writer.close()

    frozen = await asyncio.start_server(hangs, "127.0.0.1", 0)
    async with frozen, scripted_engine(answer_chat("Hi")) as engine:
        url = f"redis://127.0.0.1:{frozen.sockets[0].getsockname()[1]}/0"
        gateway = await start(start_gateway, engine.url, index__redis_url=url)
        found = await asyncio.gather(*(ask(client, gateway) for _ in range(60)))
        assert {answer.status_code for answer in found} == {200}
        standing = (await client.get(f"{gateway.url}/health")).json()["endpoints"]["e0"]["standing"]
        assert (standing["state"], standing["breaker_opened"]) == ("up", 0)
        assert gateway.metric("prefixgate_endpoint_faults_total") == 0
