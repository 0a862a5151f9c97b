"""More than the gateway takes on: refused early, in the client's dialect, and nothing is left of it."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from tests.gateway.conftest import RunningGateway, StartGateway, settled, start
from tests.gateway.scripted_engine import answer_chat, scripted_engine
from tests.gateway.test_dialects import two_tenants
from tests.hostile import Peer

CHAT = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}


class Slow:
    """An engine whose answers wait until they are let go."""

    def __init__(self) -> None:
        self.asked = 0
        self.let_go = asyncio.Event()

    async def keeps_alive(self, peer: Peer) -> None:
        self.asked += 1
        await self.let_go.wait()
        await answer_chat("Hi")(peer)

    async def has(self, requests: int) -> None:
        while self.asked < requests:
            await asyncio.sleep(0.01)


def head_of(path: str, length: int, *more: str) -> bytes:
    lines = (f"POST {path} HTTP/1.1", "host: x", f"content-length: {length}", *more)
    return "\r\n".join((*lines, "", "")).encode()


async def raw(gateway: RunningGateway, data: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", int(gateway.url.rpartition(":")[2]))
    writer.write(data)
    return reader, writer


async def gauge(gateway: RunningGateway, name: str, value: float) -> None:
    """Wait until a gauge is this."""
    while await asyncio.to_thread(gateway.metric, name) != value:
        await asyncio.sleep(0.01)


async def test_who_waits_is_served_in_turn_and_who_is_too_many_is_told_at_once(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    slow = Slow()
    limits = {"limits__concurrent_requests": 1, "limits__queue_requests": 2, "limits__queue_s": 60}
    async with scripted_engine(slow.keeps_alive) as engine:
        gateway = await start(start_gateway, engine.url, **limits)
        url = f"{gateway.url}/v1/chat/completions"
        async with asyncio.TaskGroup() as group:
            served = [group.create_task(client.post(url, json=CHAT)) for _ in range(3)]
            await gauge(gateway, "prefixgate_queued_requests", 2)
            refused = await client.post(url, json=CHAT)
            also = await client.post(f"{gateway.url}/v1/messages", json={**CHAT, "max_tokens": 1})
            pages = [(await client.get(f"{gateway.url}{path}")).status_code for path in ("/ready", "/v1/models")]
            slow.let_go.set()
        rows = await settled(gateway, 3)
        assert gateway.metric("prefixgate_shed_requests_total", reason="queue_full") == 2
    assert [task.result().status_code for task in served] == [200, 200, 200]
    said = (refused.status_code, refused.json()["error"]["code"], refused.headers["retry-after"])
    assert said == (503, "overloaded", "1")
    assert (also.status_code, also.json()["type"]) == (503, "error")
    assert pages == [200, 200]
    assert [row.state for row in rows] == ["complete"] * 3


async def test_who_waits_too_long_for_a_place_is_refused_before_its_body_is_read(start_gateway: StartGateway) -> None:
    slow = Slow()
    async with scripted_engine(slow.keeps_alive) as engine:
        gateway = await start(start_gateway, engine.url, limits__concurrent_requests=1, limits__queue_s=0.2)
        body = json.dumps(CHAT).encode()
        first = await raw(gateway, head_of("/v1/chat/completions", len(body)) + body)
        await slow.has(1)
        reader, writer = await raw(gateway, head_of("/v1/chat/completions", 1000, "expect: 100-continue"))
        said = await reader.read()
        slow.let_go.set()
        assert (await first[0].readline()) == b"HTTP/1.1 200 OK\r\n"
        first[1].close()
        writer.close()
        assert gateway.metric("prefixgate_shed_requests_total", reason="queue_deadline") == 1
    assert said.startswith(b"HTTP/1.1 503")
    assert b"100 Continue" not in said


async def test_who_leaves_the_queue_is_forgotten(start_gateway: StartGateway, client: httpx.AsyncClient) -> None:
    slow = Slow()
    async with scripted_engine(slow.keeps_alive) as engine:
        gateway = await start(start_gateway, engine.url, limits__concurrent_requests=1, limits__queue_s=60)
        url, body = f"{gateway.url}/v1/chat/completions", json.dumps(CHAT).encode()
        async with asyncio.TaskGroup() as group:
            first = group.create_task(client.post(url, json=CHAT))
            await slow.has(1)
            _, waiting = await raw(gateway, head_of("/v1/chat/completions", len(body)) + body)
            await gauge(gateway, "prefixgate_queued_requests", 1)
            waiting.close()
            await gauge(gateway, "prefixgate_queued_requests", 0)
            slow.let_go.set()
        assert first.result().status_code == 200
        assert (await client.post(url, json=CHAT)).status_code == 200
        assert slow.asked == 2


@pytest.mark.parametrize("coding", ["content-length", "chunked"])
async def test_bodies_that_do_not_fit_are_refused(
    coding: str, start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    slow = Slow()
    long = {**CHAT, "messages": [{"role": "user", "content": "x" * 60_000}]}
    data = json.dumps(long).encode()

    async def pieces() -> AsyncIterator[bytes]:
        for i in range(0, len(data), 10_000):
            yield data[i : i + 10_000]

    async with scripted_engine(slow.keeps_alive) as engine:
        gateway = await start(start_gateway, engine.url, limits__buffered_bytes=100_000)
        url = f"{gateway.url}/v1/chat/completions"
        async with asyncio.TaskGroup() as group:
            first = group.create_task(client.post(url, content=data))
            await slow.has(1)
            assert gateway.metric("prefixgate_held_body_bytes") == len(data)
            refused = await client.post(url, content=data if coding == "content-length" else pieces())
            slow.let_go.set()
        again = await client.post(url, content=data)
        assert gateway.metric("prefixgate_shed_requests_total", reason="body_bytes") == 1
        await gauge(gateway, "prefixgate_held_body_bytes", 0)
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "overloaded")
    assert (first.result().status_code, again.status_code) == (200, 200)


async def test_a_body_without_a_key_takes_no_place(start_gateway: StartGateway, tmp_path: Path) -> None:
    _, keys = two_tenants(tmp_path)
    async with scripted_engine(answer_chat("Hi")) as engine:
        gateway = await start(start_gateway, engine.url, limits__concurrent_requests=1, keys_file=keys)
        reader, writer = await raw(gateway, head_of("/v1/chat/completions", 10_000_000))
        assert (await reader.readline()).startswith(b"HTTP/1.1 401")
        assert gateway.metric("prefixgate_admitted_requests") == 0
        writer.close()


async def test_a_client_that_leaves_while_its_prompt_is_computed_stops_the_engine(start_gateway: StartGateway) -> None:
    async def never_answers(peer: Peer) -> None:
        await peer.read_request()
        await peer.hang()

    async with scripted_engine(never_answers) as engine:
        gateway = await start(start_gateway, engine.url)
        body = json.dumps(CHAT).encode()
        with socket.create_connection(("127.0.0.1", int(gateway.url.rpartition(":")[2]))) as sock:
            sock.sendall(head_of("/v1/chat/completions", len(body)) + body)
            await engine.asked.wait()
        await engine.left.wait()
        (row,) = await settled(gateway, 1)
        await gauge(gateway, "prefixgate_admitted_requests", 0)
    assert row.state == "partial"


async def test_a_client_that_stops_reading_stops_the_engine_in_the_end(start_gateway: StartGateway) -> None:
    async def floods(peer: Peer) -> None:
        await peer.read_request()
        event = b'data: {"choices":[{"index":0,"delta":{"content":"%b"}}]}\n\n' % (b"x" * 20_000)
        await peer.send(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        while True:
            await peer.send(b"%x\r\n%b\r\n" % (len(event), event))

    async with scripted_engine(floods) as engine:
        gateway = await start(start_gateway, engine.url, limits__write_idle_s=0.5)
        body = json.dumps({**CHAT, "stream": True}).encode()
        with socket.socket() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.connect(("127.0.0.1", int(gateway.url.rpartition(":")[2])))
            sock.sendall(head_of("/v1/chat/completions", len(body)) + body)
            await engine.left.wait()
            (row,) = await settled(gateway, 1)
        assert gateway.metric("prefixgate_cut_clients_total", reason="unread") == 1
    assert row.state == "partial"
