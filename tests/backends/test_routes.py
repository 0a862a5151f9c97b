"""Which routes an endpoint speaks, asked over real ports: engines' own ways to say no, silence, and broken answers."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from backends.reference.embedded import run_engine
from backends.reference.types import EngineConfig
from backends.registry import PollSettings, Registry
from backends.types import EndpointConfig, EndpointId
from tests.backends.engine_page import VLLM_METRICS, VLLM_MODELS, EnginePage
from tests.hostile import HostileServer, Peer

A = EndpointId("a")
ALWAYS = {"/v1/chat/completions", "/v1/completions"}
NEWER = {"/v1/responses", "/v1/messages", "/v1/messages/count_tokens", "/v1/embeddings"}
PATIENT = PollSettings(deadline_s=30, polls_to_detect=1)


@pytest.fixture
async def engine() -> AsyncIterator[EnginePage]:
    async with EnginePage.vllm() as page:
        yield page


def registry_of(url: str, settings: PollSettings = PATIENT) -> Registry:
    return Registry([EndpointConfig(A, url)], asyncio.get_running_loop().time, settings=settings)


def routes(registry: Registry) -> set[str]:
    seen = registry.snapshot()[0]
    assert seen.healthy, seen.unhealthy_reason
    assert seen.facts is not None
    return set(seen.facts.routes)


@pytest.mark.parametrize(
    ("answer", "spoken"),
    [
        ((400, b'{"error":{"message":"1 validation error","code":400}}'), True),
        ((422, b'{"detail":[{"type":"missing","loc":["body","model"]}]}'), True),
        ((500, b""), True),
        ((404, b'{"detail":"Not Found"}'), False),
        ((404, b'{"error":{"code":404,"message":"File Not Found","type":"not_found_error"}}'), False),
        ((404, b'{"error":{"message":"The model `` does not exist.","code":404}}'), True),
        ((404, b'{"message":"no Route matched with those values: /v1/models"}'), False),
        ((404, b""), False),
        ((405, b'{"detail":"Method Not Allowed"}'), False),
        ((501, b'{"error":{"code":501,"message":"This server does not support embeddings"}}'), False),
    ],
)
async def test_a_refusal_of_an_empty_object_tells_whether_a_route_is_spoken(
    engine: EnginePage, answer: tuple[int, bytes], spoken: bool
) -> None:
    engine.pages["POST /v1/messages"] = answer
    async with registry_of(engine.url) as registry:
        await registry.poll(A)
        assert routes(registry) == (ALWAYS | {"/v1/messages"} if spoken else ALWAYS)


async def test_routes_are_asked_when_an_engine_is_detected_and_not_with_each_poll(engine: EnginePage) -> None:
    async with registry_of(engine.url, PollSettings(deadline_s=30, polls_to_detect=4)) as registry:
        for _ in range(4):
            await registry.poll(A)
        assert sorted(page for page, _ in engine.seen if page.startswith("POST")) == sorted(f"POST {p}" for p in NEWER)
        engine.pages |= {f"POST {path}": (400, b"{}") for path in NEWER}
        assert routes(registry) == ALWAYS
        await registry.poll(A)
        assert routes(registry) == ALWAYS | NEWER


async def test_a_route_that_swallows_questions_is_not_spoken_and_keeps_no_endpoint_down(
    engine: EnginePage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backends.health.ROUTE_PATIENCE_S", 0.2)
    engine.hangs_at = {"POST /v1/messages"}
    engine.pages["POST /v1/responses"] = (400, b"{}")
    async with registry_of(engine.url) as registry:
        await registry.poll(A)
        assert "/v1/messages" not in routes(registry)
        engine.hangs_at = set()
        engine.pages["POST /v1/messages"] = (400, b"{}")
        await registry.poll(A)
        assert "/v1/messages" in routes(registry)
        engine.hangs_at = {"POST /v1/messages"}
        await registry.poll(A)
        assert "/v1/messages" in routes(registry), "a busy engine speaks what it spoke"


async def test_a_question_that_breaks_off_leaves_the_route_unspoken_and_the_endpoint_healthy() -> None:
    asked: list[bytes] = []
    pages = {b"/v1/models": json.dumps(VLLM_MODELS).encode(), b"/metrics": VLLM_METRICS.encode(), b"/health": b""}

    async def resets_posts(peer: Peer) -> None:
        request = await peer.read_request()
        method, path = request.split(b" ", 2)[:2]
        if method == b"POST":
            asked.append(request)
            return peer.reset()
        body = pages.get(path, b"{}")
        await peer.send(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
        return None

    async with HostileServer([resets_posts]) as server, registry_of(server.url) as registry:
        await registry.poll(A)
        assert routes(registry) == ALWAYS
    assert {request.split(b" ", 2)[1].decode() for request in asked} == NEWER
    assert all(b"content-type: application/json" in request.lower() for request in asked)
    assert all(request.endswith(b"\r\n\r\n{}") for request in asked)


async def test_the_reference_engine_speaks_chat_and_completions_and_opens_its_tokenizer() -> None:
    with run_engine(EngineConfig(model="tiny", kv_blocks=16)) as running:
        async with registry_of(running.url) as registry:
            await registry.poll(A)
            assert routes(registry) == ALWAYS
            facts = registry.snapshot()[0].facts
            assert facts is not None
            assert set(facts.open_paths) == {"POST /tokenize", "POST /detokenize"}
