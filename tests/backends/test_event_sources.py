"""Event sources of endpoints on real ports: found, kept while they cannot be told, and no reason to be down."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from backends.registry import PollSettings, Registry
from backends.types import EndpointConfig, EndpointId, EventSourceFacts
from tests.backends.engine_page import EnginePage

A = EndpointId("a")
PATH = "/kv_event_sources"
PUBLISHES = {"endpoint": "tcp://*:5557", "replay_endpoint": "tcp://*:5558", "publisher": "zmq", "topic": "kv"}
FOUND = (EventSourceFacts(0, "tcp://127.0.0.1:5557", "tcp://127.0.0.1:5558", "kv"),)


@pytest.fixture
async def engine() -> AsyncIterator[EnginePage]:
    async with EnginePage.vllm() as page:
        yield page


@pytest.fixture
async def registry(engine: EnginePage) -> AsyncIterator[Registry]:
    settings = PollSettings(deadline_s=30, polls_to_detect=1)
    config = EndpointConfig(A, engine.url + "/")
    async with Registry([config], asyncio.get_running_loop().time, settings=settings) as found:
        yield found


async def sources(registry: Registry) -> tuple[EventSourceFacts, ...]:
    await registry.poll(A)
    seen = registry.snapshot()[0]
    assert seen.healthy, seen.unhealthy_reason
    assert seen.facts is not None
    return seen.facts.event_sources


async def test_an_engine_that_publishes_is_found_out(engine: EnginePage, registry: Registry) -> None:
    engine.pages[PATH] = (200, json.dumps({"0": PUBLISHES}).encode())
    assert await sources(registry) == FOUND


@pytest.mark.parametrize("page", [(404, b""), (500, b"{}"), (200, b"no JSON"), (200, b"{}")])
async def test_an_engine_that_does_not_say_is_healthy_and_has_none(
    engine: EnginePage, registry: Registry, page: tuple[int, bytes]
) -> None:
    engine.pages[PATH] = page
    assert await sources(registry) == ()


async def test_half_a_surrogate_pair_is_left_out(engine: EnginePage, registry: Registry) -> None:
    engine.pages[PATH] = (200, json.dumps({"0": PUBLISHES | {"topic": "\ud800"}, "\udfff": [1, "\ud800"]}).encode())
    assert await sources(registry) == (replace(FOUND[0], topic=""),)


async def test_what_cannot_be_told_now_stays_as_it_was(engine: EnginePage, registry: Registry) -> None:
    engine.hangs_at.add(PATH)
    assert await sources(registry) == ()
    engine.hangs_at.clear()
    engine.pages[PATH] = (200, json.dumps({"0": PUBLISHES}).encode())
    assert await sources(registry) == FOUND
    engine.hangs_at.add(PATH)
    assert await sources(registry) == FOUND
    engine.hangs_at.clear()
    engine.pages[PATH] = (404, b"")
    assert await sources(registry) == ()


async def test_sglangs_are_read_off_its_information_page() -> None:
    events = {"publisher": "zmq", "endpoint_host": "*", "endpoint_port_base": 5557, "topic": "", "dp_size": 1}
    pages = {
        "/v1/models": (200, b'{"data":[{"id":"m","owned_by":"sglang"}]}'),
        "/server_info": (200, json.dumps({"version": "0.5.23", "kv_events": events}).encode()),
        "/ready": (200, b""),
    }
    async with (
        EnginePage(pages) as engine,
        Registry([EndpointConfig(A, engine.url)], asyncio.get_running_loop().time) as registry,
    ):
        assert await sources(registry) == (EventSourceFacts(0, "tcp://127.0.0.1:5557"),)
        assert PATH not in {path for path, _ in engine.seen}
