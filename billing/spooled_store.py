"""A store that takes records while its ledger is away, and hands them in when it is back: exactly once.

    ledger works, spool empty   -->  ledger
    ledger away                 -->  spool
    ledger back                 -->  spool, and each time a part of the spool --> ledger, until it is empty

So records reach the ledger in the order in which they came. While it is away a thread of its own asks for it, so that
no batch waits for a connection that does not come about. What is handed in twice (a crash between the two) is known by
its ids and stays as it is. What an earlier process left behind is handed in under its name, before anybody looks for
what that one left open.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from billing.durable import id_of
from billing.errors import LedgerUnavailable, RowRefused
from billing.spool import Segment, Spool, SpoolFull
from billing.store import LedgerStore
from billing.types import Settlement
from billing.writer import MOST_IN_BATCH, Outcome, Record

log = logging.getLogger("billing")

ASK_S = 1.0
_PARTS_WHILE_IDLE = 8


@dataclass(frozen=True, slots=True)
class SpoolState:
    """`records` and `size_bytes` wait for the ledger; it refused `refused` that were handed in."""

    is_away: bool
    records: int
    size_bytes: int
    refused: int


class SpooledStore:
    """See `writer.Store`; on the writer's thread."""

    def __init__(self, store: LedgerStore, spool: Spool) -> None:
        self.refused = 0
        """Records that the ledger refused when they were handed in; they are kept beside the spool."""
        self._store = store
        self._spool = spool
        self._segment: Segment | None = None
        self._handed_in = 0
        self._recovered = False
        self._bell = _Bell(store.reach)

    @property
    def healthy(self) -> bool:
        """Whether records are taken: by the spool, or by the ledger without it."""
        return self._spool.has_room or (self._store.healthy and self._spool.is_empty)

    @property
    def state(self) -> SpoolState:
        """What waits. On any thread."""
        return SpoolState(not self._store.healthy, self._spool.records, self._spool.size_bytes, self.refused)

    def start(self) -> None:
        """Take the spool and the ledger; one that is away may come later. Raises `LedgerUnavailable` where another has
        either."""
        self._spool.start()
        self._store.hold()
        self._bell.start()
        try:
            self._store.enter()
        except LedgerUnavailable:
            if not self._store.is_away:
                raise
            self._bell.ask()
            return
        while self._hand_in():
            pass
        self._recover()

    def write(self, records: Sequence[Record]) -> list[Outcome]:
        """Make records durable, in the ledger or in the spool."""
        if not self._spool.is_empty or not self._store.healthy:
            outcomes = self._keep(records)
            self._look()
            return outcomes
        outcomes = self._store.write(records)
        lost = [at for at, outcome in enumerate(outcomes) if outcome is not None and not _is_final(outcome)]
        if lost:
            self._bell.ask()
        for at, outcome in zip(lost, self._keep([records[at] for at in lost]), strict=True):
            outcomes[at] = outcome
        return outcomes

    def probe(self) -> None:
        """See whether there is room again."""
        self._spool.probe()
        self.tend()

    def tend(self) -> None:
        """Hand in what waits; and what the store has to tend."""
        for _ in range(_PARTS_WHILE_IDLE):
            if not self._look():
                break
        was_healthy = self._store.healthy
        if was_healthy:
            self._store.tend()
        if was_healthy and not self._store.healthy:
            self._bell.ask()

    def close(self) -> None:
        """Hand in what can be; the rest stays for the next start."""
        self._bell.close()
        while self._store.healthy and self._recovered and self._hand_in():
            pass
        self._store.close(orderly=self._spool.is_empty)
        self._spool.close()

    def _look(self) -> bool:
        """One step towards an empty spool; whether another may follow at once."""
        if not self._store.healthy:
            if not self._bell.rang():
                return False
            self._store.probe()
            if not self._store.healthy:
                self._bell.ask()
                return False
        if self._hand_in():
            return True
        if self._store.healthy:
            self._recover()
        return False

    def _recover(self) -> None:
        if not self._recovered and self._store.healthy:
            self._store.recover()
            self._recovered = self._store.healthy

    def _keep(self, records: Sequence[Record]) -> list[Outcome]:
        try:
            self._spool.append(records, self._store.owner_id)
        except (SpoolFull, ValueError, OverflowError, TypeError) as error:
            if len(records) == 1:
                return [error if isinstance(error, SpoolFull) else RowRefused(id_of(records[0]), str(error))]
            half = len(records) // 2
            return self._keep(records[:half]) + self._keep(records[half:])
        return [None for _ in records]

    def _hand_in(self) -> bool:
        """Put a part of the oldest file into the ledger; whether there was one, and the ledger took it."""
        if self._spool.is_empty:
            return False
        try:
            return self._hand_in_part()
        except SpoolFull:  # its disk fails; what is there stays
            return False

    def _hand_in_part(self) -> bool:
        if self._segment is None:
            self._segment, self._handed_in = self._spool.oldest(), 0
        segment = self._segment
        part = segment.records[self._handed_in : self._handed_in + MOST_IN_BATCH]
        outcomes = self._store.hand_in(part, segment.owner_id)
        if not self._store.healthy:
            self._bell.ask()
            return False
        for record, outcome in zip(part, outcomes, strict=True):
            if outcome is not None and not _costs_nothing(record):
                self._spool.set_aside(record)
                self.refused += 1
                log.error(
                    "the ledger refused a record that had waited, and it is kept in the file `refused`: %s", outcome
                )
        self._handed_in += len(part)
        if self._handed_in >= len(segment.records):
            self._spool.forget(segment)
            self._segment = None
        return True


class _Bell:
    """Asks on a thread of its own whether the ledger can be reached, and rings when it can."""

    def __init__(self, reach: Callable[[], bool]) -> None:
        self._reach = reach
        self._wanted = threading.Event()
        self._rang = threading.Event()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ledger-bell")

    def start(self) -> None:
        self._thread.start()

    def ask(self) -> None:
        self._rang.clear()
        self._wanted.set()

    def rang(self) -> bool:
        return self._rang.is_set()

    def close(self) -> None:
        self._closed.set()
        self._wanted.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while self._wanted.wait() and not self._closed.is_set():
            if self._reach():
                self._wanted.clear()
                self._rang.set()
            else:
                self._closed.wait(ASK_S)


def _costs_nothing(record: Record) -> bool:
    """Whether it is the end of a request that failed: where there was no room for its opening, nothing is missing."""
    return isinstance(record, Settlement) and not record.state.billable


def _is_final(outcome: Outcome) -> bool:
    return isinstance(outcome, RowRefused)
