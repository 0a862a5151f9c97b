"""Who of the gateways on one PostgreSQL has died, and the end of what it left open.

    owner a1   session --- advisory lock a1            alive
    owner b2   (gone)      lock free for `takeover_s`  dead: another closes what it left open, as interrupted

A session holds the lock of its owner and the lock dies with it, however it dies. It is lost too where the gateway lives
and its network failed, so an owner counts as dead only once its lock was seen free for `takeover_s` without a break,
through one session of ours. Who comes back before that has its lock again. A server that was away frees all locks at
once, and nobody is judged by that, as our own session is new then and the time begins anew.
"""

import threading
import time
from collections.abc import Callable
from hashlib import blake2b

from psycopg import Error as DriverError
from sqlalchemy import Connection, Engine, select
from sqlalchemy.exc import SQLAlchemyError

from billing.database import Watcher
from billing.patience import unhurried
from billing.recovery import close_open
from billing.schema import owners

_LOOKS = 10
"""Looks in a time after which an owner counts as dead."""
_LONGEST_S = 5.0

_HELD = """
SELECT (classid::bigint << 32) | objid::bigint FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1
AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""


class Takeover:
    """Looks after the other owners of a ledger. `look` may be called without the thread."""

    def __init__(
        self, engine: Engine, watcher: Watcher, takeover_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._engine = engine
        self._watcher = watcher
        self._takeover_s = takeover_s
        self._clock = clock
        self._connection: Connection | None = None
        self._free_since: dict[str, float] = {}
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ledger-takeover")

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def look(self) -> None:
        """See who lives; close what the dead left open. O(requests since a dead owner began), else O(owners)."""
        try:
            if self._connection is None:
                self._free_since.clear()
                self._connection = self._engine.connect()
            for owner_id in self._dead(self._connection):
                self._close(self._connection, owner_id)
        except (SQLAlchemyError, DriverError):
            self._disconnect()

    def close(self) -> None:
        """End the thread and the session."""
        self._closed.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._disconnect()

    def _run(self) -> None:
        while not self._closed.wait(min(self._takeover_s / _LOOKS, _LONGEST_S)):
            self.look()

    def _dead(self, connection: Connection) -> list[str]:
        mine = self._watcher.owner_id()
        with connection.begin():
            unended = connection.execute(select(owners.c.owner_id).where(owners.c.ended_at_us.is_(None))).scalars()
            others = [owner_id for owner_id in unended if owner_id != mine]
            held = set(connection.exec_driver_sql(_HELD).scalars()) if others else set()
        now_s = self._clock()
        free = [owner_id for owner_id in others if lock_key(owner_id) not in held]
        self._free_since = {owner_id: self._free_since.get(owner_id, now_s) for owner_id in free}
        return [owner_id for owner_id in free if now_s - self._free_since[owner_id] >= self._takeover_s]

    def _close(self, connection: Connection, owner_id: str) -> None:
        """Once, whoever else looks: the lock of the dead is taken until the end of the transaction."""
        watcher = self._watcher
        with unhurried(connection), connection.begin():
            connection.exec_driver_sql("SET LOCAL statement_timeout = 0")
            taken = connection.exec_driver_sql(f"SELECT pg_try_advisory_xact_lock({lock_key(owner_id)})").scalar_one()
            still = select(owners.c.owner_id).where(owners.c.owner_id == owner_id, owners.c.ended_at_us.is_(None))
            if not taken or connection.execute(still).first() is None:
                return
            closed = close_open(connection, [owner_id], watcher.owner_id(), watcher.currency, watcher.now_us())
        watcher.closed(closed)

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.invalidate()
            connection.close()


def lock_owner(connection: Connection, owner_id: str) -> bool:
    """Take the lock of an owner for as long as the session lives; False where another session has it."""
    locked = bool(connection.exec_driver_sql(f"SELECT pg_try_advisory_lock({lock_key(owner_id)})").scalar_one())
    connection.commit()
    return locked


def lock_key(owner_id: str) -> int:
    """The number by which PostgreSQL knows the lock of an owner."""
    return int.from_bytes(blake2b(owner_id.encode(), digest_size=8).digest(), "big", signed=True)
