"""Sessions at PostgreSQL that do not wait for ever for a server that has fallen silent.

    server stopped, or cut off    its machine acknowledges every packet, or none; no statement ends, and no error comes
    after `silent_s`              the session is closed here, and its statement fails like that of a session that broke

The server's own time-outs do not help there, nor do keep-alives of TCP where only the process has stopped. What a
closed session had sent may still be done when the server goes on: who writes it again must know it by its id.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from psycopg import Connection as DriverConnection
from psycopg import OperationalError
from psycopg.abc import PQGen
from sqlalchemy import Connection, Engine, event

R = TypeVar("R")

_LOOK_S = 0.1


class PatientConnection(DriverConnection[tuple[object, ...]]):
    """A session whose statements may be without a word for `silent_s` at most; None: for ever."""

    silent_s: float | None = None

    def wait(self, gen: PQGen[R], interval: float = _LOOK_S, timeout: float | None = None) -> R:
        """Wait for the server. Raises `OperationalError` where it stayed silent; the session is closed then."""
        try:
            return super().wait(gen, interval, self.silent_s if timeout is None else timeout)
        except OperationalError as error:
            if timeout is None and type(error).__name__ == "_WaitTimeout":
                self.pgconn.finish()
                raise OperationalError(f"the server said nothing for {self.silent_s:g} s") from None
            raise


def make_patient(engine: Engine, silent_s: float) -> None:
    """Sessions of `engine` have so much patience from now on."""

    def connect(_dialect: object, _record: object, arguments: tuple[str, ...], settings: dict[str, Any]) -> object:
        connection = PatientConnection.connect(*arguments, **settings)
        connection.silent_s = silent_s
        return connection

    event.listen(engine, "do_connect", connect)


@contextmanager
def unhurried(connection: Connection) -> Iterator[None]:
    """For statements that may take as long as they take."""
    silent_s = allow(connection, None)
    try:
        yield
    finally:
        allow(connection, silent_s)


def allow(connection: Connection, silent_s: float | None) -> float | None:
    """Give a session so much patience from now on; returns what it had. Nothing where it has ended."""
    driver = None if connection.closed or connection.invalidated else connection.connection.driver_connection
    if not isinstance(driver, PatientConnection):
        return None
    before, driver.silent_s = driver.silent_s, silent_s
    return before
