"""A client behind a load balancer, against servers that answer, cut and close."""

import asyncio
import json
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from bench.mortal_fleet.client import Client, counts_of, with_usage
from bench.mortal_fleet.fleet import free_port
from bench.mortal_fleet.types import Counts, Outcome
from gateway.demo.types import Kind, Message, PlannedRequest

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
KEYS = {"acme": "key-a"}
USAGE = {"prompt_tokens": 100, "completion_tokens": 8, "prompt_tokens_details": {"cached_tokens": 64}}
TEXT = json.dumps({"choices": [{"index": 0, "delta": {"content": "Hi"}}]}).encode()
LAST = json.dumps({"choices": [], "usage": USAGE}).encode()


def ask(conversation: str, turn: int = 0) -> PlannedRequest:
    body = json.dumps({"conversation": conversation, "turn": turn}).encode()
    return PlannedRequest(conversation, turn, "acme", Kind.CHAT, "en", (Message("user", "hi"),), body)


@asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_post("/v1/chat/completions", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def stream(request: web.Request, *events: bytes) -> web.StreamResponse:
    headers = {
        "content-type": "text/event-stream",
        "x-request-id": "id-1",
        "x-prefixgate-endpoint": "engine-0",
        "x-prefixgate-cached-tokens": "48",
    }
    answer = web.StreamResponse(headers=headers)
    await answer.prepare(request)
    for event in events:
        await answer.write(b"data: " + event + b"\n\n")
    return answer


async def answering(request: web.Request) -> web.StreamResponse:
    return await stream(request, TEXT, LAST, b"[DONE]")


async def closing(request: web.Request) -> web.StreamResponse:
    """The connection ends before anything is sent."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def resetting(request: web.Request) -> web.StreamResponse:
    """The same by a reset, as from a process that died with bytes unread."""
    assert request.transport is not None
    connection = request.transport.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    return await closing(request)


async def test_an_answer_is_kept_with_what_its_head_and_its_usage_say() -> None:
    async with serving(answering) as url:
        client = Client([url], KEYS)
        await client.drive([[ask("a")]], 1, asyncio.Event())
    [one] = client.seen
    assert one.outcome is Outcome.SERVED
    assert (one.name, one.replica, one.request_id, one.endpoint) == ("0.a.0", 0, "id-1", "engine-0")
    assert (one.usage, one.expected_tokens, one.error_tokens) == (Counts(100, 64, 8), 48, -16)
    assert one.first_s is not None
    assert one.started_s <= one.first_s <= one.ended_s


@pytest.mark.parametrize("dying", [closing, resetting])
async def test_replicas_are_taken_in_turn_and_one_that_is_gone_or_says_nothing_is_passed_over(dying: Handler) -> None:
    gone = f"http://127.0.0.1:{free_port()}"
    async with serving(answering) as url, serving(dying) as mute:
        client = Client([url, gone, mute], KEYS)
        await client.drive([[ask("a"), ask("b"), ask("c")]], 1, asyncio.Event())
    assert [(one.outcome, one.replica, one.retries) for one in client.seen] == [
        (Outcome.SERVED, 0, 0),
        (Outcome.SERVED, 0, 2),
        (Outcome.SERVED, 0, 1),
    ]


async def test_where_nobody_answers_the_request_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.mortal_fleet.client.BETWEEN_ROUNDS_S", 0.0)
    client = Client([f"http://127.0.0.1:{free_port()}"], KEYS)
    await client.drive([[ask("a")]], 1, asyncio.Event())
    [one] = client.seen
    assert (one.outcome, one.replica, one.request_id, one.why) == (Outcome.FAILED, None, None, "ClientConnectorError")


async def test_a_refusal_is_a_failure_and_is_not_tried_elsewhere() -> None:
    async def refusing(_: web.Request) -> web.StreamResponse:
        return web.json_response({"error": {}}, status=503)

    async with serving(refusing) as url, serving(answering) as other:
        client = Client([url, other], KEYS)
        await client.drive([[ask("a")]], 1, asyncio.Event())
    [one] = client.seen
    assert (one.outcome, one.replica) == (Outcome.FAILED, 0)
    assert one.why.startswith("status 503")


@pytest.mark.parametrize("events", [(TEXT,), (TEXT, b'{"error": {"code": "upstream_failed"}}', b"[DONE]")])
async def test_what_ends_after_its_first_bytes_is_cut_and_is_not_tried_again(events: tuple[bytes, ...]) -> None:
    async def cutting(request: web.Request) -> web.StreamResponse:
        return await stream(request, *events)

    async with serving(cutting) as url, serving(answering) as other:
        client = Client([url, other], KEYS)
        await client.drive([[ask("a")]], 1, asyncio.Event())
    [one] = client.seen
    assert (one.outcome, one.replica, one.request_id, one.usage) == (Outcome.CUT, 0, "id-1", Counts())


async def test_turns_come_one_after_the_other_and_plan_after_plan_until_it_is_enough() -> None:
    asked: list[tuple[str, int]] = []
    enough = asyncio.Event()

    async def noting(request: web.Request) -> web.StreamResponse:
        body = await request.json()
        assert body["stream_options"] == {"include_usage": True}
        asked.append((body["conversation"], body["turn"]))
        if len(asked) == 6:
            enough.set()
        return await answering(request)

    plan = [ask("a"), ask("b"), ask("a", 1)]
    async with serving(noting) as url:
        client = Client([url], KEYS)
        await client.drive([plan] * 5, 1, enough)
    assert asked == [("a", 0), ("b", 0), ("a", 1)] * 2
    assert [one.name for one in client.seen][3:] == ["1.a.0", "1.b.0", "1.a.1"]


def test_usage_that_says_nothing_is_unknown() -> None:
    assert counts_of({}) == Counts()
    assert counts_of({"prompt_tokens": 3, "prompt_tokens_details": None}) == Counts(3)


def test_usage_is_asked_for_beside_all_else() -> None:
    assert json.loads(with_usage('{"a": "ü"}'.encode())) == {"a": "ü", "stream_options": {"include_usage": True}}
