"""The ledger's SQL: recovery, and batches of records as transactions. Runs on the writer's thread only.

A batch (`batch`) is one transaction. If one row cannot be stored (a text that is none, an id that exists), it is undone
and the batch written again by halves, until that row stands alone and is the only one refused. If the database fails,
all rows fail, the connection is dropped, and the next write or probe makes a new one.
"""

import os
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from datetime import datetime
from pathlib import Path
from typing import Literal

from sqlalchemy import Connection, create_engine, insert, select, update
from sqlalchemy.exc import IntegrityError, InterfaceError, ProgrammingError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from billing.batch import Batch
from billing.errors import LedgerUnavailable, RowRefused
from billing.ownership import owned
from billing.price_book import Prices
from billing.recovery import close_open
from billing.rollup_sql import rebuild
from billing.rows import Fact
from billing.schema import VERSION, metadata, owners
from billing.schema_upgrade import upgrade_1_to_2
from billing.types import Correction, EngineSample
from billing.when import to_us
from billing.writer import Outcome, Record

Sync = Literal["normal", "disk"]
"""What a commit survives: `normal` the death of the process, `disk` also the loss of power."""

MOST_FACTS = 1 << 16
"""Requests remembered between opening and settlement; older ones are read back."""

_MiB = 1024 * 1024
_MOST_JOURNAL_BYTES = 64 * _MiB
_PRIVATE = 0o600

# What is wrong with the row, not with the database. The last three come from the driver as they are.
_ROW_ERRORS = (IntegrityError, InterfaceError, ProgrammingError, OverflowError, ValueError, TypeError)


class SqliteStore:
    """A ledger in one SQLite file. `owner_id` names this opening of it."""

    def __init__(
        self,
        path: Path,
        book: Prices,
        owner_id: str,
        *,
        sync: Sync,
        busy_timeout_s: float,
        clock: Callable[[], datetime],
    ) -> None:
        self.healthy = True
        self.settled_twice = 0
        self.interrupted = 0
        self._path = path.absolute()
        self._book = book
        self._owner_id = owner_id
        self._sync = sync
        self._busy_timeout_s = busy_timeout_s
        self._clock = clock
        self._engine = create_engine(
            "sqlite+pysqlite://",
            creator=self._open,
            poolclass=NullPool,
            hide_parameters=True,
            skip_autocommit_rollback=False,
        )
        self._lock = ExitStack()
        self._connection: Connection | None = None
        self._facts: dict[str, Fact] = {}
        self._unsettled = 0

    def start(self) -> None:
        """Own the file, create what is missing, take over from owners that died. Raises `LedgerUnavailable`.

        O(rows) where an owner died, else O(1). Whether it raises or not, `close` ends it.
        """
        try:
            self._lock.enter_context(owned(self._path))
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _PRIVATE))
            connection = self._connected()
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            self._create(connection)
            self._recover(connection)
            connection.commit()
        except (SQLAlchemyError, OSError) as error:
            raise LedgerUnavailable(f"{self._path}: {_words(error)}") from error

    def write(self, records: Sequence[Record]) -> list[Outcome]:
        """Make records durable in one transaction; the outcome of each. Neither a record nor a disk makes it raise."""
        try:
            outcomes = self._transaction(records)
        except _ROW_ERRORS as error:
            if len(records) == 1:
                return [RowRefused(_id_of(records[0]), _words(error))]
            half = len(records) // 2
            return self.write(records[:half]) + self.write(records[half:])
        except SQLAlchemyError as error:
            self._disconnect()
            self.healthy = False
            return [LedgerUnavailable(_words(error)) for _ in records]
        if any(outcome is None for outcome in outcomes):  # where every row was refused, nothing was written
            self.healthy = True
        return outcomes

    def probe(self) -> None:
        """Write something that changes nothing, to see whether writing works."""
        try:
            connection = self._connected()
            connection.exec_driver_sql(f"PRAGMA user_version = {VERSION}")
            connection.commit()
        except SQLAlchemyError:
            self._disconnect()
        else:
            self.healthy = True

    def close(self) -> None:
        """Note an orderly end, so that the next start has nothing to recover; and let go of the file."""
        if self._connection is not None and not self._unsettled:
            with suppress(SQLAlchemyError), self._connection.begin():
                ended = {owners.c.ended_at_us: to_us(self._clock())}
                self._connection.execute(update(owners).where(owners.c.owner_id == self._owner_id).values(ended))
        self._disconnect()
        self._lock.close()

    def _open(self) -> sqlite3.Connection:
        # mode=rw: a file that went away must not come back empty under a running gateway.
        connection = sqlite3.connect(f"{self._path.as_uri()}?mode=rw", uri=True, timeout=self._busy_timeout_s)
        try:
            (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
            if mode != "wal":
                raise sqlite3.OperationalError("this file system cannot keep a write-ahead log; use a local disk")
            connection.execute(f"PRAGMA synchronous = {'FULL' if self._sync == 'disk' else 'NORMAL'}")
            connection.execute(f"PRAGMA journal_size_limit = {_MOST_JOURNAL_BYTES}")
        except sqlite3.Error:
            connection.close()
            raise
        return connection

    def _connected(self) -> Connection:
        if self._connection is None:
            self._connection = self._engine.connect()
        return self._connection

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(SQLAlchemyError):
                connection.close()

    def _create(self, connection: Connection) -> None:
        version = connection.exec_driver_sql("PRAGMA user_version").scalar_one()
        if version not in range(VERSION + 1):
            raise LedgerUnavailable(f"{self._path} has tables of version {version}, this program writes {VERSION}")
        if version == 1:
            upgrade_1_to_2(connection)
        metadata.create_all(connection)  # those that are missing
        if version == 1:
            rebuild(connection)
        connection.exec_driver_sql(f"PRAGMA user_version = {VERSION}")

    def _recover(self, connection: Connection) -> None:
        """Settle what earlier owners left open as interrupted: how it ended and what it used is not known."""
        now_us = to_us(self._clock())
        dead = connection.execute(select(owners.c.owner_id).where(owners.c.ended_at_us.is_(None))).scalars().all()
        self.interrupted = close_open(connection, dead, self._owner_id, self._book.currency, now_us)
        connection.execute(insert(owners).values(owner_id=self._owner_id, started_at_us=now_us))

    def _transaction(self, records: Sequence[Record]) -> list[Outcome]:
        connection = self._connected()
        with connection.begin():
            batch = Batch(connection, self._owner_id, self._book, self._facts)
            outcomes: list[Outcome] = [batch.add(record) for record in records]
            batch.insert()
        self._remember(batch)
        return outcomes

    def _remember(self, batch: Batch) -> None:
        """Called once the batch is durable."""
        self.settled_twice += batch.settled_twice
        self._unsettled += len(batch.opened) - len(batch.settled)
        self._facts.update(batch.opened)
        for request_id in batch.settled:
            self._facts.pop(request_id, None)
        while len(self._facts) > MOST_FACTS:
            del self._facts[next(iter(self._facts))]


def _id_of(record: Record) -> str:
    if isinstance(record, EngineSample):
        return record.endpoint_id
    return record.correction_id if isinstance(record, Correction) else record.request_id


def _words(error: Exception) -> str:
    """The driver's own words, without the statement and its values."""
    return str(getattr(error, "orig", None) or error)
