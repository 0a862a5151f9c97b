"""The sockets that KV events arrive on: one for each URL, shared by the sources that name it.

    engine a ──connects──┐                                   ┌─ topic "a" ─> Inbox of a
    engine b ──connects──┴─> tcp://*:5557 ─> Link (one task) ┼─ topic "b" ─> Inbox of b
    engine c ──binds───────> tcp://c:5557 ─> Link            └─ topic "?" ─> noted as a stranger

Every socket subscribes to everything and sorts by topic itself: what a wrong topic would hide is then seen, and told.
An inbox is bounded: what does not fit is dropped, which the numbers of the messages show to whoever reads it.

A PUB socket says nothing to who listens in vain, so each link watches its connections (a *monitor* in ZeroMQ's words):
who connected, who left, what is not ZeroMQ at all. A message is never handed out before the word of the connection
that it came on.

ZeroMQ's descriptor only says that something happened; it is registered with the loop while a task waits, never longer,
and the socket is read until it is empty. pyzmq's own asyncio sockets make a future for every message.
"""

import asyncio
import errno
import os
import struct
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import cast

import zmq

from prefix_index.errors import EventSourceInvalid, MalformedBatch
from prefix_index.kv_events.sources import EventSource
from prefix_index.kv_events.types import Message

MiB = 1024 * 1024

MAX_MESSAGE_BYTES = 16 * MiB
"""Of one message; a sender of a longer one is disconnected. A prompt of a million tokens takes 5 MB."""

_INBOX_MESSAGES = 20_000
_INBOX_BYTES = 64 * MiB
_DRAIN_MESSAGES = 64
_MOST_STRANGERS = 4
_TOPIC_SHOWN = 80
_REBIND_S = 1.0
_HEARTBEAT_MS = 5_000
_RECONNECT_MS = 100
_RECONNECT_MAX_MS = 2_000

_MONITORED = struct.Struct("=Hi")
"""What a monitor says first: an event and its value."""

_WATCHED = (
    zmq.EVENT_ACCEPTED
    | zmq.EVENT_CONNECTED
    | zmq.EVENT_HANDSHAKE_SUCCEEDED
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_DISCONNECTED
)


class Connection:
    """What is known of the way to a URL. Times are of the monotonic clock."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self._failing = 0
        self._waiting: list[int] = []
        """Descriptors of connections that have not shaken hands, in the order they came."""
        self._speaking: set[int] = set()
        self.joined = 0
        """How often one connected: another number means that it may be another process."""
        self.since_s = clock()
        """When the last one left, or when we began to wait, as long as there is none."""
        self.is_foreign = False
        """Whether the last that was there did not speak ZeroMQ."""
        self.refusal: str | None = None
        """Why the URL cannot be used, in the system's words."""
        self.inboxes = 0
        """Sources that share it."""
        self.strangers: dict[str, None] = {}
        """Topics that no source asked for, a few of them."""

    @property
    def publishers(self) -> int:
        """Connected at present."""
        return len(self._speaking)

    def learn(self, event: int, value: int) -> None:
        """Take a word of the monitor; `value` is a connection's descriptor where it begins and where it ends.

        A handshake is not said to be whose. Publishers are through with it at once, so it is taken for that of the
        connection that came last; where one that is taken for a publisher turns out to have failed, it was another's.
        """
        if event in (zmq.EVENT_ACCEPTED, zmq.EVENT_CONNECTED):
            self._waiting.append(value)
        elif event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            self._speak()
            self.joined += 1
            self.is_foreign = False
        elif event != zmq.EVENT_DISCONNECTED:
            self._failing += 1
            self.is_foreign = True
        else:
            self._leave(value)

    def _speak(self) -> None:
        if self._waiting:
            self._speaking.add(self._waiting.pop())

    def _leave(self, descriptor: int) -> None:
        has_failed = self._failing > 0
        self._failing -= has_failed
        if descriptor not in self._speaking:  # also a peer of a kind that publishes nothing: it leaves without a word
            self._waiting = [one for one in self._waiting if one != descriptor]
            return
        self._speaking.remove(descriptor)
        if has_failed:
            self._speak()
        if not self._speaking:
            self.since_s = self.clock()

    def meet(self, topic: bytes) -> None:
        """Note a topic that nobody asked for."""
        if len(self.strangers) < _MOST_STRANGERS:
            self.strangers[topic[:_TOPIC_SHOWN].decode(errors="replace")] = None


