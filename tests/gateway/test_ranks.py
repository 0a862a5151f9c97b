"""Data-parallel ranks behind one address: each is decided for, reserved, matched and settled by itself."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack

import httpx
import pytest

from backends import EndpointId, PerfModel
from backends.reference.embedded import RunningEngine, run_engine
from backends.reference.model_files import ensure_model
from backends.reference.types import EngineConfig
from gateway.perf_book import PerfBook
from gateway.ranks import RankLoads, loads_of, ranked
from gateway.scheduling import Candidate, Decision, Demand
from gateway.telemetry import Telemetry
from gateway.types import Reason
from prefix_index import EmbeddedServer, Load
from tests.gateway.conftest import MODEL, STORY, RunningGateway, StartGateway, settled, start
from tests.gateway.limited import Gate
from tests.gateway.ranked_engine import ranked_engine
from tests.gateway.scripted_engine import scripted_engine
from tests.until import until

LOADS_SETTLE_S = 10.0


@pytest.fixture(scope="module")
def two() -> Iterator[tuple[RunningEngine, RunningEngine]]:
    """Two engines, each with a cache of its own."""
    with ExitStack() as stack:
        config = EngineConfig(model=MODEL, kv_blocks=400, threads=1)
        first = stack.enter_context(run_engine(config))
        yield first, stack.enter_context(run_engine(config))


def urls(engines: tuple[RunningEngine, RunningEngine]) -> tuple[str, str]:
    """Where they are."""
    return engines[0].url, engines[1].url


async def ask(gateway: RunningGateway, client: httpx.AsyncClient, text: str, **more: object) -> httpx.Response:
    """One completion of a text."""
    body = {"model": MODEL, "prompt": text, "max_tokens": 2, "temperature": 0, **more}
    answer = await client.post(f"{gateway.url}/v1/completions", json=body)
    assert answer.status_code == 200, answer.text
    return answer


async def test_a_conversation_stays_on_the_rank_that_has_its_beginning(
    two: tuple[RunningEngine, RunningEngine], start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    async with ranked_engine(*urls(two)) as server:
        gateway = await start(start_gateway, server.url, scheduling__near_tie_s=0.0)
        told, said = set(), f"Conversation one. {STORY}"
        for turn in range(4):
            answer = await ask(gateway, client, said)
            told.add(answer.headers["x-prefixgate-rank"])
            said += f" Turn {turn}: and then, at dawn, the keeper of the third well spoke of water and of salt."
        assert len(told) == 1
        assert set(server.asked) == {told.pop().encode()}
        (_, _, first), *later = server.usages
        assert all(cached > first for _, _, cached in later)
        rows = await settled(gateway, 4)
        assert [row.cached_tokens for row in rows] == [row.expected_cached_tokens for row in rows]
        assert {row.endpoint_id for row in rows} == {"e0"}, "the ledger names the endpoint that is paid for"


async def test_what_one_rank_holds_is_expected_of_no_other(
    two: tuple[RunningEngine, RunningEngine], start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    async with ranked_engine(*urls(two)) as server:
        gateway = await start(start_gateway, server.url, scheduling__policy="round_robin")
        said = f"Of two ranks. {STORY}"
        for _ in range(4):
            await ask(gateway, client, said)
        assert [rank for rank, _, _ in server.usages] == [0, 1, 0, 1]
        rows = await settled(gateway, 4)
        expected = [row.expected_cached_tokens for row in rows]
        assert expected[:2] == [0, 0], "the second rank had computed nothing yet"
        assert expected[2] == expected[3] == rows[2].cached_tokens == rows[3].cached_tokens
        assert expected[2]


async def test_a_burst_is_spread_over_the_ranks_of_one_server(
    two: tuple[RunningEngine, RunningEngine], start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    async with ranked_engine(*urls(two)) as server:
        gateway = await start(start_gateway, server.url)
        await asyncio.gather(*(ask(gateway, client, f"{number} {number} {STORY}") for number in range(12)))
        first, second = server.by_rank()
        assert max(first, second) <= 8, (first, second)


async def test_where_the_engine_does_not_heed_the_header_it_chooses_itself(
    two: tuple[RunningEngine, RunningEngine], start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    async with ranked_engine(*urls(two), version="0.11.0") as server:
        gateway = await start(start_gateway, server.url)
        answer = await ask(gateway, client, f"Unsteered. {STORY}")
        assert "x-prefixgate-rank" not in answer.headers
        assert server.asked == [None]


async def test_the_operator_can_leave_the_choice_to_the_engine(
    two: tuple[RunningEngine, RunningEngine], start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    async with ranked_engine(*urls(two)) as server:
        gateway = await start(start_gateway, backends=[{"url": server.url, "id": "e0", "choose_rank": False}])
        await ask(gateway, client, f"Left to the engine. {STORY}")
        assert server.asked == [None]


async def test_a_client_cannot_choose_a_rank(
    two: tuple[RunningEngine, RunningEngine], start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    async with ranked_engine(*urls(two)) as server:
        gateway = await start(start_gateway, server.url)
        body = {"model": MODEL, "prompt": "Mine!", "max_tokens": 1, "data_parallel_rank": 9, "routed_dp_rank": 9}
        answer = await client.post(f"{gateway.url}/v1/completions", json=body, headers={"X-Data-Parallel-Rank": "9"})
        assert answer.status_code == 200
        assert server.asked in ([b"0"], [b"1"])


async def test_a_restart_of_the_server_empties_all_its_ranks(
    two: tuple[RunningEngine, RunningEngine], start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    async with ranked_engine(*urls(two)) as server:
        gateway = await start(start_gateway, server.url, scheduling__policy="round_robin")
        said = f"Before and after a restart. {STORY}"
        for _ in range(4):
            await ask(gateway, client, said)
        server.started_at_s += 100
        for engine in two:
            engine.engine.reset_prefix_cache()
        await until(
            lambda: _generation(gateway), lambda found: found == int(server.started_at_s), within_s=LOADS_SETTLE_S
        )
        before = len(server.usages)
        for _ in range(2):
            answer = await ask(gateway, client, said)
            assert answer.headers["x-prefixgate-cached-tokens"] == "0"
        assert {rank for rank, _, _ in server.usages[before:]} == {0, 1}


async def test_four_gateways_do_not_herd_onto_a_rank_in_a_burst(start_gateway: StartGateway) -> None:
    """Sixteen requests at each of four replicas in the same instant, over two servers of two ranks."""
    held, burst = Gate(), 64
    async with AsyncExitStack() as stack:
        redis = await stack.enter_async_context(EmbeddedServer())
        client = await stack.enter_async_context(httpx.AsyncClient(timeout=60, limits=httpx.Limits()))
        ranks = [await stack.enter_async_context(scripted_engine(held.script, model=MODEL)) for _ in range(4)]
        servers = [
            await stack.enter_async_context(ranked_engine(*(rank.url for rank in pair)))
            for pair in (ranks[:2], ranks[2:])
        ]
        addresses = [server.url for server in servers]
        flags = {"index__redis_url": redis.url, "models": {MODEL: {"tokenizer": ensure_model("tiny")}}}
        gateways = [await start(start_gateway, *addresses, **flags) for _ in range(4)]
        async with asyncio.TaskGroup() as group:
            for number in range(burst):
                group.create_task(ask(gateways[number % 4], client, f"{number} {number} {STORY}"))
            await until(lambda: held.waiting >= burst, within_s=60)
            held.open()
        counts = Counter((server.url, rank) for server in servers for rank in server.asked)
    assert len(counts) == 4
    assert max(counts.values()) <= 1.3 * burst / 4, counts


async def _generation(gateway: RunningGateway) -> int:
    health = (await asyncio.to_thread(gateway.http.get, "/health")).json()
    return int(health["endpoints"]["e0"]["generation"])


SPEED = PerfModel()


def test_what_went_where_the_engine_chose_counts_for_all_its_ranks_alike() -> None:
    places = ranked("e", "e@3", 2, {}, SPEED)
    assert [(one.place, one.holder) for one in places] == [("e/0", "e@3"), ("e/1", "e@3/1")]
    loads = {"e": Load(5, 1000, 0), "e/0": Load(2, 600, 0), "e/1": Load(0, 0, 0)}
    assert list(loads_of("e", places, loads)) == [Load(4, 800, 0), Load(2, 200, 0)]
    assert list(loads_of("e", places, {"e": Load(2, 600, 9), "e/0": Load(2, 600, 9)})) == [Load(2, 600, 9), Load()]


def test_the_series_of_an_endpoints_ranks_go_with_it() -> None:
    telemetry = Telemetry()
    for place in ("e", "e/0", "e/1", "e2/0"):
        telemetry.speed.itl_s(place).set(0.01)
    telemetry.forget_endpoint("e")
    page = telemetry.exposition().decode()
    assert [line for line in page.splitlines() if line.startswith("prefixgate_perf_itl")] == [
        'prefixgate_perf_itl_seconds{endpoint="e2/0"} 0.01'
    ]


def test_each_rank_is_as_fast_as_it_shows_itself_and_until_then_as_its_endpoint() -> None:
    speeds: dict[str, PerfModel] = {}
    book = PerfBook({EndpointId("e"): SPEED}, Telemetry().speed, lambda: 0.0, speeds.__setitem__)
    book.ranks_found("e", ["e/0", "e/1"])
    assert {place: round(speed.prefill_tokens_per_s) for place, speed in speeds.items()} == {
        "e/0": 10_000,
        "e/1": 10_000,
    }
    faster = PerfModel(prefill_tokens_per_s=2 * SPEED.prefill_tokens_per_s)
    book.join("e", faster)
    rates = {place: round(speed.prefill_tokens_per_s) for place, speed in speeds.items()}
    assert rates == dict.fromkeys(("e", "e/0", "e/1"), 20_000)
    book.removed("e")
    with pytest.raises(KeyError):
        book.speed_of("e/1")


def test_a_rank_that_the_book_of_speeds_has_not_heard_of_is_as_fast_as_its_endpoint() -> None:
    book = PerfBook({EndpointId("e"): SPEED}, Telemetry().speed, lambda: 0.0, lambda *_: None)
    candidates = [Candidate("e", 0, 0, 0, SPEED, rank=rank) for rank in range(2)]
    book.dispatched(Decision(candidates[1], Reason.NO_PREFIX, candidates, {}, Demand(100, 1)), streams=True)
    assert round(book.speed_of("e/1").prefill_tokens_per_s) == 10_000


def test_a_ranks_load_is_given_back_once_even_where_it_has_left_meanwhile() -> None:
    loads = RankLoads()
    seat = loads.reserve("e/1", 100, 10)
    assert loads.read("e/1") == Load(1, 100, 10)
    loads.forget("e/1")
    assert loads.read("e/1") == Load()
    seat.release()
    seat.release()
    assert loads.read("e/1") == Load()
