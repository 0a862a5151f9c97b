"""Why a request missed, with real engines behind a real gateway."""

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from backends.reference.embedded import RunningEngine, run_engine
from backends.reference.model_files import ensure_model
from backends.reference.types import EngineConfig
from tests.gateway.conftest import RunningGateway, StartGateway, settled, start
from tests.gateway.scripted_engine import answer_chat, scripted_engine

LIBRARY = " ".join(f"Shelf {7 * n} holds the books on subject number {n}." for n in range(30))
CLEAR = "/admin/index/clear?endpoint=e0"
LAW = " ".join(f"Paragraph {n} says who owes what to whom, and when." for n in range(30))


@pytest.fixture(scope="module")
def engines() -> Iterator[list[RunningEngine]]:
    config = EngineConfig(model="tiny", served_model_name="tiny", kv_blocks=600, threads=1)
    with run_engine(config) as one, run_engine(config) as two:
        yield [one, two]


@pytest.fixture(autouse=True)
def _cold(engines: list[RunningEngine]) -> None:
    for engine in engines:
        httpx.post(f"{engine.url}/reset_prefix_cache").raise_for_status()


def verdicts(path: Path) -> list[tuple[str | None, str | None]]:
    """Verdict and miss of each request, oldest first."""
    query = "SELECT verdict, miss_reason FROM settlements JOIN requests USING (request_id) ORDER BY opened_at_us"
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        return connection.execute(query).fetchall()


def ask(gateway: RunningGateway, system: str, *turns: str) -> int:
    """The cached tokens that the gateway expects."""
    roles = ("user", "assistant")
    messages = [{"role": "system", "content": system}]
    messages += [{"role": roles[n % 2], "content": text} for n, text in enumerate(turns)]
    body = {"model": "tiny", "messages": messages, "max_tokens": 1, "temperature": 0}
    answer = gateway.http.post("/v1/chat/completions", json=body)
    assert answer.status_code == 200
    return int(answer.headers["x-prefixgate-cached-tokens"])


def start_over(start: StartGateway, engines: list[RunningEngine], **flags: object) -> RunningGateway:
    return start(*(e.url for e in engines), models={"tiny": {"tokenizer": ensure_model("tiny")}}, **flags)


async def test_cold_then_a_further_turn_then_a_prompt_that_changed_then_an_evicted_one(
    engines: list[RunningEngine], start_gateway: StartGateway
) -> None:
    gateway = await asyncio.to_thread(start_over, start_gateway, engines[:1])

    def drive() -> int:
        ask(gateway, LIBRARY, "Where is gravity?")
        ask(gateway, LIBRARY, "Where is gravity?", "On shelf 7.", "And botany, music, law and the sea, where are they?")
        shared = ask(
            gateway, LIBRARY, "Something else entirely, which is asked for the first time, and is long enough."
        )
        ask(gateway, LAW, "Who owes?")
        httpx.post(f"{engines[0].url}/reset_prefix_cache").raise_for_status()
        ask(gateway, LAW, "Who owes?")
        return shared

    shared = await asyncio.to_thread(drive)
    await settled(gateway, 5)
    found = verdicts(gateway.ledger_path)
    assert found == [
        ("verified", "cold"),
        ("verified", None),
        ("verified", f"prompt_changed:{shared}"),
        ("verified", "prompt_changed:0"),
        ("engine_lower", "evicted"),
    ]
    assert shared > 300
    assert gateway.metric("prefixgate_verdicts_total", verdict="verified") == 4
    assert gateway.metric("prefixgate_misses_total", reason="evicted") == 1


async def test_a_prompt_that_a_policy_sends_elsewhere_says_how_much_that_lost(
    engines: list[RunningEngine], start_gateway: StartGateway
) -> None:
    """Round robin knows of no prefixes, but the index does."""
    gateway = await asyncio.to_thread(start_over, start_gateway, engines, scheduling__policy="round_robin")
    for _ in range(2):
        await asyncio.to_thread(ask, gateway, LIBRARY, "Where is gravity?")
    [first, second] = await settled(gateway, 2)
    assert first.endpoint_id != second.endpoint_id
    assert second.prompt_tokens is not None
    lost = (second.prompt_tokens - 1) // 16 * 16
    assert verdicts(gateway.ledger_path) == [("verified", "cold"), ("verified", f"routed_elsewhere:{lost}")]


async def test_a_restarted_engine_is_why_a_prompt_missed(start_gateway: StartGateway) -> None:
    config = EngineConfig(model="tiny", served_model_name="tiny", kv_blocks=600, threads=1)
    with run_engine(config) as engine:
        port = int(engine.url.rpartition(":")[2])
        gateway = await asyncio.to_thread(start_over, start_gateway, [engine])
        await asyncio.to_thread(ask, gateway, LIBRARY, "Where is gravity?")
        before = gateway.http.get("/health").json()["endpoints"]["e0"]["generation"]
    with run_engine(config, port=port):
        async with httpx.AsyncClient(base_url=gateway.url) as client, asyncio.timeout(20):
            while True:
                seen = (await client.get("/health")).json()["endpoints"]["e0"]
                if seen["healthy"] and seen["generation"] != before:
                    break
                await asyncio.sleep(0.02)
        await asyncio.to_thread(ask, gateway, LIBRARY, "Where is gravity?")
        await settled(gateway, 2)
    assert verdicts(gateway.ledger_path) == [("verified", "cold"), ("verified", "restarted")]


async def test_what_the_index_has_forgotten_has_expired_and_what_it_knew_was_evicted(
    engines: list[RunningEngine],
    start_gateway: StartGateway,
    token_file: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gateway.miss_reasons.INDEX_FORGETS_S", 0.0)
    gateway = await asyncio.to_thread(start_over, start_gateway, engines[:1], admin_token_file=token_file)
    await asyncio.to_thread(ask, gateway, LIBRARY, "Where is gravity?")
    for forgotten in (True, False):
        httpx.post(f"{engines[0].url}/reset_prefix_cache").raise_for_status()
        if forgotten:
            cleared = gateway.http.post(CLEAR, headers={"authorization": "Bearer letmein"})
            assert cleared.status_code == 200, cleared.text
        await asyncio.to_thread(ask, gateway, LIBRARY, "Where is gravity?")
    [_, expired, _] = await settled(gateway, 3)
    assert expired.prompt_tokens is not None
    lost = (expired.prompt_tokens - 1) // 16 * 16
    assert [reason for _, reason in verdicts(gateway.ledger_path)] == ["cold", "expired", "evicted"]
    assert gateway.metric("prefixgate_lost_tokens_total", reason="expired") == lost
    assert gateway.metric("prefixgate_lost_tokens_total", reason="evicted") == lost


async def test_where_bytes_stand_for_tokens_that_is_why_nothing_is_known(start_gateway: StartGateway) -> None:
    usage = {"prompt_tokens": 400, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 0}}
    async with scripted_engine(answer_chat("Hi", usage), owner="llamacpp") as engine:
        gateway = await start(start_gateway, engine.url)
        body = {"model": "m", "messages": [{"role": "user", "content": LIBRARY}]}
        answer = await asyncio.to_thread(gateway.http.post, "/v1/chat/completions", json=body)
        assert answer.status_code == 200
        await settled(gateway, 1)
    assert gateway.metric("prefixgate_prompts_total", source="bytes") == 1
    assert verdicts(gateway.ledger_path) == [(None, "tokens_degraded")]
