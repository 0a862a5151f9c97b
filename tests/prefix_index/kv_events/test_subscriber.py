"""Sockets of the feed: what connections tell, what an inbox keeps, what a replay answers."""

import asyncio
import warnings
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from types import SimpleNamespace

import pytest
import uvloop
import zmq

from prefix_index.errors import EventsUnavailable
from prefix_index.kv_events import Cleared, subscriber
from prefix_index.kv_events import replay as replay_module
from prefix_index.kv_events.replay import replayed
from prefix_index.kv_events.sources import EventSource
from prefix_index.kv_events.subscriber import Connection, EventSockets, Inbox, drained, readable
from tests.prefix_index.kv_events.feeding import letters
from tests.prefix_index.kv_events.publisher import Publisher, publishing
from tests.prefix_index.servers import free_ports
from tests.until import until


def url() -> str:
    return f"tcp://127.0.0.1:{free_ports(1)[0]}"


def ignore() -> None:
    """Nobody is told."""


@asynccontextmanager
async def running() -> AsyncIterator[EventSockets]:
    sockets = EventSockets()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(sockets.run())
        try:
            yield sockets
        finally:
            task.cancel()


def test_connections_are_counted_and_failed_ones_are_not() -> None:
    now_s = 1.0
    connection = Connection(lambda: now_s)
    connection.learn(zmq.EVENT_ACCEPTED, 7)
    connection.learn(zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL, 0)
    assert connection.is_foreign
    connection.learn(zmq.EVENT_ACCEPTED, 8)
    connection.learn(zmq.EVENT_HANDSHAKE_SUCCEEDED, 0)
    connection.learn(zmq.EVENT_DISCONNECTED, 7)
    assert (connection.publishers, connection.joined, connection.is_foreign) == (1, 1, False)
    connection.learn(zmq.EVENT_CONNECTED, 7)
    connection.learn(zmq.EVENT_HANDSHAKE_SUCCEEDED, 0)
    now_s = 2.0
    connection.learn(zmq.EVENT_DISCONNECTED, 8)
    assert (connection.publishers, connection.since_s) == (1, 1.0)
    now_s = 3.0
    connection.learn(zmq.EVENT_DISCONNECTED, 7)
    connection.learn(zmq.EVENT_DISCONNECTED, 7)
    assert (connection.publishers, connection.joined, connection.since_s) == (0, 2, 3.0)


def test_who_leaves_without_having_shaken_hands_was_no_publisher() -> None:
    connection = Connection(lambda: 0.0)
    connection.learn(zmq.EVENT_ACCEPTED, 7)
    connection.learn(zmq.EVENT_HANDSHAKE_SUCCEEDED, 0)
    connection.learn(zmq.EVENT_ACCEPTED, 8)
    connection.learn(zmq.EVENT_DISCONNECTED, 8)
    assert connection.publishers == 1


def test_a_handshake_that_was_taken_for_another_ones_is_put_right() -> None:
    connection = Connection(lambda: 0.0)
    for descriptor in (7, 8):
        connection.learn(zmq.EVENT_ACCEPTED, descriptor)
    connection.learn(zmq.EVENT_HANDSHAKE_SUCCEEDED, 0)  # of 7, and taken for that of 8
    connection.learn(zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL, 104)
    connection.learn(zmq.EVENT_DISCONNECTED, 8)
    assert connection.publishers == 1
    connection.learn(zmq.EVENT_DISCONNECTED, 7)
    assert connection.publishers == 0


async def test_a_peer_of_a_wrong_kind_takes_no_publisher_along(monkeypatch: pytest.MonkeyPatch) -> None:
    there = url()
    gone: list[int] = []
    learn = Connection.learn

    def learn_and_note(connection: Connection, event: int, value: int) -> None:
        learn(connection, event, value)
        if event == zmq.EVENT_DISCONNECTED:
            gone.append(value)

    monkeypatch.setattr(Connection, "learn", learn_and_note)
    async with (
        running() as sockets,
        sockets.subscribed(EventSource(there, bind=True), ignore) as inbox,
        publishing(Publisher(there, connects=True)) as publisher,
    ):
        await publisher.subscribed()
        with zmq.Context() as context:
            for kind in (zmq.REQ, zmq.PUSH):
                gone.clear()
                with context.socket(kind) as peer:
                    peer.connect(there)
                    await until(lambda: gone)
        assert inbox.connection.publishers == 1
        await publisher.die()
        await until(lambda: inbox.connection.publishers == 0)


def test_few_strangers_are_remembered_and_those_in_short() -> None:
    connection = Connection(lambda: 0.0)
    for number in range(9):
        connection.meet(b"%d" % number + b"\xff" * 1000)
    assert len(connection.strangers) == 4
    assert all(len(topic) == 80 for topic in connection.strangers)


def test_an_inbox_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriber, "_INBOX_MESSAGES", 2)
    monkeypatch.setattr(subscriber, "_INBOX_BYTES", 10)
    inbox = Inbox(EventSource("tcp://e:1"), Connection(lambda: 5.0), ignore)
    for number in range(3):
        inbox.put([b"", number.to_bytes(8, "big"), b"1"])
    assert (len(inbox), inbox.received, inbox.dropped, inbox.last_at_s) == (2, 3, 1, 5.0)
    inbox.clear()
    for number in range(2):
        inbox.put([b"", number.to_bytes(8, "big"), b"0123456789"])
    assert (len(inbox), inbox.dropped) == (1, 2)
    taken = inbox.take()
    assert taken is not None
    assert (taken.sequence, inbox.take()) == (0, None)
    inbox.put([b"", b"", b""])
    assert inbox.dropped == 3


