"""A client behind a load balancer: who is tried next, and what counts as served."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import aiohttp
import pytest
from aiohttp import web

from bench.faults import client as client_module
from bench.faults.client import Clients, has_failed, outcome_of
from bench.faults.engines import Prompt, due_text
from bench.faults.types import Asked, Counts, Outcome, Try
from bench.mortal_fleet.fleet import free_port

PROMPT = Prompt("large", ("be brief", "hello"), 4, is_stream=True)
USAGE = b'{"prompt_tokens":9,"completion_tokens":4,"prompt_tokens_details":{"cached_tokens":0}}'
DUE = due_text(PROMPT)
BODY = (
    b'data: {"choices":[{"delta":{"content":"%b"}}]}\n\n' % DUE.encode()
    + b'data: {"choices":[],"usage":%b}\n\ndata: [DONE]\n\n' % USAGE
)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def gateways(*handlers: Handler | None) -> AsyncIterator[dict[str, str]]:
    """One for each handler, by name; None: nobody listens there."""
    urls: dict[str, str] = {}
    async with AsyncExitStack() as stack:
        for number, handler in enumerate(handlers):
            port = free_port()
            urls[f"gateway-{number}"] = f"http://127.0.0.1:{port}"
            if handler is not None:
                app = web.Application()
                app.router.add_post("/v1/chat/completions", handler)
                runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
                await runner.setup()
                stack.push_async_callback(runner.cleanup)
                await web.TCPSite(runner, "127.0.0.1", port).start()
        yield urls


def saying(body: bytes, *, breaks_off: bool = False) -> Handler:
    async def handler(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"x-request-id": "ID", "x-prefixgate-endpoint": "engine-0"})
        await answer.prepare(request)
        await answer.write(body)
        if breaks_off:
            assert request.transport is not None
            request.transport.abort()
        return answer

    return handler


async def closing(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def refusing(request: web.Request) -> web.StreamResponse:
    return web.json_response({"error": {"message": "later"}}, status=503)


async def ask(urls: dict[str, str]) -> Asked:
    clients = Clients(urls, {"acme": "key"}, ["large"], "canary", random.Random(1))
    async with aiohttp.ClientSession() as http:
        return await clients._ask(http, PROMPT, "acme")


async def test_whoever_says_nothing_is_left_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "PATIENCE_S", 0.1)

    async def silent(request: web.Request) -> web.StreamResponse:
        await asyncio.Event().wait()
        return web.Response()

    async with gateways(None, closing, silent, saying(BODY)) as urls:
        asked = await ask(urls)
    assert asked.outcome is Outcome.SERVED
    assert [one.gateway for one in asked.tries] == [f"gateway-{number}" for number in range(4)]
    assert [one.status for one in asked.tries] == [None, None, None, 200]
    last = asked.tries[-1]
    assert (last.request_id, last.endpoint, last.body, last.text) == ("ID", "engine-0", BODY, DUE)
    assert last.usage == Counts(9, 0, 4)
    assert asked.due == DUE


async def test_a_refusal_is_an_answer_and_no_reason_to_try_again() -> None:
    async with gateways(refusing, saying(BODY)) as urls:
        asked = await ask(urls)
    assert asked.outcome is Outcome.FAILED
    assert [one.status for one in asked.tries] == [503]


async def test_what_has_begun_is_not_asked_again() -> None:
    half = BODY[: BODY.index(b"\n\n") + 2]
    async with gateways(saying(half, breaks_off=True), saying(BODY)) as urls:
        asked = await ask(urls)
    assert asked.outcome is Outcome.CUT
    assert len(asked.tries) == 1
    assert asked.tries[0].text == DUE


@pytest.mark.parametrize(
    ("body", "outcome"),
    [
        (BODY, Outcome.SERVED),
        (BODY.replace(b"data: [DONE]\n\n", b""), Outcome.CUT),
        (BODY.replace(b"data: [DONE]", b'data: {"error":{"message":"broke"}}'), Outcome.CUT),
        (b'data: {"error":{"message":"broke"}}\n\ndata: [DONE]\n\n', Outcome.FAILED),
    ],
)
async def test_an_answer_is_served_if_it_came_to_its_end_without_an_error(body: bytes, outcome: Outcome) -> None:
    async with gateways(saying(body)) as urls:
        assert (await ask(urls)).outcome is outcome


def test_an_error_in_text_is_none() -> None:
    assert not has_failed(b'data: {"choices":[{"delta":{"content":"an \\"error\\""}}]}\n\n')
    assert has_failed(b'data: {"error":{"mess')
    assert outcome_of(None) is Outcome.FAILED
    assert outcome_of(Try("a", "g", 0.0)) is Outcome.FAILED
