"""Endpoints of a file, behind a gateway on a real port: they come, go, come back, and leave nothing behind."""

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from backends.reference.embedded import RunningEngine, run_engine
from backends.reference.types import EngineConfig
from tests.gateway.conftest import MODEL, STORY, RunningGateway, StartGateway, start
from tests.gateway.scripted_engine import chat_stream, scripted_engine
from tests.hostile import Peer
from tests.until import until

TOKEN = {"authorization": "Bearer letmein"}


@pytest.fixture(scope="module")
def other() -> Iterator[RunningEngine]:
    with run_engine(EngineConfig(model=MODEL, kv_blocks=400, threads=1)) as running:
        yield running


@pytest.fixture
def listing(tmp_path: Path) -> Path:
    return tmp_path / "endpoints.yaml"


def write(path: Path, *entries: object) -> None:
    """At once and whole, as configuration management does it."""
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps({"endpoints": entries}))
    fresh.replace(path)


async def discovered(gateway: StartGateway, listing: Path, *static: str, **flags: object) -> RunningGateway:
    given = {"discovery__file": listing, "discovery__poll_s": 0.05, "discovery__grace_s": 0, "poll_interval_s": 0.1}
    return await start(gateway, *static, **{**given, **flags})


async def until_shown(condition: Callable[[], bool]) -> None:
    """What asks the gateway does so in a thread: the engines that it polls are in the loop of the test."""
    await until(lambda: asyncio.to_thread(condition))


def takers(gateway: RunningGateway) -> list[str]:
    answer: list[str] = gateway.http.get("/ready").json()["endpoints"]
    return sorted(answer)


def known(gateway: RunningGateway) -> list[str]:
    return sorted(gateway.http.get("/health").json()["endpoints"])


def ask(gateway: RunningGateway, text: str = STORY) -> httpx.Response:
    body = {"model": MODEL, "messages": [{"role": "user", "content": text}], "max_tokens": 2, "temperature": 0}
    answer = gateway.http.post("/v1/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    return answer


async def test_endpoints_of_a_file_serve_and_those_that_are_added_join(
    start_gateway: StartGateway, engine: RunningEngine, other: RunningEngine, listing: Path
) -> None:
    write(listing, {"url": engine.url, "id": "one"})
    gateway = await discovered(start_gateway, listing)
    assert takers(gateway) == ["one"]
    assert ask(gateway).headers["x-prefixgate-endpoint"] == "one"
    write(listing, {"url": engine.url, "id": "one"}, {"url": other.url, "id": "two"})
    await until_shown(lambda: takers(gateway) == ["one", "two"])


async def test_one_that_is_listed_no_more_leaves_nothing_behind(
    start_gateway: StartGateway, engine: RunningEngine, other: RunningEngine, listing: Path, token_file: Path
) -> None:
    write(listing, {"url": engine.url, "id": "one"})
    gateway = await discovered(start_gateway, listing, other.url, admin_token_file=token_file)
    await until_shown(lambda: takers(gateway) == ["e0", "one"])
    for number in range(8):
        ask(gateway, f"{number} {STORY}")
    write(listing, {"url": other.url})  # one address of two sources is one endpoint
    await until_shown(lambda: known(gateway) == ["e0"])
    assert '"one' not in gateway.http.get("/metrics").text
    index = gateway.http.get("/admin/index", headers=TOKEN).text
    assert not re.search(r'"one[@"]', index)
    for number in range(8):
        assert ask(gateway, f"{number} {STORY}").headers["x-prefixgate-endpoint"] == "e0"


async def test_pods_that_flap_do_not_lose_what_they_hold(
    start_gateway: StartGateway, engine: RunningEngine, listing: Path
) -> None:
    write(listing, {"url": engine.url, "id": "one"})
    gateway = await discovered(start_gateway, listing, discovery__grace_s=600)
    text = f"flap {STORY}"
    ask(gateway, text)
    write(listing)
    await until_shown(lambda: takers(gateway) == [])
    write(listing, {"url": engine.url, "id": "one"})
    await until_shown(lambda: takers(gateway) == ["one"])
    answer = ask(gateway, text)
    assert int(answer.headers["x-prefixgate-cached-tokens"]) > 0
    assert answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"] > 0


async def test_a_file_that_cannot_be_used_takes_nobody_away_and_is_named(
    start_gateway: StartGateway, engine: RunningEngine, listing: Path
) -> None:
    write(listing, {"url": engine.url, "id": "one"})
    gateway = await discovered(start_gateway, listing)
    write(listing, {"url": engine.url, "id": "one", "colour": "red"})
    await until_shown(lambda: "discovery" in gateway.http.get("/health").json()["degraded"])
    why = gateway.http.get("/health").json()["degraded"]["discovery"]
    assert why == "file: endpoints.yaml: endpoint 1: colour: unknown key"
    assert takers(gateway) == ["one"]
    assert gateway.metric("prefixgate_discovery_errors_total", source="file") >= 1
    assert gateway.metric("prefixgate_discovered_endpoints", source="file", state="up") == 1
    assert gateway.metric("prefixgate_degraded", part="discovery") == 1


async def test_what_is_under_way_at_one_that_leaves_is_finished(
    start_gateway: StartGateway, listing: Path, client: httpx.AsyncClient
) -> None:
    go_on = asyncio.Event()
    first, *rest = chat_stream("One", "two")

    async def waits(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n" + first)
        await go_on.wait()
        await peer.send(b"".join(rest))

    async with scripted_engine(waits) as engine:
        write(listing, {"url": engine.url, "id": "one"})
        gateway = await discovered(start_gateway, listing)
        body = {"model": engine.model, "messages": [{"role": "user", "content": "x"}], "stream": True}
        async with client.stream("POST", f"{gateway.url}/v1/chat/completions", json=body) as answer:
            lines = answer.aiter_lines()
            await anext(lines)
            write(listing)
            await until_shown(lambda: takers(gateway) == [])
            assert known(gateway) == ["one"]
            go_on.set()
            assert "data: [DONE]" in [line async for line in lines]
        await until_shown(lambda: known(gateway) == [])


async def test_one_whose_key_is_missing_keeps_nobody_else_away(
    start_gateway: StartGateway, engine: RunningEngine, listing: Path, tmp_path: Path
) -> None:
    key = tmp_path / "key"
    write(listing, {"url": "http://127.0.0.1:9", "id": "locked", "api_key_file": str(key)}, {"url": engine.url})
    gateway = await discovered(start_gateway, listing)
    assert len(takers(gateway)) == 1
    assert "locked: cannot read the secret" in gateway.http.get("/health").json()["degraded"]["discovery"]
    key.write_text("k")
    await until_shown(lambda: "locked" in known(gateway))
