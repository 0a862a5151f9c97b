"""A gateway that is told to stop: nobody sees a reset, answers end or are cut, and all of them are settled."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from gateway.config import load_config
from gateway.serving import Server, server_config
from tests.gateway.conftest import RunningGateway, StartGateway, ledger_rows, start
from tests.gateway.scripted_engine import chat_stream, delta, scripted_engine
from tests.gateway.serving.sockets import RawClient, connected
from tests.hostile import Peer, stream

READY = b"GET /ready HTTP/1.1\r\nhost: x\r\n\r\n"
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
BODY = json.dumps({"model": "m", "messages": [{"role": "user", "content": "Hi"}], "stream": True}).encode()
ASK = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(BODY) + BODY


def port_of(gateway: RunningGateway) -> int:
    return int(gateway.url.rpartition(":")[2])


async def refuses(port: int) -> None:
    """Wait until nobody listens there."""
    while True:
        try:
            async with connected(port):
                await asyncio.sleep(0.01)
        except ConnectionRefusedError:
            return


async def draining(port: int) -> None:
    """Wait until it says that it is not ready."""
    while True:
        async with connected(port) as client:
            if (await (await client.send(READY)).answer()).status == 503:
                return


async def states(gateway: RunningGateway) -> list[str]:
    """What became of the requests, once the gateway has ended."""
    while gateway.server.lifespan.shutdown_event.is_set() is False:
        await asyncio.sleep(0.01)
    return [row.state for row in await asyncio.to_thread(ledger_rows, gateway.ledger_path)]


async def test_an_idle_connection_is_served_once_more_and_only_then_closed(start_gateway: StartGateway) -> None:
    async with scripted_engine(stream(*chat_stream("Hi"))) as engine:
        gateway = await start(start_gateway, engine.url, limits__close_idle_s=3)
        async with connected(port_of(gateway)) as used, connected(port_of(gateway)) as idle:
            for client in (used, idle):
                assert "connection" not in (await (await client.send(READY)).answer()).fields
            gateway.server.should_exit = True
            await refuses(port_of(gateway))
            answer = await (await used.send(ASK)).answer()
            assert (answer.status, answer.fields["connection"]) == (200, "close")
            assert answer.body.endswith(b"data: [DONE]\n\n")
            assert await used.ended() == b""
            assert await idle.ended() == b""
        assert await states(gateway) == ["complete"]


async def test_an_answer_that_is_under_way_ends_whole(start_gateway: StartGateway) -> None:
    goes_on = asyncio.Event()

    async def two_words(peer: Peer) -> None:
        await peer.read_request()
        first, *rest = chat_stream("Hi", " there")
        await peer.send(HEAD + b"%x\r\n%b\r\n" % (len(first), first))
        await goes_on.wait()
        await peer.send(b"".join(b"%x\r\n%b\r\n" % (len(one), one) for one in rest) + b"0\r\n\r\n")

    async with scripted_engine(two_words) as engine:
        gateway = await start(start_gateway, engine.url, limits__drain_s=20)
        async with connected(port_of(gateway)) as client:
            await client.send(ASK)
            head = await client.reader.readuntil(b"\r\n\r\n")
            assert (head.startswith(b"HTTP/1.1 200"), b"connection: close" in head) == (True, False)
            await client.reader.readuntil(b"Hi")
            gateway.server.should_exit = True
            await refuses(port_of(gateway))
            goes_on.set()
            assert (await client.reader.readuntil(b"0\r\n\r\n")).endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
        assert await states(gateway) == ["complete"]


async def test_an_answer_that_takes_too_long_is_cut_and_settled(start_gateway: StartGateway) -> None:
    async def one_word(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(HEAD + b"%x\r\n%b\r\n" % (len(delta("Hi")), delta("Hi")))
        await peer.hang()

    async with scripted_engine(one_word) as engine:
        gateway = await start(start_gateway, engine.url, limits__drain_s=0.2)
        async with connected(port_of(gateway)) as client:
            await client.send(ASK)
            assert (await client.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
            await client.reader.readuntil(b"Hi")
            gateway.server.should_exit = True
            assert not (await client.ended()).endswith(b"0\r\n\r\n")
        await engine.left.wait()
        assert await states(gateway) == ["partial"]


async def test_it_is_not_ready_and_still_serves_while_balancers_are_given_notice(start_gateway: StartGateway) -> None:
    async with scripted_engine(stream(*chat_stream("Hi"))) as engine:
        gateway = await start(start_gateway, engine.url, limits__drain_notice_s=1.5)
        gateway.server.should_exit = True
        await draining(port_of(gateway))
        async with connected(port_of(gateway)) as client:
            answer = await (await client.send(ASK)).answer()
            assert (answer.status, answer.fields["connection"]) == (200, "close")
        await refuses(port_of(gateway))
        assert await states(gateway) == ["complete"]


async def test_many_clients_that_come_and_go_see_no_reset_when_it_stops(start_gateway: StartGateway) -> None:
    """Each asks on kept connections; after `connection: close` it makes another, until nobody listens."""
    statuses: list[int] = []

    async def ask_on(client: RawClient) -> None:
        closes = False
        while not closes:
            answer = await (await client.send(READY)).answer()
            statuses.append(answer.status)
            closes = answer.fields.get("connection") == "close"

    async def ask_again(port: int) -> None:
        while True:
            try:
                async with connected(port) as client:
                    await ask_on(client)
            except ConnectionRefusedError:
                return

    async with scripted_engine(stream(*chat_stream("Hi"))) as engine:
        gateway = await start(start_gateway, engine.url, limits__close_idle_s=2)
        async with asyncio.TaskGroup() as group:
            for _ in range(40):
                group.create_task(ask_again(port_of(gateway)))
            while len(statuses) < 400:
                await asyncio.sleep(0.01)
            gateway.server.should_exit = True
    assert set(statuses) == {200, 503}


@asynccontextmanager
async def listening(server: Server, *sockets: socket.socket) -> AsyncIterator[None]:
    """Serve from sockets in this loop until the block ends."""
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(server.serve(list(sockets)))
        while not server.started:
            await asyncio.sleep(0.01)
        yield
        server.should_exit = True
        await serving


async def test_it_listens_on_several_sockets_and_on_one_without_a_port(tmp_path: Path) -> None:
    path = tmp_path / "listens"
    by_path, by_port = socket.socket(socket.AF_UNIX), socket.create_server(("127.0.0.1", 0))
    by_path.bind(str(path))
    by_path.listen()
    async with scripted_engine(stream(*chat_stream("Hi"))) as engine:
        flags = {"backends": [{"url": engine.url}], "ledger.path": tmp_path / "ledger.db", "limits.close_idle_s": 0}
        server = Server(server_config(load_config(None, {}, flags), {}))
        async with listening(server, by_path, by_port):
            port = by_port.getsockname()[1]
            assert server.url == f"http://127.0.0.1:{port}"
            reader, writer = await asyncio.open_unix_connection(path)
            by_its_path = RawClient(reader, writer)
            async with connected(port) as by_its_port:
                for client in (by_its_path, by_its_port):
                    assert (await (await client.send(ASK)).answer()).status == 200
            writer.close()
