"""Rows into a table, as many at once as there are, in the way that each database takes them fastest.

SQLite: statements of many rows, because after each the thread must win the interpreter lock back from a busy event
loop: fewer statements, fewer waits. Tried: one statement for all tables, over a view whose triggers deal the rows out;
it took more of the processor than the waits that it saved. PostgreSQL: one statement whatever their number, with one
array a column, written as PostgreSQL reads it; the driver, which looks at each value of each row, took four times as
long with values of their own.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cache

from sqlalchemy import BigInteger, Boolean, Connection, Float, Integer, LargeBinary, Table, insert
from sqlalchemy.engine import Dialect

Row = Sequence[object]
"""Values in the order of the columns of a table."""

Statement = tuple[str, list[object]]
"""Its text, and a value for each of its places."""

LARGEST_GROUP = 64
_SMALL_GROUP = 16


def insert_rows(connection: Connection, table: Table, rows: Sequence[Row], conflict: str = "") -> None:
    """Insert rows. `conflict` is the clause that says what becomes of one that is there; it takes no parameters."""
    if not rows:
        return
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(from_arrays(table) + conflict, arrays(table, rows))
        return
    for text, values in insertions(table, rows, connection.dialect, conflict):
        connection.exec_driver_sql(text, tuple(values))


def insertions(table: Table, rows: Sequence[Row], dialect: Dialect, conflict: str) -> Iterator[Statement]:
    """The statements for SQLite. A driver prepares each length once, so there are few of the long ones."""
    done = 0
    while done < len(rows):
        left = len(rows) - done
        size = left if left <= _SMALL_GROUP else min(left - left % _SMALL_GROUP, LARGEST_GROUP)
        values: list[object] = []
        for row in rows[done : done + size]:
            values += row
        yield _values_sql(table, size, dialect, conflict), values
        done += size


@cache
def _values_sql(table: Table, rows: int, dialect: Dialect, conflict: str) -> str:
    one = _row_sql(table, dialect)
    row = one.partition(" VALUES ")[2]
    return one + f", {row}" * (rows - 1) + conflict


@cache
def _row_sql(table: Table, dialect: Dialect) -> str:
    """One row as SQLAlchemy has it; more of them take it milliseconds."""
    return str(insert(table).values(dict.fromkeys(table.columns.keys())).compile(dialect=dialect))


@cache
def from_arrays(table: Table) -> str:
    """The insertion of rows that come as one array a column."""
    # text, not varchar(64): to that a cast would cut silently, where the insertion refuses what is too long.
    columns = ", ".join(f"%s::{_kind(column.type)[0]}[]" for column in table.columns)
    names = ", ".join(column.name for column in table.columns)
    return f"INSERT INTO {table.name} ({names}) SELECT * FROM unnest({columns})"  # noqa: S608 - names of ours


@cache
def _writers(table: Table) -> tuple[Callable[[object], str], ...]:
    return tuple(_kind(column.type)[1] for column in table.columns)


def arrays(table: Table, rows: Sequence[Row]) -> tuple[str, ...]:
    """The rows as those arrays, in PostgreSQL's own writing."""
    columns = zip(*rows, strict=True)
    return tuple(
        "{" + ",".join(["NULL" if value is None else write(value) for value in values]) + "}"
        for write, values in zip(_writers(table), columns, strict=True)
    )


def _kind(type_: object) -> tuple[str, Callable[[object], str]]:
    """PostgreSQL's type of a column's array, and how an element is written in it."""
    match type_:
        case BigInteger() | Integer():
            return "bigint", _number
        case Float():
            return "float8", repr
        case Boolean():
            return "boolean", _boolean
        case LargeBinary():
            return "bytea", _bytes
        case _:
            return "text", _text


def _number(value: object) -> str:
    return str(int(value))  # type: ignore[call-overload]  # a number, or it is refused


def _boolean(value: object) -> str:
    return "t" if value else "f"


def _bytes(value: object) -> str:
    assert isinstance(value, bytes)
    return f'"\\\\x{value.hex()}"'


def _text(value: object) -> str:
    return '"' + str(value).replace("\\", "\\\\").replace('"', '\\"') + '"'
