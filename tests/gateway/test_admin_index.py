"""`/admin/index`: what the index holds is shown in numbers and hashes, never in words, and a holder can be ended."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from backends.reference.embedded import RunningEngine, run_engine
from backends.reference.model_files import ensure_model
from backends.reference.types import EngineConfig, KvEventsConfig
from gateway.index_report import hot_row
from prefix_index import Chain, Claim, EmbeddedServer, HotPrefix, SharedIndex, SharedIndexOptions, connect, inspection
from tests.gateway.conftest import MODEL, STORY, RunningGateway, StartGateway
from tests.gateway.scripted_engine import answer_chat, scripted_engine
from tests.prefix_index.door import Door
from tests.until import until

TOKEN = {"authorization": "Bearer letmein"}
PATHS = (
    ("GET", "/admin/index"),
    ("GET", "/admin/index/top"),
    ("GET", "/admin/index/check"),
    ("POST", "/admin/index/clear?endpoint=e0"),
)


@pytest.fixture
async def gateway(engine: RunningEngine, start_gateway: StartGateway, token_file: Path) -> RunningGateway:
    return await started(start_gateway, engine.url, token_file)


async def started(start_gateway: StartGateway, url: str, token_file: Path, **flags: object) -> RunningGateway:
    tokenizer = {f"models__{MODEL}__tokenizer": ensure_model(MODEL)}
    return await asyncio.to_thread(start_gateway, url, admin_token_file=token_file, **tokenizer, **flags)


async def ask(gateway: RunningGateway, said: str) -> httpx.Response:
    body = {"model": MODEL, "messages": [{"role": "user", "content": said}], "max_tokens": 4, "temperature": 0}
    answer = await asyncio.to_thread(gateway.http.post, "/v1/chat/completions", json=body)
    assert answer.status_code == 200
    return answer


async def call(gateway: RunningGateway, path: str, method: str = "GET") -> httpx.Response:
    return await asyncio.to_thread(gateway.http.request, method, path, headers=TOKEN)


async def shown(gateway: RunningGateway, path: str = "/admin/index", method: str = "GET") -> Any:
    answer = await call(gateway, path, method)
    assert answer.status_code == 200, answer.text
    return answer.json()


def confirmed_blocks(report: Any) -> int:
    return sum(row["blocks"] for row in report["holders"] if row["claim"] == "confirmed")


async def until_confirmed(gateway: RunningGateway, at_least: int = 1) -> Any:
    """The report, once so many blocks are known to be held."""
    return await until(lambda: shown(gateway), lambda report: confirmed_blocks(report) >= at_least)


async def until_empty(gateway: RunningGateway) -> None:
    await until(lambda: shown(gateway), lambda found: not any(row["blocks"] for row in found["holders"]))


async def test_the_index_says_who_holds_how_much_and_how_far_it_can_be_relied_on(gateway: RunningGateway) -> None:
    for _ in range(3):
        await ask(gateway, STORY)
    report = await until_confirmed(gateway)
    (row,) = [row for row in report["holders"] if row["claim"] == "confirmed"]
    assert (row["endpoint"], row["rank"], row["is_present"]) == ("e0", 0, True)
    assert row["holder"] == f"e0@{row['generation']}"
    assert row["capacity_blocks"] == 400
    assert row["nodes"] >= 1
    assert 60 > row["oldest_use_s"] >= row["newest_use_s"] >= 0
    assert (report["store"], report["degraded"], report["dropped_writes"]) == ("redis", None, 0)
    assert report["total"] == report["shards"][0]
    assert report["total"]["blocks"] == row["blocks"]
    assert 8 * row["blocks"] < report["total"]["estimated_bytes"] < report["max_bytes"]
    (account,) = report["reliability"]["endpoints"]
    assert (account["endpoint"], account["mode"]) == ("e0", "receipts")
    window = account["window"]
    assert window["reported_share"] == window["reported_tokens"] / window["prompt_tokens"] > 0.5
    assert window["expected_share"] == window["expected_tokens"] / window["prompt_tokens"] > 0.5
    assert report["feeds"] == []


async def test_the_heaviest_prefix_is_the_one_that_prompts_share(gateway: RunningGateway) -> None:
    for ending in ("Who keeps the first?", "Who keeps the second?", "What is drawn from the third one?"):
        await ask(gateway, STORY + ending)
    await until_confirmed(gateway)
    report = await shown(gateway, "/admin/index/top?top=2&max_nodes=1000")
    first, second = report["prefixes"]
    assert not report["is_cut"]
    assert report["nodes_read"] >= 4
    assert (first["prompts"], first["fan_out"]) == (3, 3)
    assert first["depth_tokens"] == first["tokens"] == first["blocks"] * 16
    assert first["weight_tokens"] == first["tokens"] * 3 > second["weight_tokens"]
    assert second["depth_blocks"] == first["depth_blocks"] + second["blocks"]
    assert [holder.partition("@")[0] for holder in first["holders"]] == ["e0"]
    assert 60 > first["last_use_s"] >= 0
    assert len(bytes.fromhex(first["hash"])) == 8


async def test_no_word_of_a_prompt_and_no_key_is_in_any_answer(gateway: RunningGateway) -> None:
    await ask(gateway, STORY)
    await until_confirmed(gateway)
    for method, path in PATHS:
        text = (await call(gateway, path, method)).text.lower()
        assert not [word for word in (*set(STORY.lower().split()), "letmein") if len(word) > 3 and word in text]


async def test_an_endpoint_that_is_cleared_is_expected_to_hold_nothing(gateway: RunningGateway) -> None:
    for _ in range(2):
        warm = await ask(gateway, STORY)
    assert int(warm.headers["x-prefixgate-cached-tokens"]) > 0
    report = await until_confirmed(gateway)
    answer = await shown(gateway, "/admin/index/clear?endpoint=e0", "POST")
    (holder,) = answer["holders"]
    assert holder.startswith("e0@")
    assert {(row["holder"], row["claim"], row["blocks"]) for row in answer["cleared"]} == {
        (row["holder"], row["claim"], row["blocks"]) for row in report["holders"]
    }
    await until_empty(gateway)
    cold = await ask(gateway, STORY)
    assert int(cold.headers["x-prefixgate-cached-tokens"]) == 0
    assert cold.json()["usage"]["prompt_tokens_details"]["cached_tokens"] > 0  # the engine was told nothing
    await until_confirmed(gateway)
    again = await ask(gateway, STORY)
    assert int(again.headers["x-prefixgate-cached-tokens"]) > 0


async def test_what_kv_events_tell_of_an_endpoint_that_is_cleared_is_read_anew(
    start_gateway: StartGateway, token_file: Path
) -> None:
    events = KvEventsConfig("tcp://*:0", "tcp://*:0")
    with run_engine(EngineConfig(model=MODEL, kv_blocks=400, threads=1, kv_events=events)) as publishing:
        gateway = await started(start_gateway, publishing.url, token_file)
        await until(lambda: gateway.metric("prefixgate_kv_feed_state", state="in_step"))
        await ask(gateway, STORY)
        before = confirmed_blocks(await until_confirmed(gateway))
        (feed,) = (await shown(gateway))["feeds"]
        assert (feed["endpoint_id"], feed["state"], feed["counts"]["gaps"]) == ("e0", "in_step", 0)
        (holder,) = (await shown(gateway, "/admin/index/clear?endpoint=e0", "POST"))["holders"]
        assert confirmed_blocks(await until_confirmed(gateway, before)) == before
        again = await ask(gateway, STORY)
        assert (
            int(again.headers["x-prefixgate-cached-tokens"])
            == again.json()["usage"]["prompt_tokens_details"]["cached_tokens"]
            > 0
        )
        assert holder.startswith("e0@")


async def test_holders_of_the_past_are_shown_as_such_and_can_be_cleared_by_name(
    engine: RunningEngine, start_gateway: StartGateway, token_file: Path
) -> None:
    chain = Chain(bytes(range(64)), 16, 128)
    async with EmbeddedServer() as server, connect(server.url) as redis:
        options = SharedIndexOptions(shards=2, deadline_s=5.0)
        index = SharedIndex(redis, pool="default", replica="other", options=options)
        for holder in ("e0@7", "e0@7/1", "gone@3", "odd"):
            index.observe(holder, chain)
        index.observe("gone@3", Chain(bytes(range(1, 41)), 16, 80), Claim.DISK)
        await index.drain()
        gateway = await started(start_gateway, engine.url, token_file, index__redis_url=server.url, index__shards=2)
        report = await shown(gateway)
        assert {(r["holder"], r["endpoint"], r["generation"], r["rank"], r["claim"]) for r in report["holders"]} == {
            ("e0@7", "e0", 7, 0, "confirmed"),
            ("e0@7/1", "e0", 7, 1, "confirmed"),
            ("gone@3", "gone", 3, 0, "confirmed"),
            ("gone@3", "gone", 3, 0, "disk"),
            ("odd", "odd", None, 0, "confirmed"),
        }
        assert not any(row["is_present"] for row in report["holders"])
        assert len(report["shards"]) == 2
        assert report["total"]["blocks"] == sum(shard["blocks"] for shard in report["shards"]) == 8 + 5
        unknown_size = (await shown(gateway, "/admin/index/top"))["prefixes"]
        assert {prefix["tokens"] for prefix in unknown_size if "gone@3" in prefix["holders"]} <= {None, 128}
        answer = await shown(gateway, "/admin/index/clear?holder=gone@3", "POST")
        assert answer["holders"] == ["gone@3"]
        assert {(row["claim"], row["blocks"]) for row in answer["cleared"]} == {("confirmed", 8), ("disk", 5)}
        await until(lambda: shown(gateway), lambda found: "gone@3" not in {row["holder"] for row in found["holders"]})
        assert (await call(gateway, "/admin/index/clear?holder=gone@3", "POST")).status_code == 404


async def test_the_present_holder_can_be_cleared_by_name_too_even_where_it_holds_nothing(
    gateway: RunningGateway,
) -> None:
    endpoints = await shown(gateway, "/admin/endpoints")
    holder = endpoints[0]["holder"]
    answer = await shown(gateway, f"/admin/index/clear?holder={holder}", "POST")
    assert answer == {"holders": [holder], "cleared": []}


async def test_a_sound_index_has_no_broken_invariant_and_a_large_one_is_not_checked(gateway: RunningGateway) -> None:
    await ask(gateway, STORY)
    await until_confirmed(gateway)
    report = await shown(gateway, "/admin/index/check")
    assert report["broken"] == []
    assert report["nodes"] >= 1
    assert report["own_nodes"] >= 1
    refused = await call(gateway, "/admin/index/check?max_nodes=1")
    assert refused.status_code == 409
    assert refused.json()["detail"].endswith("give a larger max_nodes (at most 100,000)")


async def test_a_large_index_at_an_address_can_be_checked_from_outside(
    start_gateway: StartGateway, token_file: Path
) -> None:
    chain = Chain(bytes(range(64)), 16, 128)
    async with scripted_engine(answer_chat("Hi")) as scripted, EmbeddedServer() as server:
        async with connect(server.url) as redis:
            index = SharedIndex(redis, pool="default", replica="r", options=SharedIndexOptions(deadline_s=5.0))
            for first in range(2):
                index.observe("e0@1", Chain(chain.hashes[8 * first :], 16, 64))
            await index.drain()
        gateway = await started(start_gateway, scripted.url, token_file, index__redis_url=server.url)
        refused = await call(gateway, "/admin/index/check?max_nodes=1")
        assert refused.status_code == 409
        assert "the index has 2 nodes, and this gateway's own copy 0" in refused.json()["detail"]
        assert "`prefixgate check --index` looks at all in Redis" in refused.json()["detail"]


@pytest.mark.parametrize(
    ("path", "method"),
    [
        ("/admin/index/top?top=0", "GET"),
        ("/admin/index/top?top=1001", "GET"),
        ("/admin/index/top?top=many", "GET"),
        ("/admin/index/top?max_nodes=0", "GET"),
        ("/admin/index/top?max_nodes=200001", "GET"),
        ("/admin/index/check?max_nodes=100001", "GET"),
        ("/admin/index/clear", "POST"),
        ("/admin/index/clear?endpoint=e0&holder=e0@1", "POST"),
    ],
)
async def test_what_cannot_be_asked_is_refused(path: str, method: str, gateway: RunningGateway) -> None:
    assert (await call(gateway, path, method)).status_code == 422


async def test_nobody_is_cleared_by_a_name_that_is_not_known(gateway: RunningGateway) -> None:
    for query in ("endpoint=nobody", "holder=nobody@1", "holder=e0@1", "holder=%0A"):
        answer = await call(gateway, f"/admin/index/clear?{query}", "POST")
        assert answer.status_code == 404
        assert "nobody" in answer.json()["detail"] or "no holder" in answer.json()["detail"]


async def test_without_the_token_nothing_is_shown_and_nothing_cleared(gateway: RunningGateway) -> None:
    await ask(gateway, STORY)
    before = await until_confirmed(gateway)
    for method, path in PATHS:
        for headers in ({}, {"authorization": "Bearer wrong"}):
            answer = await asyncio.to_thread(gateway.http.request, method, path, headers=headers)
            assert answer.status_code == 401
            assert "e0" not in answer.text
    assert confirmed_blocks(await shown(gateway)) >= confirmed_blocks(before)


async def test_where_redis_is_away_it_is_said_and_nothing_is_cleared(
    start_gateway: StartGateway, token_file: Path
) -> None:
    async with scripted_engine(answer_chat("Hi")) as scripted, EmbeddedServer() as server:
        gateway = await asyncio.to_thread(
            start_gateway, scripted.url, admin_token_file=token_file, index__redis_url=server.url
        )
        await shown(gateway)
        await server.stop()
        for method, path in PATHS[1:]:
            answer = await call(gateway, path, method)
            assert answer.status_code == 503
            assert answer.json()["detail"].startswith("the index could not be read: ")
        await until(
            lambda: call(gateway, "/admin/index/top"),
            lambda found: "own copy meanwhile: unreachable" in found.json()["detail"],
        )


async def test_what_needs_no_redis_is_shown_also_while_redis_hangs_and_soon(
    engine: RunningEngine, start_gateway: StartGateway, token_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspection, "ANSWER_S", 600.0)
    monkeypatch.setattr(inspection, "DEGRADED_ANSWER_S", 0.1)
    async with EmbeddedServer() as server:
        door = Door(server.url)
        await door.open()
        try:
            gateway = await started(start_gateway, engine.url, token_file, index__redis_url=door.url)
            for _ in range(2):
                await ask(gateway, STORY)
            await until_confirmed(gateway)
            door.hold()
            await until(lambda: gateway.metric("prefixgate_degraded", part="index"))
            report = await shown(gateway)
            assert (report["store"], report["total"], report["holders"], report["shards"]) == (None, None, [], [])
            assert report["unreadable"] == "no answer within 0.1 s"
            assert [row["endpoint"] for row in report["reliability"]["endpoints"]] == ["e0"]
            assert report["feeds"] == []
            assert (await call(gateway, "/admin/index/check")).status_code == 503
        finally:
            await door.shut()


async def test_an_index_in_this_process_alone_is_shown_as_such(
    engine: RunningEngine, start_gateway: StartGateway, token_file: Path
) -> None:
    gateway = await started(start_gateway, engine.url, token_file, index__embedded=False)
    await ask(gateway, STORY)
    report = await until_confirmed(gateway)
    assert (report["store"], report["degraded"]) == ("process", None)
    assert [row["endpoint"] for row in report["holders"] if row["claim"] == "confirmed"] == ["e0"]
    assert (await shown(gateway, "/admin/index/top"))["prefixes"] == []
    assert (await shown(gateway, "/admin/index/check"))["broken"] == []
    await shown(gateway, "/admin/index/clear?endpoint=e0", "POST")
    assert (await shown(gateway))["holders"] == []


def test_of_a_prefix_that_everyone_holds_a_few_are_named_and_all_are_counted() -> None:
    holders = tuple(f"e{number:03}@1" for number in range(300))
    row = hot_row(HotPrefix("00", 2, None, 3, 3, 6, holders, 1.0), {"e007": 32})
    assert (row.holders, row.holder_count) == (list(holders[:50]), 300)
    assert (row.tokens, row.depth_tokens, row.weight_tokens) == (64, None, 192)


async def test_the_openapi_document_says_what_each_answer_is_made_of(gateway: RunningGateway) -> None:
    document = await shown(gateway, "/admin/openapi.json")
    schemas = document["components"]["schemas"]
    for path, method, name in (
        ("/admin/index", "get", "IndexReport"),
        ("/admin/index/top", "get", "HotReport"),
        ("/admin/index/clear", "post", "Cleared"),
        ("/admin/index/check", "get", "CheckReport"),
    ):
        answers = document["paths"][path][method]["responses"]
        assert answers["200"]["content"]["application/json"]["schema"]["$ref"].endswith(f"/{name}")
        assert ("503" in answers) == (path != "/admin/index")
    report = await shown(gateway)
    assert set(schemas["IndexReport"]["properties"]) == set(report)
