"""The ledger's SQL, on either database: recovery, and batches of records as transactions. On the writer's thread only.

A batch (`batch`) is one transaction. If one row cannot be stored (a text that is none, an id that exists), it is undone
and the batch written again by halves, until that row stands alone and is the only one refused. If the database fails,
all rows fail, the connection is dropped, and the next write or probe makes a new one.

A request that another gateway closed as interrupted, taking us for dead, and that we settle after all, keeps that
settlement; what it cost becomes a correction, once.
"""

import logging
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial

from sqlalchemy import Connection, insert, select, update

from billing.batch import Batch
from billing.database import Database, Watcher, words
from billing.durable import durable, id_of, key_of
from billing.errors import LedgerUnavailable, RowRefused
from billing.migrations import bring_up
from billing.prices.book import Prices
from billing.recovery import close_open
from billing.rows import Fact
from billing.schema import owners
from billing.types import Settlement
from billing.when import to_us
from billing.writer import Outcome, Record

log = logging.getLogger("billing")

_Transaction = Callable[[Sequence[Record]], list[Outcome]]

MOST_FACTS = 1 << 16
"""Requests remembered between opening and settlement; older ones are read back."""


class LedgerStore:
    """A ledger in a database, opened by one owner: a name for this opening of it."""

    def __init__(self, database: Database, book: Prices, *, clock: Callable[[], datetime]) -> None:
        self.healthy = True
        self.settled_twice = 0
        self.interrupted = 0
        self.is_away = False
        """Whether it could not be entered for a reason that may pass by itself."""
        self._database = database
        self._book = book
        self._clock = clock
        self._owner_id = secrets.token_hex(8)
        self._connection: Connection | None = None
        self._is_up = False
        self._facts: dict[str, Fact] = {}
        self._unsettled = 0

    @property
    def owner_id(self) -> str:
        """The name of this opening; another one after others took us for dead."""
        return self._owner_id

    def start(self) -> None:
        """Own the ledger, create what is missing, take over from owners that died. Raises `LedgerUnavailable`.

        O(rows since the first that is open), where an owner died, else O(1). Whether it raises or not, `close` ends it.
        """
        self.hold()
        self.enter()
        self.recover()
        if not self.healthy:
            raise LedgerUnavailable(f"{self._database.name}: what an earlier owner left open could not be closed")

    def hold(self) -> None:
        """Keep out who may not write beside us. Raises `LedgerUnavailable`."""
        self._named(self._database.hold)

    def enter(self) -> None:
        """Connect; create what is missing. Raises `LedgerUnavailable`."""
        self._named(self._connected)

    def recover(self) -> None:
        """Close what dead owners left open; from now on also what others leave that die."""
        try:
            connection = self._connected()
            with connection.begin():
                unended = select(owners.c.owner_id).where(
                    owners.c.ended_at_us.is_(None), owners.c.owner_id != self._owner_id
                )
                dead = self._database.dead_at_start(connection.execute(unended).scalars().all())
                closed = close_open(connection, dead, self._owner_id, self._book.currency, to_us(self._clock()))
        except self._database.failures as error:
            self._fail(words(error))
            return
        self.interrupted += closed
        self._database.watch(
            Watcher(lambda: self._owner_id, self._book.currency, lambda: to_us(self._clock()), self._took_over)
        )

    def reach(self) -> bool:
        """Whether the database answers. On any thread."""
        try:
            self._database.reach()
        except self._database.failures:
            return False
        return True

    def write(self, records: Sequence[Record]) -> list[Outcome]:
        """Make records durable in one transaction; the outcome of each. Neither a record nor a disk makes it raise."""
        return self._write(records, self._transaction, self._transaction_again)

    def hand_in(self, records: Sequence[Record], owner_id: str) -> list[Outcome]:
        """The same for records of that owner of which some, or all, may be durable already: those stay as they are."""
        transaction = partial(self._transaction_again, owner_id=owner_id)
        return self._write(records, transaction, transaction)

    def _write(self, records: Sequence[Record], transaction: _Transaction, again: _Transaction | None) -> list[Outcome]:
        """`again` is tried once, where the session is lost: perhaps the commit is done, and only its answer lost."""
        lost = False
        try:
            outcomes = transaction(records)
        except self._database.row_errors as error:
            if len(records) == 1:
                return [self._refused(records[0], error)]
            half = len(records) // 2
            halves = (records[:half], records[half:])
            return [outcome for part in halves for outcome in self._write(part, transaction, again)]
        except LedgerUnavailable as error:  # the tables became newer meanwhile
            outcomes = [error for _ in records]
        except self._database.failures as error:
            lost = self._connection is not None and self._database.is_lost(self._connection)
            outcomes = [LedgerUnavailable(words(error)) for _ in records]
            self._disconnect()
        if lost and again is not None:
            return self._write(records, again, None)
        refusals = [outcome for outcome in outcomes if outcome is not None]
        failure = next((refusal for refusal in refusals if not isinstance(refusal, RowRefused)), None)
        if failure is not None:
            self._turns(healthy=False, why=failure.why)
        elif len(refusals) < len(outcomes):  # where every row was refused, nothing was written
            self._turns(healthy=True)
        return outcomes

    def probe(self) -> None:
        """Write something that changes nothing, to see whether writing works."""
        try:
            connection = self._connected()
            with connection.begin():
                self._touch_owner(connection, {"owner_id": self._owner_id})
        except LedgerUnavailable:
            self._disconnect()
        except self._database.failures:
            self._disconnect()
        else:
            self._turns(healthy=True)

    def tend(self) -> None:
        """Called about once a second while nothing is to be written. A session that ended meanwhile is begun anew: it
        stands for what is open here, which others would take for left by a dead gateway."""
        was_connected = self._connection is not None
        failures: tuple[type[Exception], ...] = (LedgerUnavailable, *self._database.failures)
        try:
            self._database.tend(self._connected(), self._owner_id)
        except failures as error:
            self._disconnect()
            self._turns(healthy=was_connected, why=words(error))

    def close(self, *, orderly: bool = True) -> None:
        """Note an orderly end, so that nobody has anything to recover; and let go of the ledger."""
        if orderly and self._connection is not None and not self._unsettled:
            with suppress(*self._database.failures), self._connection.begin():
                self._touch_owner(self._connection, {"ended_at_us": to_us(self._clock())})
        self._disconnect()
        self._database.let_go()

    def _named(self, step: Callable[[], object]) -> None:
        name = self._database.name
        try:
            step()
        except LedgerUnavailable as error:
            raise LedgerUnavailable(error.why if name in error.why else f"{name}: {error.why}") from error
        except self._database.failures as error:
            self.is_away = self._database.is_away(error)
            self._fail(words(error))
            raise LedgerUnavailable(f"{name}: {words(error)}") from error

    def _connected(self) -> Connection:
        if self._connection is None:
            connection = self._database.connect()
            try:
                self._enter(connection)
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    def _enter(self, connection: Connection) -> None:
        """Make ready what was never ready, or see that we still count as alive."""
        self._database.own(connection, self._owner_id)
        if not self._is_up:
            self._database.begin_alone(connection)
            bring_up(connection)
            self._register(connection)
            connection.commit()
            self._is_up = True
            return
        with connection.begin():
            mine = owners.c.owner_id == self._owner_id
            alive = connection.execute(select(owners.c.owner_id).where(mine, owners.c.ended_at_us.is_(None))).first()
        if alive is None:
            self._owner_id = secrets.token_hex(8)
            self._database.own(connection, self._owner_id)
            with connection.begin():
                self._register(connection)

    def _register(self, connection: Connection) -> None:
        connection.execute(insert(owners).values(owner_id=self._owner_id, started_at_us=to_us(self._clock())))

    def _touch_owner(self, connection: Connection, values: dict[str, object]) -> None:
        connection.execute(update(owners).where(owners.c.owner_id == self._owner_id).values(values))

    def _took_over(self, closed: int) -> None:
        self.interrupted += closed

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(*self._database.failures):
                if self._database.is_lost(connection):
                    connection.invalidate()  # else SQLAlchemy asks it to roll back, and logs that it cannot
                connection.close()

    def _fail(self, why: str) -> None:
        self._disconnect()
        self._turns(healthy=False, why=why)

    def _turns(self, *, healthy: bool, why: str = "") -> None:
        """Note whether writing works; a change is told in the log."""
        if healthy != self.healthy:
            log.warning("the ledger is %s", "back" if healthy else f"away: {why}")
        self.healthy = healthy

    def _transaction(self, records: Sequence[Record], owner_id: str | None = None) -> list[Outcome]:
        connection = self._connected()
        self._database.stand_for(connection, self._owner_id)
        owner_id = self._owner_id if owner_id is None else owner_id
        is_ours = owner_id == self._owner_id
        if not is_ours:
            self._revive(connection, owner_id)
        batch = Batch(connection, owner_id, self._book, self._facts)
        outcomes: list[Outcome] = [batch.add(record) for record in records]
        self._database.write(connection, batch.rows())
        self._remember(batch, is_ours=is_ours)
        return outcomes

    def _transaction_again(self, records: Sequence[Record], owner_id: str | None = None) -> list[Outcome]:
        """As `_transaction`, for what is not there yet. A settlement that is there is known by its request."""
        connection = self._connected()
        with connection.begin():
            there = durable(connection, records)
        for record in records:
            if isinstance(record, Settlement):
                self._facts.pop(record.request_id, None)
        missing = [record for record in records if key_of(record) not in there]
        outcomes = self._transaction(missing, owner_id) if missing else []
        by_key = dict(zip(map(key_of, missing), outcomes, strict=True))
        return [by_key.get(key_of(record)) for record in records]

    def _revive(self, connection: Connection, owner_id: str) -> None:
        """What a dead owner left in a spool is its own: it counts as dead and not yet looked after, again."""
        with connection.begin():
            revived = connection.execute(update(owners).where(owners.c.owner_id == owner_id).values(ended_at_us=None))
            if not revived.rowcount:
                connection.execute(insert(owners).values(owner_id=owner_id, started_at_us=to_us(self._clock())))

    def _refused(self, record: Record, error: Exception) -> Outcome:
        """A settlement may stand in the way of ours that another gateway has written, since it took us for dead."""
        refused = RowRefused(id_of(record), words(error))
        if not isinstance(record, Settlement) or self._facts.pop(record.request_id, None) is None:
            return refused
        (outcome,) = self.write([record])  # now it is read back
        return outcome

    def _remember(self, batch: Batch, *, is_ours: bool) -> None:
        """Called once the batch is durable."""
        self.settled_twice += batch.settled_twice
        if is_ours:
            self._unsettled += len(batch.opened) - len(batch.settled)
        self._facts.update(batch.opened)
        for request_id in batch.settled:
            self._facts.pop(request_id, None)
        while len(self._facts) > MOST_FACTS:
            del self._facts[next(iter(self._facts))]