class Inbox:
    """Messages for one source, oldest first. `notify` is called when there is news, of messages or the connection."""

    def __init__(self, source: EventSource, connection: Connection, notify: Callable[[], None]) -> None:
        self._topic = source.topic.encode()
        self._messages: deque[Message] = deque()
        self._bytes = 0
        self.connection = connection
        self.notify = notify
        self.received = 0
        """Messages ever, those that were dropped included."""
        self.last_at_s = float("-inf")
        """When the last of them came."""
        self.dropped = 0
        """Messages that found no room, or were none."""

    def __len__(self) -> int:
        return len(self._messages)

    def wants(self, topic: bytes) -> bool:
        """Whether messages of this topic are for this source."""
        return not self._topic or topic == self._topic

    def put(self, frames: list[bytes]) -> None:
        """Take a message in, if there is room."""
        self.received += 1
        self.last_at_s = self.connection.clock()
        try:
            message = Message.from_frames(frames)
        except MalformedBatch:  # its number, if it had one, will be missed
            self.dropped += 1
            return
        if len(self._messages) >= _INBOX_MESSAGES or self._bytes >= _INBOX_BYTES:
            self.dropped += 1
            return
        self._messages.append(message)
        self._bytes += len(message.payload)

    def take(self) -> Message | None:
        """The oldest message, None where there is none."""
        if not self._messages:
            return None
        message = self._messages.popleft()
        self._bytes -= len(message.payload)
        return message

    def clear(self) -> None:
        """Drop all messages."""
        self._messages.clear()
        self._bytes = 0


class EventSockets:
    """All sockets of one process. `run` must be under way for anything to arrive."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._context: zmq.Context[zmq.Socket[bytes]] | None = None
        self._group: asyncio.TaskGroup | None = None
        self._running = asyncio.Event()
        self._links: dict[tuple[str, bool], tuple[_Link, asyncio.Task[None]]] = {}

    async def run(self) -> None:
        """Receive, until cancelled; closes all sockets then."""
        self._context = zmq.Context()
        try:
            async with asyncio.TaskGroup() as self._group:
                self._running.set()
                await asyncio.get_running_loop().create_future()
        finally:
            self._running.clear()
            self._group = None
            context, self._context = self._context, None
            # It waits for ZeroMQ's own thread, which may be resolving a name.
            await asyncio.to_thread(context.term)

    async def context(self) -> "zmq.Context[zmq.Socket[bytes]]":
        """The context for sockets of one's own, which end before `run` does."""
        await self._running.wait()
        assert self._context is not None
        return self._context

    @asynccontextmanager
    async def subscribed(self, source: EventSource, notify: Callable[[], None]) -> AsyncIterator[Inbox]:
        """An inbox for a source, while this lasts.

        Raises EventSourceInvalid where another source of this URL would take the same messages.
        """
        context = await self.context()
        assert self._group is not None
        key = (source.url, source.is_bound)
        if key not in self._links:
            link = _Link(context, source, self._clock)
            self._links[key] = link, self._group.create_task(link.run())
        link, task = self._links[key]
        inbox = link.add(source, notify)
        try:
            yield inbox
        finally:
            if not link.remove(inbox):
                del self._links[key]
                task.cancel()


