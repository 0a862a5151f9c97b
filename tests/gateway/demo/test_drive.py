import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from gateway.demo.drive import drive
from gateway.demo.types import DemoFailed, Kind, Message, PlannedRequest, Workload

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
KEYS = {"acme": "key-a", "birch": "key-b"}


def ask(conversation: str, turn: int, tenant: str = "acme") -> PlannedRequest:
    body = json.dumps({"conversation": conversation, "turn": turn}).encode()
    return PlannedRequest(conversation, turn, tenant, Kind.CHAT, "en", (Message("user", "hi"),), body)


def work(*requests: PlannedRequest, concurrency: int = 2) -> Workload:
    return Workload(1, concurrency, requests)


@asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_post("/v1/chat/completions", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def stream(request: web.Request, *events: bytes) -> web.StreamResponse:
    headers = {"content-type": "text/event-stream", "x-prefixgate-endpoint": "engine-0"}
    answer = web.StreamResponse(headers=headers)
    await answer.prepare(request)
    for event in events:
        await answer.write(b"data: " + event + b"\n\n")
    return answer


def delta(**fields: str) -> bytes:
    return json.dumps({"choices": [{"index": 0, "delta": fields}]}).encode()


async def answered(request: web.Request) -> web.StreamResponse:
    return await stream(request, delta(role="assistant"), delta(content="Hi"), delta(), b"[DONE]")


async def test_every_request_is_sent_once_with_its_tenants_key_and_its_exact_bytes() -> None:
    seen: list[tuple[str, bytes]] = []

    async def handler(request: web.Request) -> web.StreamResponse:
        seen.append((request.headers["authorization"], await request.read()))
        return await answered(request)

    requests = [ask("a", 0), ask("b", 0, "birch"), ask("a", 1)]
    ticks: list[None] = []
    async with serving(handler) as url:
        answers = await drive(work(*requests), url, KEYS, lambda: ticks.append(None))
    assert sorted(seen) == sorted((f"Bearer {KEYS[one.tenant]}", one.body) for one in requests)
    assert len(answers) == len(ticks) == 3
    assert all(answer.engine_id == "engine-0" and 0 < answer.ttft_s <= answer.duration_s for answer in answers)


async def test_a_turn_waits_for_the_one_before_it_while_others_go_on() -> None:
    ended: list[str] = []
    others_ended = asyncio.Event()

    async def handler(request: web.Request) -> web.StreamResponse:
        body = await request.json()
        name = f"{body['conversation']}{body['turn']}"
        if name == "a0":
            await others_ended.wait()
        answer = await answered(request)
        ended.append(name)
        if name == "c0":
            others_ended.set()
        return answer

    async with serving(handler) as url:
        requests = [ask("a", 0), ask("a", 1), ask("b", 0), ask("c", 0)]
        await drive(work(*requests, concurrency=3), url, KEYS, lambda: None)
    assert ended.index("a0") < ended.index("a1")
    assert ended.index("c0") < ended.index("a0")


async def test_as_many_requests_are_under_way_as_the_workload_says_and_no_more() -> None:
    now, most = 0, 0
    all_at_once = asyncio.Barrier(3)

    async def handler(request: web.Request) -> web.StreamResponse:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await all_at_once.wait()
        now -= 1
        return await answered(request)

    async with serving(handler) as url:
        await drive(work(*(ask(str(one), 0) for one in range(12)), concurrency=3), url, KEYS, lambda: None)
    assert most == 3


async def test_the_first_token_is_the_first_text_and_not_the_role() -> None:
    now_s = 100.0

    async def handler(request: web.Request) -> web.StreamResponse:
        nonlocal now_s
        answer = await stream(request, delta(role="assistant", content=""))
        now_s = 101.0
        await answer.write(b"data: " + delta(content="Hi") + b"\n\ndata: [DONE]\n\n")
        return answer

    async with serving(handler) as url:
        [one] = await drive(work(ask("a", 0)), url, KEYS, lambda: None, clock=lambda: now_s)
    assert one.ttft_s == 1.0


@pytest.mark.parametrize(
    ("events", "why"),
    [
        ((delta(content="Hi"),), "ended before its end"),
        ((delta(content="Hi"), b'{"error": {"message": "engine gone"}}', b"[DONE]"), "engine gone"),
    ],
)
async def test_a_stream_that_is_cut_or_carries_an_error_fails_the_demo(events: tuple[bytes, ...], why: str) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        return await stream(request, *events)

    async with serving(handler) as url:
        with pytest.raises(DemoFailed, match=why):
            await drive(work(ask("a", 0)), url, KEYS, lambda: None)


async def test_a_refused_request_fails_the_demo_with_its_status() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        return web.json_response({"error": {"message": "no such model"}}, status=404)

    async with serving(handler) as url:
        with pytest.raises(DemoFailed, match=r"status 404: .*no such model"):
            await drive(work(ask("a", 0)), url, KEYS, lambda: None)


async def test_a_gateway_that_is_gone_fails_the_demo() -> None:
    async with serving(answered) as url:
        pass
    with pytest.raises(DemoFailed, match="a request failed"):
        await drive(work(ask("a", 0)), url, KEYS, lambda: None)
