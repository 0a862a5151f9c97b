"""The ledger as the gateway sees it: open a request, settle it, and know when each is durable.

    open    --> requests     committed before the first byte of an answer is released
    settle  --> settlements  committed before its end is released; priced here, by the time of opening
    (crash) --> interrupted  at the next start: what was used is unknown, not zero

A future that `open` or `settle` gave resolves once its row survives `kill -9` (and a power loss with `sync="disk"`).
Neither call waits for anything. One process owns the file; the lock dies with it. Where others share it, they ask that
one: `ledger_client`, `ledger_service`.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from billing.database import Sync
from billing.databases import database_at
from billing.prices.book import Prices
from billing.spool import Spool
from billing.spooled_store import SpooledStore, SpoolState
from billing.store import LedgerStore
from billing.types import Correction, EngineSample, OpenedRequest, Settlement
from billing.writer import Record, Writer


@dataclass(frozen=True, slots=True)
class LedgerOptions:
    """`most_waiting` rows may wait for the disk, beyond them rows fail at once; `busy_timeout_s` is the patience with
    another program that writes into the file, or with a server; a gateway whose session at a server is gone for
    `takeover_s` counts as dead; `spool` is a folder for up to `spool_most_bytes` of records while the ledger is away,
    without one they fail; `clock` is wall time in UTC."""

    most_waiting: int = 16 * 1024
    busy_timeout_s: float = 2.0
    takeover_s: float = 30.0
    spool: Path | None = None
    spool_most_bytes: int = 1 << 30
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class LedgerFigures:
    """Counts since the start: settlements that were ignored, because their request had one; requests that others left
    open and that were closed here. `spool` waits on the local disk for the ledger; None where nothing would."""

    settled_twice: int = 0
    interrupted: int = 0
    spool: SpoolState | None = None


class Writing(Protocol):
    """Where records go: the writer of this process, or the process that owns the ledger."""

    @property
    def healthy(self) -> bool:
        """Whether records can be made durable, as far as is known."""

    def put(self, record: Record) -> asyncio.Future[None]:
        """Queue a record. The future ends when it is durable, or fails with `LedgerUnavailable`. No I/O."""


class Ledger:
    """An open ledger. Every method is called on the event loop on which it was opened."""

    def __init__(self, writing: Writing, figures: Callable[[], LedgerFigures]) -> None:
        self._writer = writing
        self._figures = figures

    @property
    def healthy(self) -> bool:
        """Whether rows can be written: the last write worked, and the queue is not full."""
        return self._writer.healthy

    @property
    def settled_twice(self) -> int:
        """Settlements that were ignored, because their request had one."""
        return self._figures().settled_twice

    @property
    def interrupted(self) -> int:
        """Requests that earlier owners had left open and that were closed at the start."""
        return self._figures().interrupted

    @property
    def spool(self) -> SpoolState | None:
        """What waits on the local disk for the ledger; None where nothing would."""
        return self._figures().spool

    def put(self, record: Record) -> asyncio.Future[None]:
        """Write down any record, as the method of its kind does."""
        return self._writer.put(record)

    def open(self, request: OpenedRequest) -> asyncio.Future[None]:
        """Write down that a request is about to be sent. The future fails with `LedgerUnavailable`."""
        return self._writer.put(request)

    def settle(self, settlement: Settlement) -> asyncio.Future[None]:
        """Write down how a request ended, and its bill; a second time it does nothing.

        The future fails with `LedgerUnavailable`, or `RowRefused` for a request that was never opened.
        """
        return self._writer.put(settlement)

    def correct(self, correction: Correction) -> asyncio.Future[None]:
        """Write down a change of a bill. It fails with `LedgerUnavailable`, or `RowRefused` where the id exists."""
        return self._writer.put(correction)

    def sample(self, sample: EngineSample) -> asyncio.Future[None]:
        """Write down what an engine's counters say. The future fails with `LedgerUnavailable`."""
        return self._writer.put(sample)


@asynccontextmanager
async def open_ledger(
    where: Path | str, book: Prices, *, sync: Sync = "normal", options: LedgerOptions | None = None
) -> AsyncIterator[Ledger]:
    """Own the ledger at a path or a PostgreSQL URL while inside; made where it is missing, and drained at the end.

    Raises `LedgerUnavailable` where another process owns the file, or it cannot be opened.
    """
    options = options or LedgerOptions()
    patience_s = options.busy_timeout_s
    database = database_at(where, sync=sync, patience_s=patience_s, takeover_s=options.takeover_s)
    store = LedgerStore(database, book, clock=options.clock)
    spooled = None
    if options.spool is not None:
        spooled = SpooledStore(store, Spool(options.spool, sync=sync, most_bytes=options.spool_most_bytes))
    writer = Writer(spooled or store, most_waiting=options.most_waiting)
    try:
        await writer.start()
        yield Ledger(writer, lambda: _figures(store, spooled))
    finally:
        await writer.close()


def _figures(store: LedgerStore, spooled: SpooledStore | None) -> LedgerFigures:
    return LedgerFigures(store.settled_twice, store.interrupted, None if spooled is None else spooled.state)
