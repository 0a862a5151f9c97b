"""The ledger of another process: what a worker has in place of a writer of its own.

    put put put ...  --end of the loop's turn-->  one frame  -->  owner: its writer, with those of all workers
    futures          <---------- Done, once all of the frame is durable ----'

The promises are those of the owner: a future resolves once its row survives `kill -9` of either process. Where the
owner is gone all futures fail at once, and so does what is put from then on; where it only says nothing for `SILENT_S`
the ledger is not healthy, and what waits goes on waiting, since it may be durable.
Costs on the loop: one future a record, one frame each way a turn.
"""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

from billing.durable import id_of
from billing.errors import LedgerUnavailable, RowRefused
from billing.ledger import Ledger, LedgerFigures
from billing.ledger_frames import (
    Done,
    FrameReader,
    Records,
    State,
    decode_answer,
    encode,
    framed,
)
from billing.types import Correction, EngineSample, OpenedRequest, Settlement
from billing.writer import Record

SILENT_S = 5.0
"""The owner says something every second."""
_START_S = 10.0
_CLOSE_S = 10.0
_GONE = "the process that owns it is gone"


@asynccontextmanager
async def ledger_of_owner(line: socket.socket, *, most_waiting: int = 16 * 1024) -> AsyncIterator[Ledger]:
    """The ledger behind a connected socket, whose other end `LedgerService` serves; drained at the end.

    Raises `LedgerUnavailable` where the owner does not answer.
    """
    loop = asyncio.get_running_loop()
    _, client = await loop.create_unix_connection(lambda: LedgerClient(most_waiting), sock=line)
    try:
        await client.heard()
        yield Ledger(client, client.figures)
    finally:
        await client.close()


class LedgerClient(asyncio.Protocol):
    """See `billing.ledger.Writing`."""

    def __init__(self, most_waiting: int) -> None:
        self._most_waiting = most_waiting
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._reader = FrameReader()
        self._state: State | None = None
        self._heard = self._loop.create_future()
        self._heard_s = 0.0
        self._closed = False
        self._batch: list[tuple[Record, asyncio.Future[None]]] = []
        self._sent: dict[int, list[asyncio.Future[None]]] = {}
        self._number = 0
        self._waiting = 0
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def healthy(self) -> bool:
        """Whether the owner is there, has said lately that its ledger works, and there is room for more."""
        if self._state is None or self._closed or self._waiting >= self._most_waiting:
            return False
        return self._state.healthy and self._loop.time() - self._heard_s < SILENT_S

    def figures(self) -> LedgerFigures:
        """As the owner told them last."""
        state = self._state
        return LedgerFigures() if state is None else LedgerFigures(state.settled_twice, state.interrupted, state.spool)

    def put(self, record: Record) -> asyncio.Future[None]:
        """Queue a record for the end of this turn of the loop. O(1), no I/O."""
        future = self._loop.create_future()
        if self._closed or self._waiting >= self._most_waiting:
            why = _GONE if self._closed else f"{self._waiting} rows wait already; its owner is too slow"
            _resolve(future, LedgerUnavailable(why))
            return future
        self._waiting += 1
        self._idle.clear()
        if not self._batch:
            self._loop.call_soon(self._flush)
        self._batch.append((record, future))
        return future

    async def heard(self) -> None:
        """Wait until the owner has said how its ledger is. Raises `LedgerUnavailable`."""
        try:
            async with asyncio.timeout(_START_S):
                await asyncio.shield(self._heard)
        except TimeoutError:
            raise LedgerUnavailable(f"the process that owns it said nothing within {_START_S:g} s") from None

    async def close(self) -> None:
        """Wait until what was put is durable, then let go. What is put from now on fails."""
        try:
            async with asyncio.timeout(_CLOSE_S):
                await self._idle.wait()
        except TimeoutError:
            pass
        self._transport.close()
        self._lost()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are none by their class

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        for payload in self._reader.feed(data):
            answer = decode_answer(payload)
            if isinstance(answer, Done):
                self._done(answer)
            else:
                self._state, self._heard_s = answer, self._loop.time()
                _resolve(self._heard, None)

    def connection_lost(self, _: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        self._lost()

    def _flush(self) -> None:
        """Send what was put in this turn. A record that cannot be said in a frame is refused alone."""
        batch, self._batch = self._batch, []
        try:
            payload, futures = self._encoded(batch)
        except (ValueError, OverflowError, TypeError):
            payload, futures = self._encoded([one for one in batch if self._can_be_said(*one)])
        if futures:
            self._sent[self._number] = futures
            self._transport.write(framed(payload))

    def _encoded(self, batch: list[tuple[Record, asyncio.Future[None]]]) -> tuple[bytes, list[asyncio.Future[None]]]:
        self._number += 1
        records = Records(self._number, [], [], [], [])
        kinds: dict[type[Record], list[Record]] = {
            OpenedRequest: records.opened,  # type: ignore[dict-item]  # each list has its own kind
            Settlement: records.settled,  # type: ignore[dict-item]
            Correction: records.corrected,  # type: ignore[dict-item]
            EngineSample: records.sampled,  # type: ignore[dict-item]
        }
        futures: dict[type[Record], list[asyncio.Future[None]]] = {kind: [] for kind in kinds}
        for record, future in batch:
            kinds[type(record)].append(record)
            futures[type(record)].append(future)
        return encode(records), [future for of_kind in futures.values() for future in of_kind]

    def _can_be_said(self, record: Record, future: asyncio.Future[None]) -> bool:
        try:
            encode(record)
        except (ValueError, OverflowError, TypeError) as error:
            self._ended(future, RowRefused(id_of(record), str(error)))
            return False
        return True

    def _done(self, done: Done) -> None:
        for place, future in enumerate(self._sent.pop(done.number)):
            refusal = done.refused.get(place) if done.refused else None
            self._ended(future, None if refusal is None else refusal.error())

    def _ended(self, future: asyncio.Future[None], outcome: LedgerUnavailable | None) -> None:
        self._waiting -= 1
        if not self._waiting:
            self._idle.set()
        _resolve(future, outcome)

    def _lost(self) -> None:
        self._closed = True
        waiting = [future for futures in self._sent.values() for future in futures]
        waiting += [future for _, future in self._batch]
        self._sent.clear()
        self._batch = []
        for future in waiting:
            self._ended(future, LedgerUnavailable(_GONE))
        _resolve(self._heard, LedgerUnavailable(_GONE))


def _resolve(future: asyncio.Future[None], outcome: LedgerUnavailable | None) -> None:
    """End a future unless its waiter gave up. Looking at the exception keeps an unawaited one out of the logs."""
    if future.done():
        return
    if outcome is None:
        future.set_result(None)
    else:
        future.set_exception(outcome)
        future.exception()
