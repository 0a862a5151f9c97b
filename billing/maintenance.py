"""Checking the sums of a ledger, and making them anew, beside a gateway that may run."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection, func, select

from billing.database import words
from billing.databases import database_at
from billing.errors import LedgerUnavailable
from billing.migrations import bring_up, revision_of
from billing.reading import reading
from billing.rollup_sql import Difference, Span, differences, rebuild
from billing.schema import REVISION, archives, attempts, corrections, requests, settlements, usage_quarters

_PATIENCE_S = 30.0


@dataclass(frozen=True, slots=True)
class Contents:
    """What a ledger holds: rows by table, its first and last opening in microseconds, the months that are archived."""

    rows: dict[str, int]
    first_us: int | None
    last_us: int | None
    archived: tuple[str, ...]


def contents(where: Path | str) -> Contents:
    """Count. O(rows). Raises `LedgerUnavailable`."""
    with reading(where) as connection:
        tables = (requests, settlements, attempts, corrections, usage_quarters)
        rows = {
            table.name: connection.execute(select(func.count()).select_from(table)).scalar_one() for table in tables
        }
        ends = select(func.min(requests.c.opened_at_us), func.max(requests.c.opened_at_us))
        first_us, last_us = connection.execute(ends).one()
        months = connection.execute(select(archives.c.month).order_by(archives.c.month)).scalars()
        return Contents(rows, first_us, last_us, tuple(months))


def check(where: Path | str) -> list[Difference]:
    """Sums that are not those of the rows, of the months that are not archived. O(rows). Raises `LedgerUnavailable`."""
    with reading(where) as connection:
        is_sqlite = connection.dialect.name == "sqlite"
        connection.exec_driver_sql("BEGIN" if is_sqlite else "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        return list(differences(connection, archived_spans(connection)))


def rebuild_sums(where: Path | str) -> int:
    """Make the sums from the rows, those of archived months apart. Returns how many there are.

    Nothing can be settled meanwhile. O(rows). Raises `LedgerUnavailable`.
    """
    with writing(where) as connection:
        if connection.dialect.name == "postgresql":
            connection.exec_driver_sql("LOCK TABLE usage_quarters IN EXCLUSIVE MODE")
        return rebuild(connection, archived_spans(connection))


def migrate(where: Path | str) -> str | None:
    """Make the tables those of this version, as a gateway does that opens the ledger. Returns which they were, or None.

    O(1) where they are already; else O(rows) at the worst, and nobody settles meanwhile. Raises `LedgerUnavailable`.
    """
    with changing(where) as (_, connection):
        before = revision_of(connection)
        bring_up(connection)
        return before


def archived_spans(connection: Connection) -> list[Span]:
    """The months whose rows are elsewhere."""
    found = connection.execute(select(archives.c.start_us, archives.c.end_us))
    return [(start_us, end_us) for start_us, end_us in found]


@contextmanager
def writing(where: Path | str) -> Iterator[Connection]:
    """One transaction in a ledger that a gateway may have open; it is of this revision. Raises `LedgerUnavailable`."""
    with changing(where) as (name, connection):
        if revision_of(connection) != REVISION:
            raise LedgerUnavailable(f"{name} is no ledger of this version; `prefixgate ledger migrate` makes it one")
        yield connection


@contextmanager
def changing(where: Path | str) -> Iterator[tuple[str, Connection]]:
    """One transaction in a ledger of any revision, with the ledger's name. Raises `LedgerUnavailable`."""
    database = database_at(where, patience_s=_PATIENCE_S)
    try:
        connection = database.connect()
    except database.failures as error:
        raise LedgerUnavailable(f"{database.name}: {words(error)}") from error
    try:
        database.begin_alone(connection)
        yield database.name, connection
        connection.commit()
    except database.failures as error:
        raise LedgerUnavailable(f"{database.name}: {words(error)}") from error
    finally:
        connection.close()