class _Link:
    """One URL: a socket, its monitor, and the inboxes that its messages go to."""

    def __init__(
        self, context: "zmq.Context[zmq.Socket[bytes]]", source: EventSource, clock: Callable[[], float]
    ) -> None:
        self._context = context
        self._url = source.url
        self._is_bound = source.is_bound
        self._connection = Connection(clock)
        self._inboxes: list[Inbox] = []

    def add(self, source: EventSource, notify: Callable[[], None]) -> Inbox:
        inbox = Inbox(source, self._connection, notify)
        for other in self._inboxes:
            if other.wants(source.topic.encode()) or not source.topic:
                raise EventSourceInvalid(self._url, "two sources share it; give each engine a topic of its own")
        self._inboxes.append(inbox)
        self._connection.inboxes = len(self._inboxes)
        return inbox

    def remove(self, inbox: Inbox) -> bool:
        """Whether others are left."""
        self._inboxes.remove(inbox)
        self._connection.inboxes = len(self._inboxes)
        return bool(self._inboxes)

    async def run(self) -> None:
        socket = self._context.socket(zmq.SUB)
        monitor = socket.get_monitor_socket(_WATCHED)
        try:
            _set_up(socket, self._url)
            await self._open(socket)
            while True:
                await readable(socket, monitor)
                messages = drained(socket, _DRAIN_MESSAGES)
                # After the messages: each of them came on a connection that the monitor has told of by now.
                if self._learn(drained(monitor, _DRAIN_MESSAGES)):
                    self._drop_what_came_before(socket)
                    messages = []
                for frames in messages:
                    self._sort(frames)
                for inbox in self._inboxes:
                    inbox.notify()
                await asyncio.sleep(0)
        finally:
            socket.disable_monitor()
            monitor.close(linger=0)
            socket.close(linger=0)

    async def _open(self, socket: "zmq.Socket[bytes]") -> None:
        """Connect, which ZeroMQ goes on trying by itself, or bind, which may take until a predecessor has left."""
        while True:
            try:
                if self._is_bound:
                    socket.bind(self._url)
                else:
                    socket.connect(self._url)
            except zmq.ZMQError as failure:
                self._connection.refusal = os.strerror(failure.errno or errno.EINVAL)
                await asyncio.sleep(_REBIND_S)
            else:
                self._connection.refusal = None
                return

    def _learn(self, events: list[list[bytes]]) -> bool:
        """Whether somebody has come where somebody had been before."""
        joined = self._connection.joined
        for event in events:
            self._connection.learn(*_MONITORED.unpack(event[0]))
        return 0 < joined < self._connection.joined or self._connection.joined > joined + 1

    def _drop_what_came_before(self, socket: "zmq.Socket[bytes]") -> None:
        """Messages of a process that may be gone would stand among those of its successor.

        What the successor has said already goes with them, and is missed by its number. Where several publishers share
        the URL, those that stayed would lose by it, again and again.
        """
        if len(self._inboxes) > 1:
            return
        drained(socket, _INBOX_MESSAGES)
        for inbox in self._inboxes:
            inbox.clear()

    def _sort(self, frames: list[bytes]) -> None:
        for inbox in self._inboxes:
            if inbox.wants(frames[0]):
                inbox.put(frames)
                return
        self._connection.meet(frames[0])


def _set_up(socket: "zmq.Socket[bytes]", url: str) -> None:
    options = {
        zmq.LINGER: 0,
        zmq.IPV6: int("[" in url),
        zmq.MAXMSGSIZE: MAX_MESSAGE_BYTES,
        # A host that vanished sends no end of its connection.
        zmq.HEARTBEAT_IVL: _HEARTBEAT_MS,
        zmq.HEARTBEAT_TIMEOUT: 2 * _HEARTBEAT_MS,
        zmq.RECONNECT_IVL: _RECONNECT_MS,
        zmq.RECONNECT_IVL_MAX: _RECONNECT_MAX_MS,
    }
    for option, value in options.items():
        socket.setsockopt(option, value)
    socket.setsockopt(zmq.SUBSCRIBE, b"")


async def readable(*sockets: "zmq.Socket[bytes]", within_s: float | None = None) -> bool:
    """Wait until one of these has a message; False where none has `within_s`."""
    loop = asyncio.get_running_loop()
    ends_s = None if within_s is None else loop.time() + within_s
    descriptors = [cast(int, socket.getsockopt(zmq.FD)) for socket in sockets]
    while not _any_readable(sockets):
        if ends_s is not None and loop.time() >= ends_s:
            return False
        stirred: asyncio.Future[None] = loop.create_future()
        alarm = None if ends_s is None else loop.call_at(ends_s, _settle, stirred)
        for descriptor in descriptors:
            loop.add_reader(descriptor, _settle, stirred)
        try:
            await stirred
        finally:
            for descriptor in descriptors:
                loop.remove_reader(descriptor)
            if alarm is not None:
                alarm.cancel()
    return True


def drained(socket: "zmq.Socket[bytes]", at_most: int) -> list[list[bytes]]:
    """The messages that are there, as frames."""
    messages: list[list[bytes]] = []
    try:
        while len(messages) < at_most:
            messages.append(socket.recv_multipart(zmq.NOBLOCK))
    except zmq.Again:
        pass
    return messages


def _any_readable(sockets: Iterable["zmq.Socket[bytes]"]) -> bool:
    return any(cast(int, socket.getsockopt(zmq.EVENTS)) & zmq.POLLIN for socket in sockets)


def _settle(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