async def test_at_a_shared_address_nobody_loses_by_another_ones_coming() -> None:
    here = url()
    async with running() as sockets:
        sources = [EventSource(here, topic=topic, bind=True) for topic in ("a", "b")]
        async with (
            sockets.subscribed(sources[0], ignore) as first,
            sockets.subscribed(sources[1], ignore) as second,
            publishing(Publisher(here, topic=b"a", connects=True)) as one,
        ):
            await one.subscribed()
            one.publish(letters().store("x", 0))
            await until(lambda: len(first) == 1)
            async with publishing(Publisher(here, topic=b"b", connects=True)) as two:
                await two.subscribed()
                two.publish(letters().store("x", 0))
                await until(lambda: len(second) == 1)
                assert (len(first), first.connection.joined) == (1, 2)


async def test_what_waits_of_one_process_is_dropped_when_another_comes() -> None:
    there = url()
    async with (
        running() as sockets,
        publishing(Publisher(there)) as publisher,
        sockets.subscribed(EventSource(there), ignore) as inbox,
    ):
        await publisher.subscribed()
        publisher.publish(letters().store("x", 0))
        await until(lambda: len(inbox) == 1)
        await publisher.restart()
        await until(lambda: inbox.connection.joined == 2 and not len(inbox))


async def test_a_vanished_subscription_closes_its_socket() -> None:
    here = url()
    async with running() as sockets:
        async with sockets.subscribed(EventSource(here, bind=True), ignore):
            pass
        # The address is free again, or becomes so.
        async with (
            sockets.subscribed(EventSource(here, bind=True), ignore) as inbox,
            publishing(Publisher(here, connects=True)),
        ):
            await until(lambda: inbox.connection.publishers == 1)


async def collected(address: str, first: int, patience_s: float = 5.0, within_s: float = 5.0) -> list[int] | str:
    """The numbers that are answered, or what is said where that fails."""
    async with running() as sockets:
        answers = replayed(await sockets.context(), address, first, patience_s=patience_s, within_s=within_s)
        async with aclosing(answers):
            try:
                return [message.sequence async for message in answers]
            except EventsUnavailable as failure:
                return failure.why


async def test_a_replay_has_everything_from_a_number_on() -> None:
    there, replay = url(), url()
    async with publishing(Publisher(there, replay, keeps=300)) as publisher:
        for _ in range(500):
            publisher.publish(letters().store("x", 0))
        assert await collected(replay, 0) == list(range(200, 500))
        assert await collected(replay, 498) == [498, 499]
        assert await collected(replay, 500) == []


async def test_a_replay_that_does_not_come_is_said_so() -> None:
    there, replay = url(), url()
    late = f"no end of a replay from {replay} in time"
    assert await collected(replay, 0, patience_s=0.05) == late
    assert await collected(replay, 0, within_s=0.05) == late
    assert "no replay from tcp://not a host:1: " in str(await collected("tcp://not a host:1", 0))
    async with publishing(Publisher(there, replay)) as publisher:
        publisher.answer_with = [b"", b"nonsense"]
        assert f"no replay from {replay}: " in str(await collected(replay, 0))


def test_sockets_close_without_a_warning_on_both_loops() -> None:
    async def life() -> None:
        there, replay = url(), url()
        async with (
            running() as sockets,
            publishing(Publisher(there, replay)) as publisher,
            sockets.subscribed(EventSource(there), ignore) as inbox,
        ):
            await publisher.subscribed()
            publisher.publish(letters().store("x", 0))
            await until(lambda: len(inbox) == 1)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for factory in (asyncio.new_event_loop, uvloop.new_event_loop):
            with asyncio.Runner(loop_factory=factory, debug=factory is asyncio.new_event_loop) as runner:
                runner.run(life())


async def test_a_socket_that_is_waited_for_wakes_who_waits() -> None:
    with zmq.Context() as context:
        push, pull = context.socket(zmq.PUSH), context.socket(zmq.PULL)
        pull.bind("inproc://here")
        push.connect("inproc://here")
        async with asyncio.timeout(5), asyncio.TaskGroup() as group:
            waiting = group.create_task(readable(pull))
            push.send(b"x")
            await waiting
        assert drained(pull, 5) == [[b"x"]]
        push.close(linger=0)
        pull.close(linger=0)


async def test_a_replay_without_end_ends_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    live, there = url(), url()
    now_s = 0.0
    monkeypatch.setattr(replay_module, "time", SimpleNamespace(monotonic=lambda: now_s))
    async with publishing(Publisher(live, there)) as publisher, running() as sockets:
        for _ in range(3):
            publisher.publish(Cleared(), lost=True)
        answers = replayed(await sockets.context(), there, 0, patience_s=10, within_s=10)
        async with aclosing(answers):
            assert (await anext(answers)).sequence == 0
            now_s = 11.0
            with pytest.raises(EventsUnavailable, match="no end of a replay"):
                await anext(answers)
