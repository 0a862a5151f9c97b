"""Asking a publisher for what it published before.

    we   DEALER  ["", first number]  ──────────>  ROUTER  engine
                 ["", topic, number, payload] <──         one answer for each batch that it still keeps, from there on
                 ["", number, payload]        <──         (vLLM to 0.25, SGLang to 0.5.21)
                 ["", "", -1, ""]             <──         the end

The engine answers from the thread that publishes, and its ROUTER drops what its own queue does not take: so whoever
asks reads fast, and asks again from where something is missing.
"""

import time
from collections.abc import AsyncGenerator

import zmq

from prefix_index.errors import EventsUnavailable, MalformedBatch
from prefix_index.kv_events.subscriber import MAX_MESSAGE_BYTES, drained, readable
from prefix_index.kv_events.types import SEQUENCE_BYTES, Message

_QUEUED_MESSAGES = 100_000
_DRAIN_MESSAGES = 64


async def replayed(
    context: "zmq.Context[zmq.Socket[bytes]]", url: str, first: int, *, patience_s: float, within_s: float
) -> AsyncGenerator[Message, None]:
    """The messages from number `first` on that the publisher still has, in its order, up to its end marker.

    Raises EventsUnavailable where nothing came for `patience_s` before the end, where that was not reached `within_s`,
    or what came is no answer. Close the iterator (`contextlib.aclosing`) where it is left early.
    """
    ends_s = time.monotonic() + within_s
    socket = context.socket(zmq.DEALER)
    try:
        for option, value in (
            (zmq.LINGER, 0),
            (zmq.IPV6, int("[" in url)),
            (zmq.RCVHWM, _QUEUED_MESSAGES),
            (zmq.MAXMSGSIZE, MAX_MESSAGE_BYTES),
        ):
            socket.setsockopt(option, value)
        try:
            socket.connect(url)
            socket.send_multipart([b"", first.to_bytes(SEQUENCE_BYTES, "big")], zmq.NOBLOCK)
        except zmq.ZMQError as failure:
            raise EventsUnavailable(f"no replay from {url}: {failure.strerror}") from failure
        while True:
            if not await readable(socket, within_s=min(patience_s, ends_s - time.monotonic())):
                raise EventsUnavailable(f"no end of a replay from {url} in time")
            for frames in drained(socket, _DRAIN_MESSAGES):
                # Who sends without end lets nobody wait, and is told from one that has much to say by the time alone.
                if time.monotonic() >= ends_s:
                    raise EventsUnavailable(f"no end of a replay from {url} in time")
                try:
                    message = Message.from_replay(frames)
                except MalformedBatch as malformed:
                    raise EventsUnavailable(f"no replay from {url}: {malformed}") from malformed
                if message is None:
                    return
                yield message
    finally:
        socket.close(linger=0)
