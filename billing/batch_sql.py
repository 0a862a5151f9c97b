"""A batch's rows, whatever tables they are of, as statements: few, and in one transaction.

    SQLite       BEGIN IMMEDIATE | INSERT INTO requests VALUES (...), (...) | INSERT INTO settlements ... | COMMIT
    PostgreSQL   WITH t0 AS (INSERT INTO requests ...), t2 AS (INSERT INTO settlements ...) INSERT INTO attempts ...
                 one statement, which is a transaction by itself: one round trip

SQLAlchemy gives the text of a statement once; the driver runs it, with values in the order of its places.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Final

from sqlalchemy import Table
from sqlalchemy.engine import Dialect

from billing.bulk import Row, Statement, arrays, from_arrays, insertions
from billing.rollup_sql import adding_clause
from billing.schema import attempts, chains, corrections, engine_samples, requests, settlements, usage_quarters

TABLES: Final = (requests, chains, settlements, attempts, corrections, engine_samples, usage_quarters)
"""Those that a batch writes into."""

Rows = Mapping[Table, Sequence[Row]]
"""Rows to be inserted; those of `usage_quarters` are added to those that are there."""


def sqlite_statements(rows: Rows, dialect: Dialect) -> Iterator[Statement]:
    """What inserts the rows; nothing where there are none."""
    for table in TABLES:
        of_table = rows.get(table)
        if of_table:
            yield from insertions(table, of_table, dialect, _conflict(table, dialect))


def postgres_statement(rows: Rows, dialect: Dialect) -> tuple[str, list[str]]:
    """The one statement, and its values; of the rows there must be some."""
    tables = tuple(table for table in TABLES if rows.get(table))
    return _with(tables, dialect), [array for table in tables for array in arrays(table, rows[table])]


@cache
def _with(tables: tuple[Table, ...], dialect: Dialect) -> str:
    inserts = [from_arrays(table) + _conflict(table, dialect) for table in tables]
    before = ", ".join(f"t{number} AS ({insert})" for number, insert in enumerate(inserts[:-1]))
    return f"WITH {before} {inserts[-1]}" if before else inserts[-1]


def _conflict(table: Table, dialect: Dialect) -> str:
    return adding_clause(dialect) if table is usage_quarters else ""
