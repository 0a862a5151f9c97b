"""One thread that writes, so that the event loop never waits for a disk. Group commit without a timer:

    loop    put put put | put put | put put put put | ...      the rows of a turn of the loop are handed over at its end
                        |         |                 |
    thread              [ write 1..3 ] [ write 4..9 ] ...      what came during one commit is the next one's batch
                                     |              |
    loop                             futures 1..3   ...        one call_soon_threadsafe a batch

An idle writer commits a turn's rows at once, a busy one shares a commit among all that wait: the fuller, the cheaper a
row. Loop and thread share one interpreter lock, so each hand-over between them can make either wait for the other:
there is one a turn and one a batch, not one a row.

Invariants: a future is resolved exactly once, on the loop, after its row is durable or cannot be; the queue is
bounded, beyond it a row fails at once; rows are written in the order in which they were put; the thread survives every
failure of the store, and looks every `PROBE_S` whether a store that failed works again, or has anything to tend.
Costs on the loop: one future and one list entry a row, one callback and one queue entry a turn, one callback a batch.
"""

import asyncio
import queue
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol

from billing.errors import LedgerUnavailable
from billing.types import Correction, EngineSample, OpenedRequest, Settlement

Record = OpenedRequest | Settlement | Correction | EngineSample
Outcome = LedgerUnavailable | None
"""What became of a record: None = durable."""

MOST_IN_BATCH = 1024
"""Rows of one transaction at most, so that the first of them need not wait long for the last."""

PROBE_S = 1.0


class Store(Protocol):
    """Where the writer writes. All calls come from the writer's thread. Only `start` may raise."""

    @property
    def healthy(self) -> bool:
        """Whether writing works, as far as is known."""

    def start(self) -> None:
        """Connect, make ready, recover. Raises `LedgerUnavailable`; then, too, `close` is called."""

    def write(self, records: Sequence[Record]) -> Sequence[Outcome]:
        """Make records durable, in order; says for each what became of it."""

    def probe(self) -> None:
        """See whether writing works again, and set `healthy`."""

    def tend(self) -> None:
        """Called every `PROBE_S` while nothing is to be written and writing works."""

    def close(self) -> None:
        """End in good order."""


_Ticket = tuple[Record, asyncio.Future[None]]


class Writer:
    """The loop's side of the thread. Made, used and closed on one event loop."""

    def __init__(self, store: Store, *, most_waiting: int) -> None:
        self._store = store
        self._most_waiting = most_waiting
        self._loop = asyncio.get_running_loop()
        self._fresh: list[_Ticket] = []
        """Put in this turn of the loop."""
        self._queue: queue.SimpleQueue[list[_Ticket] | None] = queue.SimpleQueue()
        self._rest: list[_Ticket] = []
        """The thread's: taken from the queue, too much for the batch before."""
        self._waiting = 0
        self._closed = False
        self._started: asyncio.Future[None] = self._loop.create_future()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._thread = threading.Thread(target=self._run, name="ledger-writer")

    @property
    def healthy(self) -> bool:
        """Whether the last write worked, and there is room for more."""
        return self._store.healthy and not self._closed and self._waiting < self._most_waiting

    async def start(self) -> None:
        """Start the thread and wait until the store is ready. Raises what `Store.start` raises."""
        self._thread.start()
        await self._started

    def put(self, record: Record) -> asyncio.Future[None]:
        """Queue a record. The future ends when it is durable, or fails with `LedgerUnavailable`. O(1), no I/O."""
        future = self._loop.create_future()
        if self._closed or self._waiting >= self._most_waiting:
            why = "it is closed" if self._closed else f"{self._waiting} rows wait already; the disk is too slow"
            _resolve(future, LedgerUnavailable(why))
            return future
        self._waiting += 1
        if not self._fresh:
            self._loop.call_soon(self._hand_over)
        self._fresh.append((record, future))
        return future

    async def close(self) -> None:
        """Write what waits, then end the thread, if it ever began. What is put from now on fails."""
        if self._thread.ident is None:
            return
        if not self._closed:
            self._closed = True
            self._hand_over()
            self._queue.put(None)
        await asyncio.shield(self._ended)
        self._thread.join()

    def _run(self) -> None:
        try:
            self._store.start()
            self._tell(_resolve, self._started, None)
            while (batch := self._next_batch()) is not None:
                self._write(batch)
        except LedgerUnavailable as error:
            self._tell(_resolve, self._started, error)
        finally:
            self._store.close()
            self._tell(self._end)

    def _hand_over(self) -> None:
        fresh, self._fresh = self._fresh, []
        if fresh:
            self._queue.put(fresh)

    def _next_batch(self) -> list[_Ticket] | None:
        """Wait for tickets, take all that wait with them; None once the queue was closed and is empty."""
        batch = self._rest or self._wait()
        if batch is None:
            return None
        while len(batch) < MOST_IN_BATCH and not self._queue.empty():
            more = self._queue.get()
            if more is None:
                self._queue.put(None)
                break
            batch += more
        self._rest = batch[MOST_IN_BATCH:]
        return batch[:MOST_IN_BATCH]

    def _wait(self) -> list[_Ticket] | None:
        while True:
            try:
                return self._queue.get(timeout=PROBE_S)
            except queue.Empty:
                if self._store.healthy:
                    self._store.tend()
                else:
                    self._store.probe()

    def _write(self, batch: list[_Ticket]) -> None:
        outcomes: Sequence[Outcome] = [LedgerUnavailable("its writer failed")] * len(batch)
        try:
            outcomes = self._store.write([record for record, _ in batch])
        finally:
            self._tell(self._resolve_batch, batch, outcomes)

    def _resolve_batch(self, batch: list[_Ticket], outcomes: Sequence[Outcome]) -> None:
        self._waiting -= len(batch)
        for (_, future), outcome in zip(batch, outcomes, strict=True):
            _resolve(future, outcome)

    def _end(self) -> None:
        """The thread has ended: nothing waits any more, except after a fault that ended it too early."""
        self._closed = True
        self._hand_over()
        left = self._rest
        while not self._queue.empty():
            left += self._queue.get() or ()
        self._resolve_batch(left, [LedgerUnavailable("its writer has ended")] * len(left))
        _resolve(self._started, LedgerUnavailable("its writer failed at the start"))  # unless it did start
        _resolve(self._ended, None)

    def _tell(self, what: Callable[..., None], *arguments: object) -> None:
        # A loop that was closed without closing the ledger cannot be told anything; the rows are written all the same.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(what, *arguments)


def _resolve(future: asyncio.Future[None], outcome: Outcome) -> None:
    """End a future unless its waiter gave up. Looking at the exception keeps an unawaited one out of the logs."""
    if future.done():
        return
    if outcome is None:
        future.set_result(None)
    else:
        future.set_exception(outcome)
        future.exception()
