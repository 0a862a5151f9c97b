"""Limits and budgets of one gateway: who is let in, what the others are told, and that nothing stays held."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import anthropic
import httpx
import openai
import pytest
from redis.asyncio import Redis

from prefix_index import EmbeddedServer
from tests.gateway.conftest import StartGateway, settled, start
from tests.gateway.limited import KEY, OTHER_KEY, Gate, bearer, keys_file, post, prices_file
from tests.gateway.scripted_engine import (
    ScriptedEngine,
    answer_chat,
    answer_json,
    chat_stream,
    delta,
    scripted_engine,
)
from tests.hostile import hang, stream

DAY = [{"amount": "0.05", "per": "day"}]


@pytest.fixture
async def engine() -> AsyncIterator[ScriptedEngine]:
    async with scripted_engine(answer_chat("Hi")) as running:
        yield running


async def statuses(client: httpx.AsyncClient, url: str, number: int) -> list[int]:
    """Of so many calls, one after the other."""
    return [(await post(client, url)).status_code for _ in range(number)]


async def test_a_tenant_without_limits_asks_redis_nothing_about_them(
    engine: ScriptedEngine, start_gateway: StartGateway, tmp_path: Path, client: httpx.AsyncClient
) -> None:
    async with EmbeddedServer() as server:
        gateway = await start(start_gateway, engine.url, keys_file=keys_file(tmp_path), index__redis_url=server.url)
        answer = await post(client, gateway.url)
        assert answer.status_code == 200
        assert not [name for name in answer.headers if "ratelimit" in name]
        async with Redis.from_url(server.url) as redis:
            assert not [key async for key in redis.scan_iter("{pgq:*")]


async def test_requests_a_minute_are_counted_and_every_answer_says_what_is_left(
    engine: ScriptedEngine, start_gateway: StartGateway, tmp_path: Path, client: httpx.AsyncClient
) -> None:
    limits = {"requests_per_minute": 3, "tokens_per_minute": 1000}
    gateway = await start(start_gateway, engine.url, keys_file=keys_file(tmp_path, limits=limits))
    answers = [await post(client, gateway.url) for _ in range(4)]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
    left = [answer.headers["x-ratelimit-remaining-requests"] for answer in answers]
    assert left == ["2", "1", "0", "0"]
    assert answers[0].headers["x-ratelimit-limit-tokens"] == "1000"
    refused = answers[3]
    assert 1 <= int(refused.headers["retry-after"]) <= 60
    assert refused.headers["x-ratelimit-reset-requests"].endswith("s")
    assert refused.json()["error"]["code"] == "rate_limit_exceeded"
    assert refused.json()["error"]["type"] == "requests"
    assert len(await settled(gateway, 3)) == 3
    assert gateway.metric("prefixgate_limit_refusals_total", kind="requests") == 1


async def test_the_clients_of_both_apis_raise_what_they_always_raise(
    engine: ScriptedEngine, start_gateway: StartGateway, tmp_path: Path
) -> None:
    gateway = await start(
        start_gateway, engine.url, keys_file=keys_file(tmp_path, key={"limits": {"requests_per_minute": 1}})
    )
    messages = [{"role": "user", "content": "Hi"}]
    async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=KEY, max_retries=0) as one:
        await one.chat.completions.create(model="m", messages=messages, max_tokens=2)  # type: ignore[arg-type]
        with pytest.raises(openai.RateLimitError, match="rate limit of key acme-1 reached: 1 requests a minute"):
            await one.chat.completions.create(model="m", messages=messages, max_tokens=2)  # type: ignore[arg-type]
    async with anthropic.AsyncAnthropic(base_url=gateway.url, api_key=KEY, max_retries=0) as other:
        with pytest.raises(anthropic.RateLimitError) as refused:
            await other.messages.create(model="m", messages=messages, max_tokens=2)  # type: ignore[arg-type]
    assert refused.value.body == {
        "type": "error",
        "error": {"type": "rate_limit_error", "message": refused.value.response.json()["error"]["message"]},
    }
    assert refused.value.response.headers["anthropic-ratelimit-requests-remaining"] == "0"


@pytest.mark.parametrize(("weight", "let_in"), [(0, 10), (1, 2)])
async def test_w_cached_tokens_count_towards_tokens_a_minute_by_their_weight(
    engine: ScriptedEngine,
    start_gateway: StartGateway,
    tmp_path: Path,
    client: httpx.AsyncClient,
    weight: int,
    let_in: int,
) -> None:
    limits = {"tokens_per_minute": 100, "cached_token_weight": weight}
    gateway = await start(start_gateway, engine.url, keys_file=keys_file(tmp_path, limits=limits))
    # 40 prompt tokens and 2 of the answer; 32 are cached, which is expected from the second call on.
    assert await statuses(client, gateway.url, 12) == [200] * let_in + [429] * (12 - let_in)


async def test_68_calls_at_once_are_no_more_than_allowed_and_each_end_makes_room(
    start_gateway: StartGateway, tmp_path: Path, client: httpx.AsyncClient
) -> None:
    gate = Gate()
    async with scripted_engine(gate.script) as engine:
        gateway = await start(start_gateway, engine.url, keys_file=keys_file(tmp_path, limits={"concurrent": 2}))
        async with asyncio.TaskGroup() as group:
            first = [group.create_task(post(client, gateway.url)) for _ in range(2)]
            await gate.reached(2)
            refused = await post(client, gateway.url, key=OTHER_KEY)
            gate.open()
        assert [task.result().status_code for task in first] == [200, 200]
        assert (refused.status_code, refused.json()["error"]["type"]) == (429, "concurrent_requests")
        async with asyncio.timeout(10):
            while (await post(client, gateway.url)).status_code != 200:
                pass


async def test_66_a_spent_budget_is_a_429_of_its_own_until_the_period_ends(
    engine: ScriptedEngine, start_gateway: StartGateway, tmp_path: Path, client: httpx.AsyncClient
) -> None:
    gateway = await start(
        start_gateway, engine.url, keys_file=keys_file(tmp_path, budgets=DAY), prices_file=prices_file(tmp_path)
    )
    found: list[httpx.Response] = []
    async with asyncio.timeout(20):
        while not found or found[-1].status_code == 200 or found[-1].json()["error"]["type"] == "budget":
            found.append(await post(client, gateway.url))
            if found[-1].status_code == 200:
                await settled(gateway, sum(one.status_code == 200 for one in found))
    assert sum(one.status_code == 200 for one in found) == 3
    last = found[-1]
    assert last.json()["error"]["code"] == "insufficient_quota"
    assert "the budget of tenant acme is spent until" in last.json()["error"]["message"]
    assert 0 < int(last.headers["retry-after"]) <= 24 * 3600
    assert last.headers["x-should-retry"] == "false"


async def test_a_budget_is_what_the_ledger_says_after_redis_has_lost_everything(
    engine: ScriptedEngine, start_gateway: StartGateway, tmp_path: Path, client: httpx.AsyncClient
) -> None:
    async with EmbeddedServer() as server, Redis.from_url(server.url) as redis:
        gateway = await start(
            start_gateway,
            engine.url,
            keys_file=keys_file(tmp_path, budgets=DAY),
            prices_file=prices_file(tmp_path),
            index__redis_url=server.url,
        )
        assert await statuses(client, gateway.url, 1) == [200]
        await settled(gateway, 1)
        spent = []
        for _ in range(3):
            await redis.flushall()
            answer = await post(client, gateway.url)
            spent.append(answer.status_code)
            rows = await settled(gateway, spent.count(200) + 1)
            assert len(rows) == spent.count(200) + 1
        # 0.02, 0.04 and 0.06 of 0.05: the third was let in alone with what was left.
        assert spent == [200, 200, 429]


async def test_71_a_request_that_may_cost_more_than_the_budget_is_served_alone(
    start_gateway: StartGateway, tmp_path: Path, client: httpx.AsyncClient
) -> None:
    gate = Gate()
    async with scripted_engine(gate.script) as engine:
        gateway = await start(
            start_gateway, engine.url, keys_file=keys_file(tmp_path, budgets=DAY), prices_file=prices_file(tmp_path)
        )
        async with asyncio.TaskGroup() as group:
            alone = group.create_task(post(client, gateway.url, max_tokens=1000))
            await gate.reached(1)
            beside = await post(client, gateway.url)
            gate.open()
        assert alone.result().status_code == 200
        assert (beside.status_code, beside.json()["error"]["type"]) == (429, "budget")


@pytest.mark.parametrize(
    "asked",
    [
        {"n": "3", "max_tokens": 1000},
        {"n": 3.0, "max_tokens": 1000},
        {"max_tokens": 1, "n_predict": 3000},
        {"max_tokens": 3000, "max_completion_tokens": 1},
        {"n": 999_999, "best_of": 10**30, "max_tokens": 10**30},
    ],
)
async def test_what_engines_read_as_more_answers_or_longer_ones_is_held_too(
    start_gateway: StartGateway, tmp_path: Path, client: httpx.AsyncClient, asked: dict[str, object]
) -> None:
    gate = Gate()
    async with scripted_engine(gate.script) as engine:
        gateway = await start(
            start_gateway, engine.url, keys_file=keys_file(tmp_path, limits={"tokens_per_minute": 2900})
        )
        async with asyncio.TaskGroup() as group:
            first = group.create_task(post(client, gateway.url, key=KEY, **asked))
            await gate.reached(1)
            beside = await post(client, gateway.url)
            gate.open()
        assert first.result().status_code == 200
        assert (beside.status_code, beside.json()["error"]["type"]) == (429, "tokens")


async def test_a_batch_of_more_tokens_than_redis_can_count_is_no_fault_of_ours(
    start_gateway: StartGateway, tmp_path: Path, client: httpx.AsyncClient
) -> None:
    limits = {"tokens_per_minute": 1000}
    body = {"model": "m", "prompt": ["a"] * 20_000, "n": 999_999, "max_tokens": 10**30}
    async with scripted_engine(answer_chat("Hi")) as engine:
        gateway = await start(
            start_gateway,
            engine.url,
            keys_file=keys_file(tmp_path, limits=limits, budgets=DAY),
            prices_file=prices_file(tmp_path),
        )
        answer = await client.post(f"{gateway.url}/v1/completions", json=body, headers=bearer())
        assert answer.status_code == 200
        assert (await client.get(f"{gateway.url}/health")).json()["degraded"] == {}


@pytest.mark.parametrize(("policy", "status"), [("deny", 403), ("allow", 200)])
async def test_n_and_76_a_model_without_a_price_is_never_free_under_a_budget(
    engine: ScriptedEngine,
    start_gateway: StartGateway,
    tmp_path: Path,
    client: httpx.AsyncClient,
    policy: str,
    status: int,
) -> None:
    gateway = await start(
        start_gateway,
        engine.url,
        keys_file=keys_file(tmp_path, key={"budgets": DAY}),
        prices_file=prices_file(tmp_path, "another"),
        quota__unpriced=policy,
    )
    answer = await post(client, gateway.url)
    assert answer.status_code == status
    if status == 403:
        assert answer.json()["error"]["code"] == "model_not_priced"
    # 72: who has no budget is not refused over a price.
    assert (await post(client, gateway.url, key=OTHER_KEY)).status_code == 200


async def test_70_what_fails_or_is_cut_leaves_nothing_held(
    start_gateway: StartGateway, tmp_path: Path, client: httpx.AsyncClient
) -> None:
    scripts = [
        answer_json({"error": {"message": "no"}}, 400),
        answer_json({"error": {"message": "broken"}}, 500),
        stream(delta("H"), end=False),
        stream(*chat_stream("H", "i")),
        hang,
    ]
    async with scripted_engine(*scripts) as engine:
        gateway = await start(
            start_gateway,
            engine.url,
            keys_file=keys_file(tmp_path, limits={"concurrent": 1, "requests_per_minute": 1000}),
        )
        for _ in range(4):
            async with asyncio.timeout(10):
                while True:
                    answer = await post(client, gateway.url, stream=True)
                    if answer.status_code != 429:
                        break
        with pytest.raises(httpx.ReadTimeout):
            await client.post(
                f"{gateway.url}/v1/chat/completions", json={"model": "m", "messages": []}, headers=bearer(), timeout=0.3
            )
        await settled(gateway, 5)
        engine.scripts.append(answer_chat("Hi"))
        async with asyncio.timeout(10):
            while (await post(client, gateway.url)).status_code != 200:
                pass


@pytest.mark.parametrize(("policy", "expected"), [("local", [200, 429]), ("deny", [503, 503]), ("allow", [200, 200])])
async def test_69_without_redis_the_stated_policy_holds(
    engine: ScriptedEngine,
    start_gateway: StartGateway,
    tmp_path: Path,
    client: httpx.AsyncClient,
    policy: str,
    expected: list[int],
) -> None:
    async with EmbeddedServer() as server:
        gateway = await start(
            start_gateway,
            engine.url,
            keys_file=keys_file(tmp_path, limits={"requests_per_minute": 2}),
            index__redis_url=server.url,
            quota__limits_down=policy,
        )
        assert await statuses(client, gateway.url, 1) == [200]
        await server.stop()
        found = [(await post(client, gateway.url)) for _ in range(3)]
        # The share of the only replica is all of it, and begins anew when Redis goes.
        assert [one.status_code for one in found[1:]] == expected
        health = (await client.get(f"{gateway.url}/health")).json()["degraded"]
        assert "Redis is away" in health["limits"]
        assert gateway.metric("prefixgate_limit_stand_in_answers_total") >= 2
        if policy == "deny":
            assert found[1].json()["error"]["code"] == "limits_unavailable"
            assert found[1].headers["retry-after"] == "1"


async def test_what_was_spent_while_redis_was_away_is_charged_when_it_is_back(
    engine: ScriptedEngine, start_gateway: StartGateway, tmp_path: Path, client: httpx.AsyncClient
) -> None:
    server = EmbeddedServer()
    await server.start()
    try:
        gateway = await start(
            start_gateway,
            engine.url,
            keys_file=keys_file(tmp_path, budgets=[{"amount": "0.10", "per": "month", "time_zone": "Asia/Tokyo"}]),
            prices_file=prices_file(tmp_path),
            index__redis_url=server.url,
        )
        assert await statuses(client, gateway.url, 2) == [200, 200]
        await settled(gateway, 2)
    finally:
        await server.stop()
    assert await statuses(client, gateway.url, 3) == [200, 200, 200]
    await settled(gateway, 5)
    assert (await post(client, gateway.url)).status_code == 429
