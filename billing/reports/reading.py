"""One view of the ledger for all questions of a report, and an end to those that take too long."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from hashlib import file_digest
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, inspect, make_url, select
from sqlalchemy.exc import DBAPIError

from billing.errors import PeriodInvalid, ReportTooSlow
from billing.reading import be_patient, reading
from billing.schema import archives

_MS = 1000
_STEPS_BETWEEN_LOOKS = 1_000_000
"""Of SQLite's machine: some tens of milliseconds. A look takes the interpreter from whoever has it."""
_GRACE_S = 2.0
"""PostgreSQL ends a statement itself; so much later we do not wait for its word any more."""


@contextmanager
def one_view(
    where: Path | str, deadline_s: float | None = None, clock: Callable[[], float] = time.monotonic
) -> Iterator[Connection]:
    """A connection whose statements all see the ledger as the first of them did; a gateway may write meanwhile.

    Raises `LedgerUnavailable`, and `ReportTooSlow` where a statement is still running after `deadline_s`.
    """
    with reading(where) as connection, ended_within(connection, deadline_s, clock):
        begin_view(connection, deadline_s)
        yield connection


def begin_view(connection: Connection, deadline_s: float | None) -> None:
    """Begin a transaction that sees the ledger as its first statement does; each one may take so long."""
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql("BEGIN")
        return
    connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    if deadline_s is not None:
        connection.exec_driver_sql(f"SET LOCAL statement_timeout = {max(1, round(deadline_s * _MS))}")


@contextmanager
def ended_within(
    connection: Connection, deadline_s: float | None, clock: Callable[[], float] = time.monotonic
) -> Iterator[None]:
    """Statements inside end by then, also those at a server that has fallen silent. None: nothing is ended.

    Raises `ReportTooSlow` for what was still running.
    """
    if deadline_s is None:
        yield
        return
    ends_s = clock() + deadline_s
    if connection.dialect.name == "sqlite":
        driver: Any = connection.connection.driver_connection
        driver.set_progress_handler(lambda: clock() >= ends_s, _STEPS_BETWEEN_LOOKS)
    else:
        be_patient(connection, deadline_s + _GRACE_S)
    try:
        yield
    except DBAPIError as error:
        if clock() >= ends_s:
            raise ReportTooSlow(deadline_s) from error
        raise


def need_rows(connection: Connection, start_us: int, end_us: int, others: Iterable[Path | str] = ()) -> None:
    """Raises `PeriodInvalid` where rows of a period were moved out of the ledger: without them it would look empty.

    `others` are the ledgers that are read together with it: the months whose files are among them are there.
    """
    if not inspect(connection).has_table(archives.name):
        return  # of an older gateway
    c = archives.c
    chosen = select(c.month, c.file, c.sha256).where(c.start_us < end_us, c.end_us > start_us).order_by(c.month)
    months = [month for month, file, sha256 in connection.execute(chosen).all() if not _is_among(others, file, sha256)]
    if months:
        raise PeriodInvalid(", ".join(months), "its rows were archived: only that month's file has them")


def _is_among(places: Iterable[Path | str], name: str, sha256: str) -> bool:
    for place in map(Path, places):
        if place.name == name and place.is_file():
            with place.open("rb") as content:
                if file_digest(content, "sha256").hexdigest() == sha256:
                    return True
    return False


def place_of(where: Path | str) -> str:
    """Where a ledger is, as people may read it: a whole path, or a URL without its password."""
    text = str(where)
    return make_url(text).render_as_string(hide_password=True) if "://" in text else str(Path(text).absolute())
