"""A link passes bytes on, until told otherwise."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from bench.faults.links import Link
from bench.faults.types import Computed
from bench.faults.wire import Wire
from bench.mortal_fleet.fleet import free_port

HOST = "127.0.0.1"
HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
ASKED = b"POST /v1/chat/completions HTTP/1.1\r\nx-request-id: ID\r\ncontent-length: 0\r\n\r\n"
WITHIN_S = 10.0


@asynccontextmanager
async def linked(kept: list[Computed] | None = None) -> AsyncIterator[tuple[Link, asyncio.Event]]:
    """A link to a server that answers each piece with itself, then with more once the event is set."""
    more = asyncio.Event()

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65536):
                writer.write(HEAD + b"4\r\nones\r\n" if data.startswith(b"POST") else data)
                await writer.drain()
                if data.startswith(b"POST"):
                    await more.wait()
                    writer.write(b"8\r\nthe rest\r\n0\r\n\r\n")
        writer.close()

    running: set[int] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        running.add(id(writer))
        await echo(reader, writer)
        running.discard(id(writer))

    server = await asyncio.start_server(serve, HOST, 0)
    far = server.sockets[0].getsockname()[:2]
    listen = None if kept is None else (lambda: Wire("g", "e", asyncio.get_running_loop().time, kept.append))
    link = Link("g", "e", (HOST, free_port()), (far[0], far[1]), listen)
    await link.start()
    try:
        yield link, more
    finally:
        more.set()
        await link.stop()
        server.close()
        while running:
            await asyncio.sleep(0)


async def test_bytes_pass_both_ways() -> None:
    async with linked() as (link, _), asyncio.timeout(WITHIN_S):
        reader, writer = await asyncio.open_connection(*link.near)
        writer.write(b"hello")
        assert await reader.readexactly(5) == b"hello"
        writer.write_eof()
        assert await reader.read() == b""
        writer.close()


async def test_a_partition_passes_nothing_and_closes_nothing_and_what_waited_passes_after_it() -> None:
    async with linked() as (link, _), asyncio.timeout(WITHIN_S):
        reader, writer = await asyncio.open_connection(*link.near)
        link.stall()
        writer.write(b"hello")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await reader.read(1)
        link.heal()
        assert await reader.readexactly(5) == b"hello"
        writer.close()


async def test_refusing_resets_what_is_open_and_takes_nothing_until_it_is_started_again() -> None:
    async with linked() as (link, _), asyncio.timeout(WITHIN_S):
        reader, writer = await asyncio.open_connection(*link.near)
        writer.write(b"hello")
        await reader.readexactly(5)
        await link.refuse()
        with pytest.raises(ConnectionResetError):
            await reader.read(1)
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(*link.near)
        await link.start()
        reader, again = await asyncio.open_connection(*link.near)
        again.write(b"hello")
        await reader.readexactly(5)
        for one in (writer, again):
            one.close()


async def test_a_cut_hits_streams_under_way_and_nothing_else() -> None:
    kept: list[Computed] = []
    async with linked(kept) as (link, more), asyncio.timeout(WITHIN_S):
        reader, writer = await asyncio.open_connection(*link.near)
        idle_reader, idle = await asyncio.open_connection(*link.near)
        idle.write(b"idle")
        await idle_reader.readexactly(4)
        writer.write(ASKED)
        await reader.readexactly(len(HEAD) + 9)
        assert link.cut() == 1
        more.set()
        rest = b""
        with suppress(ConnectionResetError):
            while piece := await reader.read(100):
                rest += piece
        assert b"8\r\nthe rest\r\n0\r\n\r\n".startswith(rest)
        idle.write(b"idle")
        assert await idle_reader.readexactly(4) == b"idle"
        while not kept:
            await asyncio.sleep(0.01)
        assert (kept[0].request_id, kept[0].is_whole) == ("ID", False)
        for one in (writer, idle):
            one.close()
