"""The ledger's owner, as other processes have it: each has a line to it, and what one leaves open is closed.

    worker --Records--> put into the one writer --all durable--> Done
    worker gone --> what it opened and did not settle is settled as interrupted: what was used is unknown, not zero

One group commit serves all workers: what they send during one commit is the next one's batch. A worker that dies took
no promise with it: what was acknowledged is durable, and what was sent and not acknowledged is written all the same.
"""

import asyncio
import socket
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import cast

from billing.errors import LedgerUnavailable, RowRefused
from billing.ledger import Ledger
from billing.ledger_frames import (
    Done,
    FrameReader,
    Records,
    Refusal,
    State,
    decode_records,
    encode,
    framed,
)
from billing.types import Settlement, SettlementState
from billing.writer import Record

STATE_S = 1.0
RETRY_S = 1.0
_READ_BYTES = 1 << 18


class LedgerService:
    """Serves one open ledger to other processes, on the event loop on which it was opened."""

    def __init__(self, ledger: Ledger, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._ledger = ledger
        self._clock = clock
        self._interrupted = 0

    async def serve(self, line: socket.socket) -> None:
        """Serve the process at the other end of a connected socket until it is gone, and close what it left open.

        What the ledger does not take then is tried again until it does, or until this is cancelled: the next start of
        the ledger finds it.
        """
        loop = asyncio.get_running_loop()
        with line.dup() as unread:
            _, connection = await loop.create_unix_connection(lambda: _Connection(self._ledger, self._state), sock=line)
            try:
                while not connection.lost.done():
                    connection.tell(self._state())
                    await asyncio.wait((connection.lost,), timeout=STATE_S)
            finally:
                connection.close()
            # A connection is lost, too, when nobody takes our words any more; what the worker said last stands unread.
            with suppress(BlockingIOError):
                while data := unread.recv(_READ_BYTES):
                    connection.data_received(data)
        await self._close_left_open(connection.open)

    def _state(self) -> State:
        ledger = self._ledger
        return State(ledger.healthy, ledger.settled_twice, ledger.interrupted + self._interrupted, ledger.spool)

    async def _close_left_open(self, left: Collection[str]) -> None:
        while left:
            now = self._clock()
            futures = {request_id: self._ledger.settle(_interrupted(request_id, now)) for request_id in left}
            await asyncio.wait(futures.values())
            failures = {request_id: future.exception() for request_id, future in futures.items()}
            self._interrupted += sum(failure is None for failure in failures.values())
            left = [name for name, failure in failures.items() if failure and not isinstance(failure, RowRefused)]
            if left:
                await asyncio.sleep(RETRY_S)


@dataclass(slots=True)
class _Frame:
    """A frame of records that is being made durable."""

    number: int
    waiting: int
    refused: dict[int, Refusal]


class _Connection(asyncio.Protocol):
    """One worker's line."""

    def __init__(self, ledger: Ledger, state: Callable[[], State]) -> None:
        self._ledger = ledger
        self._state = state
        self._reader = FrameReader()
        self._transport: asyncio.Transport
        self.open: set[str] = set()
        """What the worker has opened and not settled."""
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def tell(self, answer: State | Done) -> None:
        if not self._transport.is_closing():
            self._transport.write(framed(encode(answer)))

    def close(self) -> None:
        self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are none by their class

    def connection_lost(self, _: Exception | None) -> None:
        self.lost.set_result(None)

    def data_received(self, data: bytes) -> None:
        for payload in self._reader.feed(data):
            self._take(decode_records(payload))

    def _take(self, records: Records) -> None:
        for opened in records.opened:
            self.open.add(opened.request_id)
        for settled in records.settled:
            self.open.discard(settled.request_id)
        everything: list[Record] = [*records.opened, *records.settled, *records.corrected, *records.sampled]
        frame = _Frame(records.number, len(everything), {})
        for place, record in enumerate(everything):
            self._follow(frame, place, self._ledger.put(record))

    def _follow(self, frame: _Frame, place: int, future: asyncio.Future[None]) -> None:
        def ended(done: asyncio.Future[None]) -> None:
            error = done.exception()
            if error is not None:
                assert isinstance(error, LedgerUnavailable)
                frame.refused[place] = Refusal.of(error)
            frame.waiting -= 1
            if frame.waiting:
                return
            self.tell(Done(frame.number, frame.refused))
            if any(refusal.request_id is None for refusal in frame.refused.values()):
                self.tell(self._state())

        future.add_done_callback(ended)


def _interrupted(request_id: str, now: datetime) -> Settlement:
    return Settlement(
        request_id=request_id,
        settled_at=now,
        state=SettlementState.INTERRUPTED,
        http_status=None,
        endpoint_id=None,
        usage=None,
        usage_json=None,
        convention=None,
        flags=frozenset(),
        expected_cached_tokens=None,
        ttft_s=None,
        duration_s=None,
        attempts=(),
    )
