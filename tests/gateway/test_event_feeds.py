"""KV events in the gateway: engines that publish them are followed, and what they say goes before receipts."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest
from redis.asyncio import Redis

from backends import EndpointFacts, ServedModel
from backends.reference.embedded import RunningEngine, run_engine
from backends.reference.model_files import ensure_model
from backends.reference.types import EngineConfig, KvEventsConfig
from gateway.event_feeds import tells_enough
from prefix_index import EmbeddedServer, connect
from prefix_index.redis_census import census
from tests.gateway.conftest import RunningGateway, StartGateway, ledger_rows, settled
from tests.until import until

MODEL = "tiny"
ANYWHERE = KvEventsConfig("tcp://*:0", "tcp://*:0")
STORY = "A caravan crosses the desert by night, and every well on its way has a keeper with a name. " * 6


@contextmanager
def engine(events: KvEventsConfig | None, kv_blocks: int = 400) -> Iterator[RunningEngine]:
    with run_engine(EngineConfig(model=MODEL, kv_blocks=kv_blocks, threads=1, kv_events=events)) as running:
        yield running


@pytest.fixture
def publishing() -> Iterator[RunningEngine]:
    with engine(ANYWHERE) as running:
        yield running


def start(start_gateway: StartGateway, *engines: str, **flags: object) -> RunningGateway:
    return start_gateway(*engines, **{f"models__{MODEL}__tokenizer": ensure_model(MODEL), **flags})


def feed_states(gateway: RunningGateway) -> set[str]:
    """The states in which at least one feed is."""
    states = ("connecting", "in_step", "partial", "away", "silent", "not_consumer")
    return {state for state in states if gateway.metric("prefixgate_kv_feed_state", state=state)}


async def until_feed_is(gateway: RunningGateway, state: str, within_s: float = 20.0) -> None:
    await until(lambda: asyncio.to_thread(feed_states, gateway), lambda found: found == {state}, within_s=within_s)


async def ask(gateway: RunningGateway, *said: str, max_tokens: int = 4) -> httpx.Response:
    roles = ("user", "assistant")
    messages = [{"role": roles[turn % 2], "content": text} for turn, text in enumerate(said)]
    body = {"model": MODEL, "messages": messages, "max_tokens": max_tokens, "temperature": 0}
    answer = await asyncio.to_thread(gateway.http.post, "/v1/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    return answer


def cached_tokens(answer: httpx.Response) -> int:
    return int(answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"])


async def test_an_engine_that_says_where_it_publishes_is_followed_without_a_word_of_configuration(
    publishing: RunningEngine, start_gateway: StartGateway
) -> None:
    gateway = await asyncio.to_thread(start, start_gateway, publishing.url)
    await until_feed_is(gateway, "in_step")
    first = await ask(gateway, STORY)
    again = await ask(gateway, STORY)
    assert cached_tokens(first) == 0
    assert int(again.headers["x-prefixgate-cached-tokens"]) == cached_tokens(again) > 0
    assert gateway.metric("prefixgate_expected_vs_reported_total", mode="events", kind="reported") == cached_tokens(
        again
    )
    assert gateway.http.get("/health").json()["degraded"].get("kv_events") is None


async def test_what_an_engine_evicts_is_no_longer_expected(start_gateway: StartGateway) -> None:
    with engine(ANYWHERE, kv_blocks=40) as small:
        gateway = await asyncio.to_thread(start, start_gateway, small.url)
        await until_feed_is(gateway, "in_step")
        await ask(gateway, STORY)
        for number in range(3):  # three strangers of the same length leave no room for it
            await ask(gateway, f"{number} " + STORY[::-1])
        rows = await settled(gateway, 4)
        assert {row.cached_tokens for row in rows} == {0}
        answer = await ask(gateway, STORY)
        assert int(answer.headers["x-prefixgate-cached-tokens"]) == cached_tokens(answer)


async def test_a_clear_that_nobody_told_the_gateway_of_is_followed(
    publishing: RunningEngine, start_gateway: StartGateway
) -> None:
    gateway = await asyncio.to_thread(start, start_gateway, publishing.url)
    await until_feed_is(gateway, "in_step")
    await ask(gateway, STORY)
    assert httpx.post(f"{publishing.url}/reset_prefix_cache").status_code == 200
    await ask(gateway, "Something else altogether.")  # engines tell of a clear with their next step
    answer = await ask(gateway, STORY)
    assert cached_tokens(answer) == 0
    assert int(answer.headers["x-prefixgate-cached-tokens"]) == 0


async def test_what_was_cached_before_the_gateway_came_is_learned_from_the_replay(
    publishing: RunningEngine, start_gateway: StartGateway
) -> None:
    body = {"model": MODEL, "messages": [{"role": "user", "content": STORY}], "max_tokens": 1, "cache_salt": "x" * 32}
    httpx.post(f"{publishing.url}/v1/chat/completions", json=body, timeout=60).raise_for_status()
    first = await asyncio.to_thread(start, start_gateway, publishing.url)
    await until_feed_is(first, "in_step")
    await ask(first, STORY)
    second = await asyncio.to_thread(start, start_gateway, publishing.url)  # with an index of its own, and empty
    await until_feed_is(second, "in_step")
    answer = await ask(second, STORY)
    assert int(answer.headers["x-prefixgate-cached-tokens"]) == cached_tokens(answer) > 0


async def test_an_address_at_which_nobody_publishes_is_named_in_health_and_receipts_do_the_work(
    start_gateway: StartGateway,
) -> None:
    with socket.socket() as nobody, engine(None) as quiet:
        nobody.bind(("127.0.0.1", 0))
        url = f"tcp://127.0.0.1:{nobody.getsockname()[1]}"
        backend = {"url": quiet.url, "id": "e0", "kv_events": {"url": url}}
        gateway = await asyncio.to_thread(start, start_gateway, backends=[backend])
        await until_feed_is(gateway, "away", within_s=30)
        await ask(gateway, STORY)
        again = await ask(gateway, STORY)
        assert int(again.headers["x-prefixgate-cached-tokens"]) == cached_tokens(again) > 0
        told = gateway.http.get("/health").json()["degraded"]["kv_events"]
        assert told.startswith("e0: ")
        assert url in told
        assert {row.state for row in ledger_rows(gateway.ledger_path)} == {"complete"}


async def test_events_that_are_switched_off_are_not_followed(
    publishing: RunningEngine, start_gateway: StartGateway
) -> None:
    backend = {"url": publishing.url, "id": "e0", "kv_events": {"mode": "off"}}
    gateway = await asyncio.to_thread(start, start_gateway, backends=[backend])
    await ask(gateway, STORY)
    await ask(gateway, STORY)
    assert feed_states(gateway) == set()
    assert gateway.metric("prefixgate_expected_vs_reported_total", mode="receipts", kind="reported") > 0


@pytest.mark.parametrize(
    ("engine", "version", "adapters", "enough"),
    [
        ("vllm", None, True, True),
        ("sglang", "0.5.17", False, False),
        ("sglang", "0.5.18", False, True),
        ("sglang", "0.5.21.post1", True, False),
        ("sglang", "0.5.22+cu129", True, True),
        ("sglang", None, False, False),
    ],
)
def test_events_that_do_not_tell_salts_or_adapters_apart_are_not_followed(
    engine: str, version: str | None, adapters: bool, enough: bool
) -> None:
    models = (ServedModel("m"), *([ServedModel("lora", parent="m")] if adapters else []))
    assert tells_enough(EndpointFacts(engine, models, version=version)) is enough


async def test_redis_flush_costs_a_followed_engine_nothing(
    publishing: RunningEngine, start_gateway: StartGateway
) -> None:
    async with EmbeddedServer() as server:
        gateway = await asyncio.to_thread(start, start_gateway, publishing.url, index__redis_url=server.url)
        await until_feed_is(gateway, "in_step")
        await ask(gateway, STORY)
        known = int((await ask(gateway, STORY)).headers["x-prefixgate-cached-tokens"])
        assert known > 0
        async with connect(server.url) as client:
            assert isinstance(client, Redis)
            await client.flushall()
        await until(
            lambda: holds(server.url),
            lambda found: gateway.metric("prefixgate_kv_feed_state", state="in_step") == 1 and found,
        )
        answer = await ask(gateway, STORY)
        assert int(answer.headers["x-prefixgate-cached-tokens"]) == cached_tokens(answer) == known


async def holds(url: str) -> bool:
    """Whether the index on a server has any block."""
    async with connect(url) as client:
        return bool((await census(client, "default")).blocks)


async def test_a_feed_that_would_take_the_messages_of_another_is_named_in_health(
    publishing: RunningEngine, start_gateway: StartGateway
) -> None:
    assert publishing.engine.events is not None
    at = {"url": publishing.engine.events.url.replace("*", "127.0.0.1")}
    with engine(None) as other:
        backends = [{"url": publishing.url, "id": "e0"}, {"url": other.url, "id": "e1", "kv_events": at}]
        gateway = await asyncio.to_thread(start, start_gateway, backends=backends)
        await until(lambda: gateway.http.get("/health").json()["degraded"].get("kv_events"))
        assert "share it" in gateway.http.get("/health").json()["degraded"]["kv_events"]
