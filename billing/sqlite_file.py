"""A ledger in one SQLite file, owned by one process: an owner that is noted there and is not us has died."""

import os
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from sqlalchemy import Connection, create_engine
from sqlalchemy.exc import IntegrityError, InterfaceError, ProgrammingError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from billing.batch_sql import Rows, sqlite_statements
from billing.bulk import Statement
from billing.checkpoints import Checkpoints
from billing.database import Sync, Watcher
from billing.ownership import owned

_MiB = 1024 * 1024
_MOST_JOURNAL_BYTES = 64 * _MiB
_PRIVATE = 0o600
_KEPT_STATEMENTS = 256


class SqliteFile:
    """See `Database`."""

    # Batches are written by the driver itself, all else through SQLAlchemy, which has names of its own for errors.
    row_errors: tuple[type[Exception], ...] = (
        IntegrityError,
        InterfaceError,
        ProgrammingError,
        sqlite3.IntegrityError,
        sqlite3.InterfaceError,
        sqlite3.ProgrammingError,
        sqlite3.DataError,
        OverflowError,
        ValueError,
        TypeError,
    )
    failures: tuple[type[Exception], ...] = (SQLAlchemyError, sqlite3.Error, OSError)

    def __init__(self, path: Path, *, sync: Sync, busy_timeout_s: float) -> None:
        self._path = path.absolute()
        self._sync = sync
        self._busy_timeout_s = busy_timeout_s
        self._engine = create_engine(
            "sqlite+pysqlite://",
            creator=self._open,
            poolclass=NullPool,
            hide_parameters=True,
            skip_autocommit_rollback=False,
        )
        self._held = ExitStack()
        self._checkpoints = Checkpoints(self._open)
        self._written: tuple[Connection, sqlite3.Connection] | None = None
        """The connection written to last, and what it is for the driver."""

    @property
    def name(self) -> str:
        """The path."""
        return str(self._path)

    def hold(self) -> None:
        """Lock the file against other gateways, and make it where it is missing."""
        self._held.enter_context(owned(self._path))
        os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _PRIVATE))
        self._held.callback(self._checkpoints.close)
        self._checkpoints.start()

    def connect(self) -> Connection:
        """A connection to the file as it is; one that went away does not come back empty."""
        return self._engine.connect()

    def own(self, connection: Connection, owner_id: str) -> None:
        """The lock of the file says it."""

    def stand_for(self, connection: Connection, owner_id: str) -> None:
        """The lock of the file does."""

    def reach(self) -> None:
        """Take the file's write lock, and let it go."""
        with self._engine.connect() as connection:
            self.begin_alone(connection)

    def is_away(self, error: Exception) -> bool:
        """A file that cannot be opened at the start is a mistake."""
        return False

    def begin_alone(self, connection: Connection) -> None:
        """As the only writer."""
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    def write(self, connection: Connection, rows: Rows) -> None:
        """A statement or two for each table. Then the log is moved into the file, where it is long."""
        driver = self._driver_of(connection)
        statements = [*sqlite_statements(rows, connection.dialect)]
        if statements:
            _run(driver, statements)
            self._checkpoints.wrote(sum(map(len, rows.values())), driver)

    def dead_at_start(self, unended: Sequence[str]) -> Sequence[str]:
        """All: we have the lock."""
        return unended

    def watch(self, watcher: Watcher) -> None:
        """There are no others."""

    def tend(self, connection: Connection, owner_id: str) -> None:
        """There is nothing to do."""

    def is_lost(self, connection: Connection) -> bool:
        """Never: there is none between us and the file."""
        return False

    def let_go(self) -> None:
        """Close what `hold` opened."""
        self._held.close()

    def _driver_of(self, connection: Connection) -> sqlite3.Connection:
        if self._written is None or self._written[0] is not connection:
            driver = connection.connection.driver_connection
            assert isinstance(driver, sqlite3.Connection)
            self._written = connection, driver
        return self._written[1]

    def _open(self) -> sqlite3.Connection:
        # mode=rw: a file that went away must not come back empty under a running gateway.
        connection = sqlite3.connect(
            f"{self._path.as_uri()}?mode=rw",
            uri=True,
            timeout=self._busy_timeout_s,
            cached_statements=_KEPT_STATEMENTS,
        )
        try:
            (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
            if mode != "wal":
                raise sqlite3.OperationalError("this file system cannot keep a write-ahead log; use a local disk")
            connection.execute(f"PRAGMA synchronous = {'FULL' if self._sync == 'disk' else 'NORMAL'}")
            connection.execute(f"PRAGMA journal_size_limit = {_MOST_JOURNAL_BYTES}")
            connection.execute("PRAGMA wal_autocheckpoint = 0")
        except sqlite3.Error:
            connection.close()
            raise
        return connection


def _run(driver: sqlite3.Connection, statements: Iterable[Statement]) -> None:
    """As one transaction."""
    execute = driver.execute
    execute("BEGIN IMMEDIATE")
    try:
        for text, values in statements:
            execute(text, values)
        execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):
            execute("ROLLBACK")
        raise
