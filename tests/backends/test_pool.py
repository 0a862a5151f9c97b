"""Connections to one endpoint: warm ones first, never more than allowed, given out in order, none lost."""

import asyncio
import random
import resource
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager

import pytest
import uvloop

from backends import connection as connection_module
from backends.client import UpstreamClient
from backends.errors import DialFailed, DialReason, UpstreamError
from backends.pool import Pool
from backends.target import target_of
from backends.types import Deadlines, EndpointId, UpstreamRequest
from tests.backends.upstream import CHAT, PATIENT, Case, cases, endpoint, peer_sees_us_leave, run_on_uvloop
from tests.hostile import HostileServer, Peer, answer, hang, reset_before_first_byte, stream
from tests.until import until

DEADLINE_S = 10


@pytest.fixture
async def client() -> AsyncIterator[UpstreamClient]:
    async with UpstreamClient() as upstream:
        yield upstream


@asynccontextmanager
async def pool_of(url: str, limit: int) -> AsyncIterator[Pool]:
    pool = Pool(EndpointId("a"), target_of(endpoint(url)), None, limit)
    try:
        yield pool
    finally:
        await pool.close()


async def ask(client: UpstreamClient, server: HostileServer, path: str = "/v1/x") -> bytes:
    async with await client.send(endpoint(server.url), UpstreamRequest("GET", path), PATIENT) as response:
        return await response.read(1000)


async def test_the_connection_used_last_is_taken_first(client: UpstreamClient) -> None:
    together = asyncio.Barrier(2)

    async def behave(peer: Peer) -> None:
        await peer.read_request()
        await together.wait()
        await peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
        await answer(b"ok")(peer)

    async with HostileServer([behave]) as server:
        async with asyncio.TaskGroup() as group:
            for _ in range(2):
                group.create_task(ask(client, server))
        for _ in range(5):
            await ask(client, server)
        assert sorted(len(peer.requests) for peer in server.peers) == [1, 6]


async def test_no_more_connections_are_made_than_allowed() -> None:
    async with UpstreamClient(max_connections=3) as client, HostileServer([answer(b"ok")]) as server:
        async with asyncio.TaskGroup() as group:
            calls = [group.create_task(ask(client, server)) for _ in range(60)]
        assert {call.result() for call in calls} == {b"ok"}
        assert len(server.peers) == 3


async def test_who_waits_is_served_in_order() -> None:
    async with UpstreamClient(max_connections=1) as client, HostileServer([answer(b"ok")]) as server:
        async with asyncio.TaskGroup() as group:
            for number in range(8):
                group.create_task(ask(client, server, f"/{number}"))
        assert [request.split(b" ")[1] for request in server.peers[0].requests] == [b"/%d" % n for n in range(8)]


async def test_who_stopped_waiting_is_passed_over() -> None:
    go_on = asyncio.Event()

    async def behave(peer: Peer) -> None:
        await peer.read_request()
        await go_on.wait()
        await peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
        await answer(b"ok")(peer)

    async with UpstreamClient(max_connections=1) as client, HostileServer([behave]) as server:
        async with asyncio.TaskGroup() as group:
            calls = [group.create_task(ask(client, server, f"/{number}")) for number in range(4)]
            await server.peer(0)
            calls[1].cancel()
            calls[2].cancel()
            await asyncio.wait(calls[1:3])
            go_on.set()
        assert [request.split(b" ")[1] for request in server.peers[0].requests] == [b"/0", b"/3"]


async def test_a_connection_that_may_not_be_reused_leaves_its_place_to_who_waits() -> None:
    closing = answer(b"ok", extra=b"connection: close\r\n")
    async with UpstreamClient(max_connections=1) as client, HostileServer([closing]) as server:
        async with asyncio.TaskGroup() as group:
            for _ in range(4):
                group.create_task(ask(client, server))
        assert [len(peer.requests) for peer in server.peers] == [1, 1, 1, 1]


async def test_a_failed_dial_leaves_its_place_to_who_waits() -> None:
    async with HostileServer([hang]) as server:
        closed = server.url
    async with pool_of(closed, 1) as pool:
        async with asyncio.TaskGroup() as group:
            calls = [group.create_task(reason_of(pool.obtain(5))) for _ in range(3)]
        assert [call.result() for call in calls] == [DialReason.REFUSED] * 3
        assert pool.is_empty


async def test_where_no_file_is_left_to_us_the_endpoint_is_not_to_blame() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    async with HostileServer([hang]) as server, pool_of(server.url, 1) as pool:
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
        try:
            assert await reason_of(pool.obtain(5)) is DialReason.POOL
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def reason_of(obtaining: Awaitable[object]) -> DialReason:
    with pytest.raises(DialFailed) as failure:
        await obtaining
    return failure.value.reason


async def test_a_connection_given_to_somebody_who_has_just_left_is_not_lost() -> None:
    async with HostileServer([hang]) as server, pool_of(server.url, 1) as pool:
        connection, _ = await pool.obtain(5)
        async with asyncio.TaskGroup() as group:
            leaving = group.create_task(pool.obtain(5))
            waiting = group.create_task(pool.obtain(5))
            await asyncio.sleep(0)
            pool.give_back(connection)
            leaving.cancel()
        assert waiting.result()[0] is connection
        connection.abort()
        assert (await pool.obtain(5))[0] is not connection


