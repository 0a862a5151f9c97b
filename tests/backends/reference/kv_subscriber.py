"""The other side of an engine's event sockets."""

from types import TracebackType
from typing import Self

import zmq

DEADLINE_MS = 20_000
Context = zmq.Context[zmq.Socket[bytes]]
Frames = tuple[bytes, bytes, bytes]


class Subscriber:
    """A SUB socket for one topic that binds or connects."""

    def __init__(self, context: Context, topic: str) -> None:
        self._socket = context.socket(zmq.SUB)
        self._socket.setsockopt(zmq.RCVTIMEO, DEADLINE_MS)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.SUBSCRIBE, topic.encode())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def bind(self) -> str:
        """Take a free port of this machine; returns the address."""
        return f"tcp://127.0.0.1:{self._socket.bind_to_random_port('tcp://127.0.0.1')}"

    def connect(self, url: str) -> None:
        self._socket.connect(url)

    def hears(self, within_ms: int) -> bool:
        """Whether there is something to read, or comes in time."""
        return bool(self._socket.poll(within_ms))

    def batch(self) -> Frames:
        """The next message; raises `zmq.Again` when none comes."""
        topic, sequence, payload = self._socket.recv_multipart()
        return topic, sequence, payload


def replay(context: Context, url: str, start: int) -> list[Frames]:
    """What a publisher has kept from batch `start` on."""
    with context.socket(zmq.DEALER) as socket:
        socket.setsockopt(zmq.RCVTIMEO, DEADLINE_MS)
        socket.setsockopt(zmq.LINGER, 0)
        socket.connect(url)
        socket.send_multipart([b"", start.to_bytes(8, "big")])
        kept: list[Frames] = []
        while True:
            empty, topic, sequence, payload = socket.recv_multipart()
            assert empty == b""
            if not payload:
                assert (topic, sequence) == (b"", b"\xff" * 8)
                return kept
            kept.append((topic, sequence, payload))
