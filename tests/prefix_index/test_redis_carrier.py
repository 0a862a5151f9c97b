"""The way to Redis: few writes, few connections, deadlines of the server and not of this process, nobody stranded."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import hiredis
import pytest
import uvloop
from redis import exceptions as redis_errors
from redis.asyncio import Redis
from redis.crc import key_slot

from prefix_index.embedded import EmbeddedServer
from prefix_index.redis_carrier import Carrier
from prefix_index.redis_clients import connect, connect_one
from prefix_index.redis_wire import bulks, call_of, opening
from tests.prefix_index.busy import busy_loop, busy_sockets
from tests.prefix_index.door import Door
from tests.prefix_index.scripted_redis import scripted_client, scripted_redis
from tests.until import until

KEY = b"{p}:x"
CODE = "#!lua name=echoing\nredis.register_function('echoing_echo', function(keys, args) return args[1] end)"


def echo(word: str, key: bytes = KEY) -> tuple[bytes, bytes]:
    """A call that is answered by its argument."""
    return opening("echoing_echo", [key], 1, read_only=False) + bulks(word), key


def echoed(command: list[bytes]) -> bytes:
    """The answer of a server that knows the function."""
    return b"+OK\r\n" if command[0] == b"FUNCTION" else bulks(command[-1])


def connections_of(carrier: Carrier) -> int:
    """How many of them its pool has out."""
    assert isinstance(carrier.client, Redis)
    return len(carrier.client.connection_pool._in_use_connections)


@asynccontextmanager
async def carrier_to(door: Door, patience_s: float = 60.0) -> AsyncIterator[Carrier]:
    """A carrier through an open door to a real server, which has answered it once."""
    await door.open()
    async with connect_one(door.url) as client:
        carrier = Carrier(client, patience_s)
        assert await carrier.call(echo("first"), CODE) == b"first"
        yield carrier


async def test_calls_of_one_tick_travel_in_one_write_whoever_makes_them() -> None:
    async with scripted_client(echoed) as (scripted, client):
        carrier = Carrier(client)
        await carrier.ready(KEY)
        words = [f"{number}" for number in range(20)]
        found = await asyncio.gather(*(carrier.call(echo(word), CODE) for word in words))
        assert found == [word.encode() for word in words]
        assert await carrier.call(echo("alone"), CODE) == b"alone"
        assert [len(together) for together in scripted.writes if together[0][0] == b"FCALL"] == [20, 1]


async def test_what_nobody_waits_for_is_never_in_the_way(door: Door) -> None:
    async with carrier_to(door) as carrier:
        many = [echo(f"{number}") for number in range(300)]
        patient, urgent = await asyncio.gather(carrier.call_all(many, CODE), carrier.call(echo("now"), CODE))
        assert patient == [f"{number}".encode() for number in range(300)]
        assert urgent == b"now"
        assert connections_of(carrier) == 2
        assert await carrier.call_all([], CODE) == []


async def test_what_is_posted_arrives_before_what_is_called_later() -> None:
    async with scripted_client(echoed) as (scripted, client):
        carrier = Carrier(client)
        assert carrier.post([echo("too early")]) is None
        await carrier.ready(KEY)
        posted = carrier.post([echo("a"), echo("b")])
        assert posted is not None
        assert await carrier.call(echo("c"), CODE) == b"c"
        assert posted.result() == [b"a", b"b"]
        assert [command[-1] for command in scripted.commands if command[0] == b"FCALL"] == [b"a", b"b", b"c"]


async def test_a_caller_who_leaves_disturbs_nobody_and_its_reply_is_dropped(door: Door) -> None:
    async with carrier_to(door) as carrier:
        for number in range(30):
            door.hold()
            async with asyncio.TaskGroup() as group:
                leaving = group.create_task(carrier.call(echo(f"left {number}"), CODE))
                staying = group.create_task(carrier.call(echo(f"stayed {number}"), CODE))
                await until(lambda: door.held)
                leaving.cancel()
                door.release()
            assert staying.result() == f"stayed {number}".encode()
            assert await carrier.call(echo(f"after {number}"), CODE) == f"after {number}".encode()
        assert door.entered == 1


async def test_who_leaves_before_the_write_sends_nothing() -> None:
    async with scripted_client(echoed) as (scripted, client):
        carrier = Carrier(client)
        await carrier.ready(KEY)
        async with asyncio.TaskGroup() as group:
            leaving = group.create_task(carrier.call(echo("leaving"), CODE))
            group.create_task(carrier.call(echo("staying"), CODE))
            await asyncio.sleep(0)
            leaving.cancel()
        assert [command[-1] for command in scripted.commands if command[0] == b"FCALL"] == [b"staying"]


async def test_a_server_that_hangs_is_waited_for_until_the_deadline_and_the_connection_stays(door: Door) -> None:
    async with carrier_to(door) as carrier:
        door.hold()
        late = await asyncio.gather(*(carrier.call(echo(f"{number}"), CODE, 0.02) for number in range(100)))
        assert {type(one) for one in late} == {TimeoutError}
        door.release()
        assert await carrier.call(echo("after"), CODE) == b"after"
        assert door.entered == 1


async def test_calls_whose_callers_gave_up_while_enough_was_under_way_are_never_sent() -> None:
    silent: list[bytes] = []

    def say_nothing(command: list[bytes]) -> bytes:
        silent.append(command[-1])
        return b""

    async with scripted_client(say_nothing) as (scripted, client):
        carrier = Carrier(client, 60.0)
        await carrier.ready(KEY)
        early = [asyncio.ensure_future(carrier.call(echo(f"early {number}"), CODE)) for number in range(64)]
        await until(lambda: len(silent) == 64)
        assert isinstance(await carrier.call(echo("too many"), CODE, 0.02), TimeoutError)
        last = asyncio.ensure_future(carrier.call(echo("last"), CODE))
        scripted.say(bulks(*silent))
        assert await asyncio.gather(*early) == [f"early {number}".encode() for number in range(64)]
        await until(lambda: silent[-1] == b"last")
        scripted.say(bulks("last"))
        assert await last == b"last"
        assert b"too many" not in silent


async def test_a_connection_that_owes_a_reply_for_too_long_is_replaced(door: Door) -> None:
    async with carrier_to(door, patience_s=0.05) as carrier:
        door.hold()
        assert isinstance(await carrier.call(echo("lost"), CODE), TimeoutError)
        door.release()
        assert await carrier.call(echo("after"), CODE) == b"after"
        assert door.entered == 2
        assert connections_of(carrier) == 1


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Iterator[Callable[[Coroutine[object, object, None]], None]]:
    """Runs something on each kind of loop."""
    with asyncio.Runner(loop_factory=request.param) as runner:
        yield runner.run


DEADLINE_S = 0.02


@pytest.mark.parametrize("busy", [busy_loop, busy_sockets])
def test_a_server_that_answers_at_once_is_never_late_however_busy_this_process_is(
    server_url: str,
    run: Callable[[Coroutine[object, object, None]], None],
    busy: Callable[[], AbstractAsyncContextManager[object]],
) -> None:
    async def ask_while_busy() -> None:
        async with connect_one(server_url) as client:
            carrier = Carrier(client)
            assert await carrier.call(echo("first"), CODE) == b"first"
            async with busy():
                for turn in range(5):
                    words = [f"{turn} {number}" for number in range(5)]
                    found = await asyncio.gather(*(carrier.call(echo(word), CODE, DEADLINE_S) for word in words))
                    assert found == [word.encode() for word in words]

    run(ask_while_busy())


def test_a_server_that_hangs_is_given_up_after_a_few_passes_however_busy_this_process_is(
    run: Callable[[Coroutine[object, object, None]], None],
) -> None:
    async def ask_while_busy() -> None:
        async with scripted_client(lambda _: b"") as (_, client):
            carrier = Carrier(client)
            await carrier.ready(KEY)
            async with busy_loop() as passes:
                before = len(passes)
                assert isinstance(await carrier.call(echo("lost"), CODE, DEADLINE_S), TimeoutError)
                assert len(passes) - before <= 8  # to write, to be late, to look again, and to wake who asked

    run(ask_while_busy())


async def test_a_reply_may_come_in_parts_and_several_at_once() -> None:
    async with scripted_client(lambda _: b"") as (scripted, client):
        carrier = Carrier(client)
        await carrier.ready(KEY)
        async with asyncio.TaskGroup() as group:
            calls = [group.create_task(carrier.call(echo(word), CODE)) for word in ("one", "two", "three")]
            await until(lambda: len(scripted.commands) == 3)
            for part in (b"$3\r", b"\non", b"e\r\n$3\r\ntwo\r\n:", b"3\r\n"):
                scripted.say(part)
                await asyncio.sleep(0.002)  # the parts are read one by one
        assert [call.result() for call in calls] == [b"one", b"two", 3]


@pytest.mark.parametrize("nonsense", [b"+nobody asked\r\n", b"what is this\r\n", b"%1\r\n*1\r\n:1\r\n+b\r\n"])
async def test_what_says_things_unasked_is_left_at_once(nonsense: bytes) -> None:
    async with scripted_client(echoed) as (scripted, client):
        carrier = Carrier(client)
        assert await carrier.call(echo("a"), CODE) == b"a"
        scripted.say(nonsense)
        await until(lambda: carrier.post([echo("b")]) is None)
        assert await carrier.call(echo("c"), CODE) == b"c"
        assert len(scripted.streams) == 2


async def test_a_connection_that_breaks_is_told_to_all_who_wait_and_replaced_for_the_next(door: Door) -> None:
    async with carrier_to(door) as carrier:
        door.hold()
        urgent = [asyncio.ensure_future(carrier.call(echo("lost"), CODE)) for _ in range(3)]
        patient = asyncio.ensure_future(carrier.call_all([echo("lost"), echo("lost")], CODE))
        await until(lambda: door.held)
        await door.shut()
        told = [*await asyncio.gather(*urgent), *await patient]
        assert all(isinstance(one, redis_errors.ConnectionError | OSError) for one in told)
        door.release()
        await door.open()
        assert await carrier.call(echo("after"), CODE) == b"after"


async def test_where_who_connects_gives_up_the_next_one_begins_anew(door: Door) -> None:
    await door.stall()
    async with connect_one(f"{door.url}/1") as client:  # a database has to be chosen, and nobody answers that
        carrier = Carrier(client)
        async with asyncio.TaskGroup() as group:
            first = group.create_task(carrier.call(echo("a"), CODE))
            await until(lambda: door.entered == 1)
            second = group.create_task(carrier.call(echo("b"), CODE))
            late = group.create_task(carrier.call(echo("c"), CODE, 0.01))
            assert isinstance(await late, TimeoutError)
            first.cancel()
            await until(lambda: door.entered == 2)
            assert not second.done()
            await door.open()
            assert isinstance(await second, redis_errors.ConnectionError | OSError)  # the door shut on it
        assert await carrier.call(echo("d"), CODE) == b"d"


async def test_all_who_wait_for_a_connection_hear_that_there_is_none(door: Door) -> None:
    await door.choose_port()
    async with connect_one(door.url) as client:
        carrier = Carrier(client)
        found = await asyncio.gather(*(carrier.call(echo("a"), CODE) for _ in range(5)))
        assert all(isinstance(one, redis_errors.ConnectionError) for one in found)


async def test_a_library_that_is_gone_is_loaded_again(server: EmbeddedServer) -> None:
    async with connect_one(server.url) as client:
        carrier = Carrier(client)
        for _ in range(3):
            found = await asyncio.gather(*(carrier.call(echo(f"{number}"), CODE) for number in range(5)))
            assert found == [f"{number}".encode() for number in range(5)]
            await client.function_flush()
            assert await carrier.call_all([echo("a"), echo("b")], CODE) == [b"a", b"b"]
            await client.function_flush()
        refused = await carrier.call(echo("a"), "#!lua name=broken\nthis is no lua")
        assert isinstance(refused, redis_errors.ResponseError)


async def test_connections_are_given_back(server_url: str) -> None:
    async with connect_one(server_url) as client:
        async with Carrier(client) as carrier:
            assert await carrier.call(echo("a"), CODE) == b"a"
            assert await carrier.call_all([echo("a")], CODE) == [b"a"]
            assert connections_of(carrier) == 2
        assert connections_of(carrier) == 0
        assert await client.ping()


async def test_who_refuses_writes_as_a_replica_is_connected_to_anew() -> None:
    def answer(command: list[bytes]) -> bytes:
        return b"-READONLY You can't write against a read only replica.\r\n"

    async with scripted_client(answer) as (scripted, client):
        carrier = Carrier(client)
        for _ in range(2):
            assert isinstance(await carrier.call(echo("a"), CODE), redis_errors.ReadOnlyError)
        assert len(scripted.streams) == 2


async def test_in_a_cluster_calls_go_to_who_serves_their_keys_and_follow_them_when_they_move() -> None:
    far = next(b"{%d}" % number for number in range(100) if key_slot(b"{%d}" % number) > 8191)
    near = next(b"{%d}" % number for number in range(100) if key_slot(b"{%d}" % number) <= 8191)
    moved = False

    def of_low(command: list[bytes]) -> bytes:
        if command[0] == b"CLUSTER":
            ranges = ((0, 8191, low.port), (8192, 16383, high.port))
            return b"*2\r\n" + b"".join(
                b"*3\r\n:%d\r\n:%d\r\n*2\r\n$9\r\n127.0.0.1\r\n:%d\r\n" % bounds for bounds in ranges
            )
        return b"-MOVED %d 127.0.0.1:%d\r\n" % (key_slot(near), high.port) if moved else b"+low\r\n"

    async with (
        scripted_redis(of_low) as low,
        scripted_redis(lambda _: b"+high\r\n") as high,
        connect(f"redis+cluster://127.0.0.1:{low.port}") as client,
    ):
        carrier, both = Carrier(client), [echo("a", near), echo("b", far)]
        assert await carrier.call_all(both, CODE) == [b"low", b"high"]
        assert await asyncio.gather(*(carrier.call(order, CODE) for order in both)) == [b"low", b"high"]
        assert carrier.post(both) is None
        moved = True
        assert await carrier.call(both[0], CODE) == b"high"
        assert await carrier.call_all(both, CODE) == [b"high", b"high"]


def test_arguments_of_all_kinds_are_packed_as_redis_reads_them() -> None:
    call = call_of("f", b"\x00\r\n", "\u00e9", -7)
    reader = hiredis.Reader()
    reader.feed(opening("lib_f", [b"k1", b"k2"], call.arity, read_only=True) + call.packed)
    assert reader.gets() == [b"FCALL_RO", b"lib_f", b"2", b"k1", b"k2", b"\x00\r\n", "\u00e9".encode(), b"-7"]
    assert reader.gets() is False