async def test_a_place_given_to_somebody_who_has_just_left_is_not_lost() -> None:
    async with HostileServer([hang]) as server, pool_of(server.url, 1) as pool:
        connection, _ = await pool.obtain(5)
        async with asyncio.TaskGroup() as group:
            leaving = group.create_task(pool.obtain(5))
            waiting = group.create_task(pool.obtain(5))
            await asyncio.sleep(0)
            connection.abort()
            leaving.cancel()
        assert not waiting.result()[0].is_closed


async def test_a_connection_that_closes_between_given_and_taken_is_not_used() -> None:
    async with HostileServer([hang]) as server, pool_of(server.url, 1) as pool:
        connection, _ = await pool.obtain(5)
        async with asyncio.TaskGroup() as group:
            first, second = (group.create_task(pool.obtain(5)) for _ in range(2))
            await asyncio.sleep(0)
            pool.give_back(connection)
            connection.abort()
            await asyncio.wait([first, second], return_when=asyncio.FIRST_COMPLETED)
            assert second.done()
            second.result()[0].abort()
        assert not first.result()[0].is_closed


async def test_a_connection_closed_by_the_endpoint_while_idle_is_dropped_at_once() -> None:
    async with HostileServer([hang]) as server, pool_of(server.url, 2) as pool:
        connection, _ = await pool.obtain(5)
        pool.give_back(connection)
        await (await server.peer(0)).close()
        await until(lambda: pool.is_empty)
        assert pool.take() is None


@pytest.mark.parametrize("said", [b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\n\r\n", b"x"])
async def test_a_connection_that_says_something_unasked_is_closed(said: bytes) -> None:
    more_wanted = asyncio.Event()

    async def behave(peer: Peer) -> None:
        await answer(b"ok", requests=1)(peer)
        await more_wanted.wait()
        await peer.send(said)
        await peer.hang()

    async with UpstreamClient() as client, HostileServer([behave, answer(b"fresh")]) as server:
        assert await ask(client, server) == b"ok"
        more_wanted.set()
        await peer_sees_us_leave(server.peers[0])
        assert await ask(client, server) == b"fresh"


async def test_bytes_after_the_end_of_an_answer_close_the_connection(client: UpstreamClient) -> None:
    async def behave(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok" * 2)
        await peer.hang()

    async with HostileServer([behave, answer(b"fresh")]) as server:
        assert await ask(client, server) == b"ok"
        assert await ask(client, server) == b"fresh"
        await peer_sees_us_leave(server.peers[0])


async def test_a_connection_that_nobody_needs_is_closed_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "IDLE_CONNECTION_S", 0.02)
    async with UpstreamClient() as client, HostileServer([answer(b"ok")]) as server:
        await ask(client, server)
        await peer_sees_us_leave(server.peers[0])


async def test_a_connection_in_use_does_not_grow_old(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "IDLE_CONNECTION_S", 0.02)

    async def behave(peer: Peer) -> None:
        await answer(b"ok", requests=1)(peer)
        await peer.read_request()
        await asyncio.sleep(0.1)
        await peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nslow")

    async with UpstreamClient() as client, HostileServer([behave]) as server:
        assert await ask(client, server) == b"ok"
        assert await ask(client, server) == b"slow"
        assert len(server.peers) == 1


async def test_pools_of_endpoints_that_are_gone_do_not_stay(client: UpstreamClient) -> None:
    for _ in range(3):
        async with HostileServer([answer(b"ok", extra=b"connection: close\r\n")]) as server:
            await ask(client, server)
            await peer_sees_us_leave(server.peers[0])
    assert len(client._pools) == 1


async def test_leaving_the_client_closes_every_connection() -> None:
    async with HostileServer([answer(b"ok"), hang]) as server:
        async with UpstreamClient() as client:
            await ask(client, server)
        await peer_sees_us_leave(server.peers[0])


async def storm(seed: int) -> None:
    """Calls of every fate over three places; at the end all places must be free."""
    dice = random.Random(seed)

    async def slowly(peer: Peer) -> None:
        await peer.read_request()
        await asyncio.sleep(0.002)
        await peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nslow")
        await answer(b"ok", requests=dice.randrange(3))(peer)

    closing = answer(b"ok", extra=b"connection: close\r\n")
    kinds = [answer(b"ok"), closing, reset_before_first_byte, hang, stream(b"a", end=False), stream(b"a", b"b"), slowly]

    async def call(client: UpstreamClient, server: HostileServer) -> None:
        deadlines = Deadlines(connect_s=dice.uniform(0, 0.02), first_byte_s=0.01, idle_s=0.01)
        try:
            async with asyncio.timeout(dice.choice([0, 0.001, 0.005, 1])):
                async with await client.send(endpoint(server.url), CHAT, deadlines) as response:
                    while dice.random() < 0.7 and await response.read_chunk():
                        pass
        except (UpstreamError, TimeoutError):
            pass

    async with UpstreamClient(max_connections=3) as client:
        behaviours = [dice.choice(kinds) for _ in range(400)]
        async with HostileServer([*behaviours, answer(b"ok")]) as server:
            for _ in range(10):
                async with asyncio.TaskGroup() as group:
                    for _ in range(12):
                        group.create_task(call(client, server))
            pool = client._pools[endpoint(server.url)]
            for idle in iter(pool.take, None):
                idle.abort()
            await until(lambda: pool.is_empty)


@pytest.mark.parametrize("seed", range(6))
def test_no_place_is_lost_whatever_becomes_of_the_calls(seed: int) -> None:
    asyncio.run(storm(seed))
    uvloop.run(storm(seed))


@pytest.mark.parametrize("case", cases(globals()), ids=lambda case: case.__name__.removeprefix("test_"))
def test_the_same_holds_on_uvloop(case: Case) -> None:
    run_on_uvloop(case)
