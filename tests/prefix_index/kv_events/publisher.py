"""A publisher as engines have them, on real sockets, that can be told to lose, repeat, delay and die."""

import asyncio
import errno
import struct
from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import msgspec
import zmq

from prefix_index.kv_events import Cleared, Event, Moved, Removed, Stored
from prefix_index.kv_events.subscriber import drained, readable
from prefix_index.types import Claim

_END = b"\xff" * 8
_MEDIA = {Claim.CONFIRMED: "GPU", Claim.HOST: "CPU", Claim.DISK: "STORAGE"}

Socket = zmq.Socket[bytes]


@dataclass
class Publisher:
    """Life after life of one engine: `start`, `publish`, `die`, `start`.

    `url` is bound unless `connects`; `keeps` batches are replayed at `replay_url`, in the older form without a topic if
    `is_old`, `answers_left` times.
    """

    url: str
    replay_url: str | None = None
    topic: bytes = b""
    connects: bool = False
    keeps: int = 10_000
    is_old: bool = False
    next_sequence: int = 0
    buffer: deque[tuple[int, bytes]] = field(default_factory=deque)
    asked: list[int] = field(default_factory=list)
    answers_left: int = 1_000_000_000
    answer_with: list[bytes] | None = None

    def __post_init__(self) -> None:
        self._context = zmq.Context()
        self._socket: Socket | None = None
        self._replays: Socket | None = None
        self._task: asyncio.Task[None] | None = None
        self._group: asyncio.TaskGroup | None = None

    async def start(self, group: asyncio.TaskGroup) -> None:
        """A new process, which counts from 0."""
        self._group = group
        self.next_sequence = 0
        self.buffer.clear()
        self._socket = self._open(zmq.XPUB)  # as PUB, and it tells who subscribes
        if self.connects:
            self._socket.connect(self.url)
        else:
            await _bind(self._socket, self.url)
        if self.replay_url is not None:
            self._replays = self._open(zmq.ROUTER)
            await _bind(self._replays, self.replay_url)
            self._task = group.create_task(self._serve(self._replays))

    async def die(self) -> None:
        """As when the process is killed: what was not sent is lost."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None
        for socket in (self._socket, self._replays):
            if socket is not None:
                socket.close(linger=0)
        self._socket = self._replays = None

    async def restart(self) -> None:
        """The process is killed and another one starts."""
        assert self._group is not None
        await self.die()
        await self.start(self._group)

    async def subscribed(self) -> None:
        """Wait until somebody subscribes."""
        assert self._socket is not None
        while True:
            await readable(self._socket)
            if any(frames[0][:1] == b"\x01" for frames in drained(self._socket, 1)):
                return

    def publish(self, *events: Event, lost: bool = False, payload: bytes | None = None) -> None:
        """One batch; `lost` on its way to subscribers, but kept for replays."""
        payload = payload_of(events) if payload is None else payload
        self.buffer.append((self.next_sequence, payload))
        while len(self.buffer) > self.keeps:
            self.buffer.popleft()
        if not lost:
            self.send(self.next_sequence, payload)
        self.next_sequence += 1

    def send(self, sequence: int, payload: bytes) -> None:
        """Put a message on the wire."""
        self.send_frames([self.topic, _number(sequence), payload])

    def send_frames(self, frames: list[bytes]) -> None:
        """Put anything on the wire."""
        assert self._socket is not None
        self._socket.send_multipart(frames)

    def hang_up(self) -> None:
        """Break the connection that it made, and make another."""
        assert self._socket is not None
        self._socket.disconnect(self.url)
        self._socket.connect(self.url)

    def send_again(self, sequence: int) -> None:
        """A second copy of what is kept."""
        for kept, payload in list(self.buffer):
            if kept == sequence:
                self.send(kept, payload)

    def close(self) -> None:
        """The end of all lives."""
        self._context.destroy(linger=0)

    def _open(self, kind: int) -> Socket:
        socket: Socket = self._context.socket(kind)
        socket.setsockopt(zmq.LINGER, 0)
        return socket

    async def _serve(self, replays: Socket) -> None:
        while True:
            await readable(replays)
            for asker, _, start in drained(replays, 1):
                first = int.from_bytes(start, "big")
                self.asked.append(first)
                self.answers_left -= 1
                if self.answers_left < 0:
                    continue
                if self.answer_with is not None:
                    replays.send_multipart([asker, *self.answer_with])
                for sequence, payload in list(self.buffer):
                    if sequence >= first:
                        head = [] if self.is_old else [self.topic]
                        replays.send_multipart([asker, b"", *head, _number(sequence), payload])
                replays.send_multipart([asker, b"", *([] if self.is_old else [b""]), _END, b""])


async def _bind(socket: Socket, url: str) -> None:
    """Bind, once whoever had the address has let it go."""
    while True:
        try:
            socket.bind(url)
        except zmq.ZMQError as failure:
            if failure.errno != errno.EADDRINUSE:
                raise
            await asyncio.sleep(0.002)
        else:
            return


@asynccontextmanager
async def publishing(publisher: Publisher) -> AsyncIterator[Publisher]:
    """One life of a publisher, or several; no socket is left."""
    try:
        async with asyncio.TaskGroup() as group:
            await publisher.start(group)
            try:
                yield publisher
            finally:
                await publisher.die()
    finally:
        publisher.close()


_times = iter(range(1_000_000_000))


def payload_of(events: Iterable[Event]) -> bytes:
    """A batch as vLLM writes it from 0.24 on; no two are alike, as time goes on."""
    return msgspec.msgpack.encode([1.0e9 + next(_times), [_wire(event) for event in events], 0])


def _wire(event: Event) -> dict[str, object]:
    match event:
        case Stored():
            return {
                "type": "BlockStored",
                "block_hashes": list(event.hashes),
                "parent_block_hash": event.parent,
                "token_ids": list(struct.unpack(f"<{len(event.tokens) // 4}I", event.tokens)),
                "block_size": event.block_size,
                "lora_id": None,
                "medium": _MEDIA[event.claim],
                "lora_name": event.adapter,
                "extra_keys": _extra_keys(event),
                "group_idx": event.group,
            }
        case Removed():
            assert event.claim is not None
            return {"type": "BlockRemoved", "block_hashes": list(event.hashes), "medium": _MEDIA[event.claim]}
        case Cleared():
            return {"type": "AllBlocksCleared"}
        case Moved():
            raise ValueError("TensorRT-LLM alone says this")


def _extra_keys(event: Stored) -> Sequence[object] | None:
    if event.has_media is None:
        return None
    return [[["an image", 0]] if has_media else None for has_media in event.has_media]


def _number(sequence: int) -> bytes:
    return sequence.to_bytes(8, "big")
