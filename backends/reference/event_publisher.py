"""Sending batches of events over ZeroMQ without ever holding up the engine.

    engine's thread                     publisher's thread
    publish(payload) --PUSH, PULL-->    number it ──> PUB     topic, sequence, payload     to whoever listens
                                                  └─> buffer ──> ROUTER                    to whoever asks again

A batch for which the way to this thread is full is dropped, and so is one for a subscriber that reads too slowly: both
show as a gap in the sequence, since each batch has its number before it can be lost. The sequence starts at 0 with each
start of the engine. A request for a replay is a number; the answer is one message a batch from that number on, as far
as the buffer goes back, and an end mark.

Addresses as in vLLM: one with `*` or `::` for a host, and any `ipc://`, is bound; to any other the publisher connects.
The socket for replays is always bound. Port 0 takes a free one.
"""

import itertools
import threading
from collections import deque
from contextlib import ExitStack, suppress

import zmq

from backends.reference.errors import EventsUnavailable
from backends.reference.types import KvEventsConfig

END_OF_REPLAY = b"\xff" * 8
SEQUENCE_BYTES = 8
HIGH_WATER_BATCHES = 100_000
"""Batches that wait for one slow subscriber, or for the publisher's thread, before more of them are dropped."""
STOP_PATIENCE_MS = 5000
_HAND_OVER = "inproc://batches"


class EventPublisher:
    """The sockets of one engine, and the thread that serves them. Start it before its engine, stop it behind it."""

    def __init__(self, config: KvEventsConfig) -> None:
        self.config = config
        self.url = config.url
        self.replay_url = config.replay_url
        self._topic = config.topic.encode()
        self._sequence = itertools.count()
        self._buffer: deque[tuple[bytes, bytes]] = deque(maxlen=config.buffer_batches)
        self._context: zmq.Context[zmq.Socket[bytes]] | None = None
        self._outbox: zmq.Socket[bytes] | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Open the sockets. Raises `EventsUnavailable` when an address cannot be used."""
        context = self._context = zmq.Context()
        self._outbox = self._socket(zmq.PUSH)
        self._outbox.bind(_HAND_OVER)
        inbox = self._socket(zmq.PULL)
        inbox.connect(_HAND_OVER)
        try:
            publisher = self._socket(zmq.PUB)
            self.url = _attach(publisher, self.config.url, binds=is_bound(self.config.url))
            replays = None
            if self.config.replay_url is not None:
                replays = self._socket(zmq.ROUTER)
                self.replay_url = _attach(replays, self.config.replay_url, binds=True)
        except EventsUnavailable:
            context.destroy(linger=0)
            self._context = self._outbox = None
            raise
        self._thread = threading.Thread(
            target=self._run, args=(inbox, publisher, replays), name="reference-kv-events", daemon=True
        )
        self._thread.start()

    def publish(self, payload: bytes) -> None:
        """Send one batch, or drop it; never waits. From one thread at a time; before `start` nobody listens."""
        sequence = next(self._sequence).to_bytes(SEQUENCE_BYTES, "big")
        if self._outbox is None:
            return
        try:
            self._outbox.send_multipart((sequence, payload), zmq.NOBLOCK)
        except zmq.Again:
            return  # its number is used up, so that the gap is seen

    def stop(self) -> None:
        """Close the sockets; safe to call twice, and without a start. Nothing is published any more."""
        if self._outbox is None or self._thread is None or self._context is None:
            return
        # One empty frame is the word to end. The thread always reads, unless it has broken off.
        self._outbox.setsockopt(zmq.SNDTIMEO, STOP_PATIENCE_MS)
        with suppress(zmq.Again):
            self._outbox.send(b"")
        self._thread.join()
        self._outbox.close()
        self._context.term()
        self._outbox = None

    def sources(self) -> dict[str, object]:
        """What `GET /kv_event_sources` answers: the settings of each rank's publisher, here of the only one."""
        return {
            "0": {
                "enable_kv_cache_events": True,
                "publisher": "zmq",
                "endpoint": self.url,
                "replay_endpoint": self.replay_url,
                "buffer_steps": self.config.buffer_batches,
                "hwm": HIGH_WATER_BATCHES,
                "max_queue_size": HIGH_WATER_BATCHES,
                "topic": self.config.topic,
            }
        }

    def _socket(self, kind: int) -> "zmq.Socket[bytes]":
        assert self._context is not None
        socket = self._context.socket(kind)
        socket.setsockopt(zmq.LINGER, 0)
        # One replay and its end mark fit; who asks again before it has read loses of it.
        socket.set_hwm(self.config.buffer_batches + 1 if kind == zmq.ROUTER else HIGH_WATER_BATCHES)
        return socket

    def _run(
        self, inbox: "zmq.Socket[bytes]", publisher: "zmq.Socket[bytes]", replays: "zmq.Socket[bytes] | None"
    ) -> None:
        with ExitStack() as sockets:
            poller = zmq.Poller()
            for socket in (inbox, publisher, replays):
                if socket is not None:
                    sockets.enter_context(socket)
            for socket in (inbox, replays):
                if socket is not None:
                    poller.register(socket, zmq.POLLIN)
            while True:
                ready = dict(poller.poll())
                if inbox in ready:
                    frames = inbox.recv_multipart()
                    if len(frames) == 1:
                        break
                    publisher.send_multipart((self._topic, *frames))
                    self._buffer.append((frames[0], frames[1]))
                if replays is not None and replays in ready:
                    self._replay(replays)

    def _replay(self, replays: "zmq.Socket[bytes]") -> None:
        frames = replays.recv_multipart()
        if len(frames) != 3 or frames[1] or len(frames[2]) != SEQUENCE_BYTES:
            return
        asker, empty, start = frames
        for sequence, payload in self._buffer:
            if sequence >= start:
                replays.send_multipart((asker, empty, self._topic, sequence, payload))
        replays.send_multipart((asker, empty, b"", END_OF_REPLAY, b""))


def is_bound(url: str) -> bool:
    """Whether a publisher binds this address; else it connects to who subscribes there."""
    return "*" in url or "::" in url or url.startswith("ipc://")


def _attach(socket: "zmq.Socket[bytes]", url: str, *, binds: bool) -> str:
    """Bind or connect; returns the address with the port that was taken."""
    try:
        if "[" in url:
            socket.setsockopt(zmq.IPV6, 1)
        if not binds:
            socket.connect(url)
            return url
        socket.bind(url)
    except zmq.ZMQError as error:
        raise EventsUnavailable(url, str(error)) from None
    host, _, port = url.rpartition(":")
    if url.startswith("tcp://") and port == "0":
        taken = socket.getsockopt_string(zmq.LAST_ENDPOINT)
        return f"{host}:{taken.rpartition(':')[2]}"
    return url
