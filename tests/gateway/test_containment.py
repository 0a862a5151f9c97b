"""Costs no more than the one request: bodies at the edge of what can be parsed, a failing ledger, faults of our own."""

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager

import httpx
import pytest

from tests.gateway.conftest import RunningGateway, StartGateway, settled, start
from tests.gateway.scripted_engine import answer_chat, chat_stream, scripted_engine
from tests.gateway.test_faults import CHAT, STREAM, ask, error_of
from tests.hostile import Peer, stream
from tests.until import until


async def test_a_body_nested_to_any_depth_is_served_or_refused(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    async with scripted_engine(answer_chat("Hi")) as engine:
        gateway = await start(start_gateway, engine.url)
        for depth in range(900, 1010, 3):
            nested = b"[" * depth + b"]" * depth
            bodies = (
                b'{"model":"m","messages":[],"x":' + nested + b"}",
                b'{"model":"m","messages":[],"priority":1,"x":' + nested + b"}",
                b'{"model":"m","messages":[{"content":' + nested + b"}]}",
            )
            for body in bodies:
                answer = await client.post(f"{gateway.url}/v1/chat/completions", content=body)
                assert answer.status_code in (200, 400), (depth, body[:40])


async def test_a_limit_of_hundreds_of_digits_breaks_nothing(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    async def slowly(peer: Peer) -> None:  # so that its load is published while it lasts
        await asyncio.sleep(0.2)
        await stream(*chat_stream("Hi"))(peer)

    async with scripted_engine(slowly) as engine:
        gateway = await start(start_gateway, engine.url)
        for digits in (25, 400):
            body = b'{"model":"m","messages":[],"stream":true,"max_tokens":' + b"9" * digits + b"}"
            answer = await client.post(f"{gateway.url}/v1/chat/completions", content=body)
            assert answer.status_code == 200
        assert [row.state for row in await settled(gateway, 2)] == ["complete", "complete"]
        assert (await client.get(f"{gateway.url}/health")).json()["status"] == "ok"


async def test_a_fault_of_the_gateway_itself_leaves_no_row_open(
    start_gateway: StartGateway, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> bytes:
        raise ArithmeticError("a fault of ours")

    monkeypatch.setattr("gateway.engine_bodies.outgoing", broken)
    async with scripted_engine(answer_chat("Hi")) as engine:
        gateway = await start(start_gateway, engine.url)
        answer = await ask(client, gateway, CHAT)
        assert (answer.status_code, error_of(answer)["code"]) == (500, "internal_error")
        assert "ours" not in answer.text
        assert [row.state for row in await settled(gateway, 1)] == ["failed"]


async def answers(client: httpx.AsyncClient, gateway: RunningGateway) -> bool:
    try:
        await client.get(f"{gateway.url}/health")
    except httpx.TransportError:
        return False
    return True


async def test_when_a_part_in_the_background_fails_the_gateway_stops_rather_than_refuse_everything(
    start_gateway: StartGateway, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object) -> None:
        await asyncio.sleep(0.1)
        raise ArithmeticError("a fault of ours")

    monkeypatch.setattr("backends.Registry.run", broken)
    async with scripted_engine(answer_chat("Hi")) as engine:
        gateway = await start(start_gateway, engine.url)
        async with asyncio.timeout(10):
            while not gateway.server.failed:
                await asyncio.sleep(0.05)
            while await answers(client, gateway):
                await asyncio.sleep(0.05)


@contextmanager
def locked_ledger(gateway: RunningGateway) -> Iterator[None]:
    """Another program holds the write lock of the ledger, as a stuck disk would hold us up."""
    with closing(sqlite3.connect(gateway.ledger_path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


async def test_while_the_ledger_fails_no_engine_computes_what_could_not_be_billed(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    async with scripted_engine(answer_chat("Hi")) as engine:
        gateway = await start(start_gateway, engine.url)
        with locked_ledger(gateway):
            first = await ask(client, gateway, CHAT)
            reached = len(engine.requests)
            second = await ask(client, gateway, CHAT)
            assert (first.status_code, second.status_code) == (503, 503)
            assert error_of(second)["code"] == "service_unavailable"
            assert len(engine.requests) == reached
            assert "ledger" in (await client.get(f"{gateway.url}/health")).json()["degraded"]
        await until(lambda: ask(client, gateway, CHAT), lambda found: found.status_code == 200)


async def test_a_client_who_leaves_while_the_end_is_settled_is_counted_once(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    sent = asyncio.Event()

    async def two_parts(peer: Peer) -> None:
        first, *rest = chat_stream("Hi")
        await stream(first, end=False)(peer)
        await sent.wait()
        for chunk in rest:
            await peer.send(b"%x\r\n%b\r\n" % (len(chunk), chunk))
        await peer.send(b"0\r\n\r\n")

    async with scripted_engine(two_parts) as engine:
        gateway = await start(start_gateway, engine.url)
        async with client.stream("POST", f"{gateway.url}/v1/chat/completions", json=STREAM) as answer:
            chunks = answer.aiter_bytes()  # kept, since it closes the connection when it goes
            await anext(chunks)
            with locked_ledger(gateway):
                sent.set()
                await asyncio.sleep(0.3)
                await answer.aclose()
                await asyncio.sleep(0.3)
        assert [row.state for row in await settled(gateway, 1)] == ["complete"]
        await until(lambda: asyncio.to_thread(gateway.metric, "prefixgate_in_flight_requests"), lambda found: not found)
        assert await asyncio.to_thread(gateway.metric, "prefixgate_requests_total") == 1
