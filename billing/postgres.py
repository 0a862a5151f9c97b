"""A ledger in PostgreSQL, for any number of gateways. Each has a session with a lock that dies with it (`takeover`).

Sessions must be our own: behind a pooler that hands them to others (pgbouncer in transaction mode) locks say nothing.
A machine that vanished keeps its session until the server notices, so keep-alives are asked for on both sides.
"""

from collections.abc import Sequence

from psycopg import Connection as DriverConnection
from psycopg import DataError as DriverDataError
from psycopg import Error as DriverError
from psycopg import IntegrityError as DriverIntegrityError
from sqlalchemy import URL, Connection, Engine, create_engine
from sqlalchemy.exc import DataError, IntegrityError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from billing.batch_sql import Rows, postgres_statement
from billing.database import Sync, Watcher, words
from billing.patience import allow, make_patient
from billing.postgres_address import KEEPALIVE, postgres_url, shown
from billing.takeover import Takeover, lock_owner

_UPGRADE_LOCK = 0x7072_6566_6978_6761  # "prefixga"
_MS = 1000
LEAST_SILENT_S = 2.0
_SILENT = 2.5
"""Times the patience with locks: a server that says nothing for so long is away. A request waits for its row that long,
and for one more try to connect, before it is spooled or refused."""
_MISTAKES = ("authentication failed", "does not exist", "pg_hba.conf", "no password supplied")


class Postgres:
    """See `Database`. `takeover_s` is how long the session of a gateway must be gone before it counts as dead."""

    # Batches are written by the driver itself, all else through SQLAlchemy, which has names of its own for errors.
    row_errors: tuple[type[Exception], ...] = (
        IntegrityError,
        DataError,
        DriverIntegrityError,
        DriverDataError,
        OverflowError,
        ValueError,
        TypeError,
    )
    failures: tuple[type[Exception], ...] = (SQLAlchemyError, DriverError, OSError)

    def __init__(
        self,
        url: str | URL,
        *,
        sync: Sync,
        patience_s: float,
        takeover_s: float,
    ) -> None:
        self._url = postgres_url(url)
        self._takeover_s = takeover_s
        self._locked = False
        self._takeover: Takeover | None = None
        self._silent_s = max(LEAST_SILENT_S, _SILENT * patience_s)
        self._engine = postgres_engine(
            self._url,
            connect_timeout=str(max(2, round(patience_s))),
            tcp_user_timeout=str(round(patience_s * _MS) + 8000),
            options=_options(sync, patience_s),
        )
        make_patient(self._engine, self._silent_s)

    @property
    def name(self) -> str:
        """The URL without its password."""
        return shown(self._url)

    def hold(self) -> None:
        """Nobody is kept out."""

    def connect(self) -> Connection:
        """A session."""
        return self._engine.connect()

    def own(self, connection: Connection, owner_id: str) -> None:
        """Take the lock of the owner; or later (`stand_for`), while an earlier session of ours still has it."""
        self._locked = lock_owner(connection, owner_id)

    def stand_for(self, connection: Connection, owner_id: str) -> None:
        """Take the lock that an earlier session of ours still had; from now on it is about single rows."""
        allow(connection, self._silent_s)
        if not self._locked:
            self._locked = lock_owner(connection, owner_id)

    def reach(self) -> None:
        """Begin a session and end it."""
        self._engine.connect().close()

    def is_away(self, error: Exception) -> bool:
        """Yes, unless the server answered and knows us or our database not."""
        return not any(word in words(error) for word in _MISTAKES)

    def begin_alone(self, connection: Connection) -> None:
        """One gateway after the other, and as long as it takes."""
        allow(connection, None)
        connection.exec_driver_sql("SET LOCAL statement_timeout = 0")
        connection.exec_driver_sql("SET LOCAL lock_timeout = 0")
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_UPGRADE_LOCK})")

    def write(self, connection: Connection, rows: Rows) -> None:
        """One statement, which is a transaction by itself: one round trip for a batch."""
        if not any(rows.values()):
            return
        driver = connection.connection.driver_connection
        assert isinstance(driver, DriverConnection)
        driver.autocommit = True
        try:
            driver.execute(*postgres_statement(rows, connection.dialect))
        finally:
            if not driver.closed:
                driver.autocommit = False

    def dead_at_start(self, unended: Sequence[str]) -> Sequence[str]:
        """None: whether they have died takes a while to know."""
        return ()

    def watch(self, watcher: Watcher) -> None:
        """Look after the others, on a thread with a session of its own."""
        if self._takeover is not None:
            return
        self._takeover = Takeover(self._engine, watcher, self._takeover_s)
        self._takeover.start()

    def tend(self, connection: Connection, owner_id: str) -> None:
        """See whether the session lives, and stands for its owner."""
        with connection.begin():
            connection.exec_driver_sql("SELECT 1")
        self.stand_for(connection, owner_id)

    def is_lost(self, connection: Connection) -> bool:
        """Whether the session has ended."""
        if connection.closed or connection.invalidated:
            return True
        driver = connection.connection.driver_connection
        return driver is None or bool(driver.closed)

    def let_go(self) -> None:
        """Look after nobody any more."""
        if self._takeover is not None:
            self._takeover.close()


def postgres_engine(url: URL, **settings: str) -> Engine:
    """Sessions with these settings of libpq, for writing: statements of ours take their parameters by place."""
    settings = {"application_name": "prefixgate", **KEEPALIVE, **settings}
    return create_engine(url, poolclass=NullPool, hide_parameters=True, paramstyle="format", connect_args=settings)


def _options(sync: Sync, patience_s: float) -> str:
    settings = {
        "tcp_keepalives_idle": 10,
        "tcp_keepalives_interval": 5,
        "tcp_keepalives_count": 3,
        "lock_timeout": round(patience_s * _MS),
        "statement_timeout": round(patience_s * _MS) + 8000,
        "idle_in_transaction_session_timeout": 60 * _MS,
        **({"synchronous_commit": "on"} if sync == "disk" else {}),
    }
    return " ".join(f"-c {name}={value}" for name, value in settings.items())
