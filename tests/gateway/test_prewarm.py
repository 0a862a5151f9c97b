"""An endpoint that came back empty is given the most valuable prefixes, if so configured: at nobody's expense."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends import EndpointId
from backends.reference.embedded import run_engine
from backends.reference.model_files import ensure_model
from backends.reference.types import EngineConfig
from gateway.prewarm import MOST_BODY_BYTES, Kept, PrewarmBook
from gateway.types import Plan, TokenSource
from prefix_index import HASH_BYTES, Chain, Match
from tests.gateway.conftest import STORY, RunningGateway, StartGateway, settled
from tests.gateway.scripted_engine import METRICS, ScriptedEngine, answer_chat, answer_json, scripted_engine
from tests.gateway.test_storm import parts_of
from tests.hostile import Peer
from tests.until import until

ENGINE = EngineConfig(model="tiny", served_model_name="tiny", kv_blocks=600, threads=1)


def chat(question: str, story: str = STORY) -> dict[str, object]:
    messages = [{"role": "system", "content": story}, {"role": "user", "content": question}]
    return {"model": "tiny", "messages": messages, "max_tokens": 3, "temperature": 0}


def kept(name: bytes, saved_tokens: float = 16.0, body: bytes = b"{}", chain: tuple[bytes, ...] = ()) -> Kept:
    hashes = b"".join(one.rjust(HASH_BYTES) for one in chain or (name,))
    plan = Plan(Chain(hashes, 16, 2 * len(hashes)), TokenSource.LOCAL)
    return Kept(name.rjust(HASH_BYTES), "m", "/v1/chat/completions", body, plan, True, saved_tokens, 0)


async def until_prewarmed(gateway: RunningGateway, outcome: str, count: int = 1) -> None:
    await until(
        lambda: asyncio.to_thread(gateway.metric, "prefixgate_prewarm_requests_total", outcome=outcome),
        lambda found: found >= count,
    )


async def until_restart_is_seen(gateway: RunningGateway, before: int) -> None:
    async with httpx.AsyncClient(base_url=gateway.url) as client, asyncio.timeout(20):
        while True:
            endpoint = (await client.get("/health")).json()["endpoints"]["e0"]
            if endpoint["healthy"] and endpoint["generation"] != before:
                return
            await asyncio.sleep(0.02)


async def generation_of(client: httpx.AsyncClient) -> int:
    return int((await client.get("/health")).json()["endpoints"]["e0"]["generation"])


async def asked_twice(gateway: RunningGateway) -> int:
    """Two prompts with a common beginning; the generation of the engine that answered."""
    async with httpx.AsyncClient(base_url=gateway.url, timeout=60) as client:
        for question in ("Who keeps the first well?", "Who keeps the last?"):
            (await client.post("/v1/chat/completions", json=chat(question))).raise_for_status()
        return await generation_of(client)


async def test_an_engine_that_restarts_is_given_the_prefix_and_no_tenant_pays(start_gateway: StartGateway) -> None:
    models = {"tiny": {"tokenizer": ensure_model("tiny")}}
    with run_engine(ENGINE) as engine:
        url = engine.url
        gateway = await asyncio.to_thread(start_gateway, url, models=models, scheduling__prewarm_prefixes=4)
        await asked_twice(gateway)
    with run_engine(ENGINE, port=int(url.rpartition(":")[2])):
        await until_prewarmed(gateway, "computed")
        await settled(gateway, 2)
        async with httpx.AsyncClient(base_url=gateway.url, timeout=60) as client:
            answer = await client.post("/v1/chat/completions", json=chat("And who the well between them?"))
        expected = int(answer.headers["x-prefixgate-cached-tokens"])
        assert expected > 100
        rows = await settled(gateway, 3)
        assert rows[-1].cached_tokens == expected
        assert gateway.metric("prefixgate_prewarm_tokens_total", endpoint="e0") > expected
        assert gateway.metric("prefixgate_requests_total") == 3


async def test_by_default_nothing_is_kept_and_nothing_sent(start_gateway: StartGateway) -> None:
    async with restarting_engine() as engine:
        gateway = await asyncio.to_thread(start_gateway, engine.url)
        before = await ask_scripted(gateway)
        restart(engine)
        await until_restart_is_seen(gateway, before)
        await ask_scripted(gateway)
    assert len(engine.bodies) == 4
    assert gateway.metric("prefixgate_prewarm_requests_total") == 0


async def test_what_is_sent_is_the_same_prompt_for_one_token_without_the_clients_headers(
    start_gateway: StartGateway,
) -> None:
    async with restarting_engine() as engine:
        gateway = await asyncio.to_thread(start_gateway, engine.url, scheduling__prewarm_prefixes=4)
        await ask_scripted(gateway)
        restart(engine)
        await until_prewarmed(gateway, "computed")
    asked, sent = json.loads(engine.bodies[0]), json.loads(engine.bodies[-1])
    assert sent == {**asked, "max_tokens": 1, "stream": False}
    assert sent["cache_salt"]
    assert b"x-of-the-client" in engine.requests[0].lower()
    assert b"x-of-the-client" not in engine.requests[-1].lower()


async def test_after_a_failure_no_more_are_sent(start_gateway: StartGateway) -> None:
    async with restarting_engine() as engine:
        gateway = await asyncio.to_thread(start_gateway, engine.url, scheduling__prewarm_prefixes=4)
        await ask_scripted(gateway)
        engine.scripts.append(answer_json({"error": {"message": "out of memory"}}, status=500))
        restart(engine)
        await until_prewarmed(gateway, "failed")
        assert gateway.metric("prefixgate_prewarm_requests_total") == 1


async def test_a_prompt_that_the_engine_refuses_does_not_keep_the_others_from_being_warmed(
    start_gateway: StartGateway,
) -> None:
    models = {"m": {"tokenizer": ensure_model("tiny")}}
    async with restarting_engine() as engine:
        gateway = await asyncio.to_thread(start_gateway, engine.url, models=models, scheduling__prewarm_prefixes=4)
        await ask_scripted(gateway)
        await ask_scripted(gateway, "Another caravan crosses another desert. " * 20)
        too_long = answer_json({"error": {"message": "longer than the context"}}, status=400)
        engine.scripts[:] = [*[answer_chat("Hi")] * 4, too_long, answer_chat("Hi")]
        restart(engine)
        await until_prewarmed(gateway, "computed")
    assert gateway.metric("prefixgate_prewarm_requests_total", outcome="refused") == 1
    assert gateway.metric("prefixgate_prewarm_requests_total", outcome="failed") == 0


async def test_a_prompt_that_asked_for_log_probabilities_is_sent_without_all_fields_of_them(
    start_gateway: StartGateway,
) -> None:
    async with restarting_engine() as engine:
        gateway = await asyncio.to_thread(start_gateway, engine.url, scheduling__prewarm_prefixes=4)
        await ask_scripted(gateway, logprobs=True, top_logprobs=5)
        restart(engine)
        await until_prewarmed(gateway, "computed")
    assert json.loads(engine.bodies[0])["top_logprobs"] == 5
    assert not {"logprobs", "top_logprobs"} & json.loads(engine.bodies[-1]).keys()


async def test_an_answer_that_never_ends_does_not_count_as_work_for_ever(start_gateway: StartGateway) -> None:
    ended = asyncio.Event()

    async def endless(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n")
        try:
            while True:
                await peer.send(b" ")
                await asyncio.sleep(0.02)
        finally:
            ended.set()

    async with restarting_engine() as engine:
        flags = {"limits__first_byte_s": 0.5, "scheduling__prewarm_prefixes": 4}
        gateway = await asyncio.to_thread(start_gateway, engine.url, **flags)
        await ask_scripted(gateway)
        engine.scripts.append(endless)
        restart(engine)
        await until_prewarmed(gateway, "failed")
        async with asyncio.timeout(5):
            await ended.wait()


async def test_an_engine_that_restarts_again_meanwhile_is_warmed_for_the_last_time_it_started(
    start_gateway: StartGateway, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with restarting_engine() as engine:
        gateway = await asyncio.to_thread(start_gateway, engine.url, scheduling__prewarm_prefixes=4)
        await ask_scripted(gateway)
        parts = parts_of(gateway)
        match, restarts = parts.index.match, iter([1795970001])

        async def restarted_meanwhile(chain: Chain) -> Match[str]:
            found = await match(chain)
            for generation in restarts:
                for listener in parts.fleet._registry._listeners:
                    listener(EndpointId("e0"), generation)
            return found

        monkeypatch.setattr(parts.index, "match", restarted_meanwhile)
        restart(engine)
        await until_prewarmed(gateway, "computed")
        assert parts.fleet.holder_of("e0") == "e0@1795970001"
    assert len(engine.bodies) == 3
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


async def test_an_adapters_prompt_is_sent_only_to_engines_that_are_told_of_it_in_the_same_way(
    start_gateway: StartGateway,
) -> None:
    def listing(owner: str) -> dict[str, object]:
        return {"data": [{"id": "m", "owned_by": owner}, {"id": "sql", "owned_by": owner, "parent": "m"}]}

    async with restarting_engine() as engine, scripted_engine(answer_chat("Hi"), owner="sglang") as other:
        engine.pages["/v1/models"], other.pages["/v1/models"] = listing("vllm"), listing("sglang")
        flags = {"scheduling__prewarm_prefixes": 4, "isolation": "none"}
        gateway = await asyncio.to_thread(start_gateway, engine.url, other.url, **flags)
        fleet, prewarmer = parts_of(gateway).fleet, parts_of(gateway).prewarmer
        while not fleet.is_up("e1"):
            await asyncio.sleep(0.02)
        for model, rows, heirs in (("sql", 2, 0), ("m", 4, 1)):
            async with httpx.AsyncClient(base_url=gateway.url, timeout=60) as client:
                for number in range(2):
                    body = {**chat(f"Well {number}?"), "model": model}
                    answer = (await client.post("/v1/chat/completions", json=body)).raise_for_status()
            await settled(gateway, rows)
            holder = EndpointId(answer.headers["x-prefixgate-endpoint"])
            heir = EndpointId({"e0": "e1", "e1": "e0"}[holder])
            assert prewarmer.hand_over(holder, heir) == heirs
            prewarmer.forget()


async def test_an_adapter_whose_prompt_was_sent_to_an_engine_that_came_back_is_loaded_there(
    start_gateway: StartGateway,
) -> None:
    async with restarting_engine() as engine:
        engine.pages["/v1/models"] = {"data": [{"id": "m", "owned_by": "vllm"}, {"id": "sql", "parent": "m"}]}
        gateway = await asyncio.to_thread(start_gateway, engine.url, scheduling__prewarm_prefixes=4)
        await ask_scripted(gateway, model="sql")
        restart(engine)
        await until_prewarmed(gateway, "computed")
        assert gateway.metric("prefixgate_adapter_requests_total", endpoint="e0", residency="absent") == 2
        await ask_scripted(gateway, model="sql")
        assert gateway.metric("prefixgate_adapter_requests_total", endpoint="e0", residency="absent") == 2


@asynccontextmanager
async def restarting_engine() -> AsyncIterator[ScriptedEngine]:
    """It finds two blocks of each prompt, and tells its start time by a page of metrics that `restart` changes."""
    async with scripted_engine(*[answer_chat("Hi")] * 2) as engine:
        yield engine


def restart(engine: ScriptedEngine) -> None:
    engine.metrics = METRICS.replace(b"1795961218.5", b"1795969999.5")


async def ask_scripted(gateway: RunningGateway, story: str = STORY, **fields: object) -> int:
    async with httpx.AsyncClient(base_url=gateway.url, timeout=60) as client:
        for number in range(2):
            body = {**chat(f"Well {number}?", story), "model": "m", **fields}
            answer = await client.post("/v1/chat/completions", json=body, headers={"x-of-the-client": "1"})
            answer.raise_for_status()
        return await generation_of(client)


def test_what_saved_most_comes_first_and_no_prefix_twice() -> None:
    book = PrewarmBook()
    book.keep(kept(b"early", 100, chain=(b"early", b"x")))
    book.keep(kept(b"late", 300, chain=(b"early", b"late", b"y")))
    book.keep(kept(b"other", 200))
    assert [one.name.strip() for one in book.best(9, lambda _: True)] == [b"late", b"other"]
    assert [one.name.strip() for one in book.best(1, lambda one: b"other" in one.name)] == [b"other"]


def test_the_shortest_body_stands_for_a_prefix_and_long_ones_are_not_kept() -> None:
    book = PrewarmBook()
    for body in (b'{"a": 1}', b"{}", b'{"b": 22}'):
        book.keep(kept(b"p", body=body))
    book.keep(kept(b"long", body=b" " * (MOST_BODY_BYTES + 1)))
    assert [(one.name.strip(), one.body) for one in book.best(9, lambda _: True)] == [(b"p", b"{}")]


@given(st.lists(st.tuples(st.sampled_from([b"a", b"b", b"c", b"d", b"e"]), st.integers(1, 1000)), max_size=60))
def test_the_book_is_bounded_and_worth_is_what_was_saved_where_all_fit(seen: list[tuple[bytes, int]]) -> None:
    small, large = PrewarmBook(2), PrewarmBook()
    totals: dict[bytes, float] = {}
    for name, tokens in seen:
        small.keep(kept(name, tokens))
        large.keep(kept(name, tokens))
        totals[name] = totals.get(name, 0) + tokens
        assert len(small) <= 2
    best = large.best(9, lambda _: True)
    assert len(best) == len(totals)
    for one in best:  # 60 requests fade by 3 %
        assert 0.97 * totals[one.name.strip()] <= one.saved_tokens <= totals[one.name.strip()]
