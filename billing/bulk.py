"""Rows into a table, as many at once as there are, in the way that each database takes them fastest.

SQLite: statements of 64, 32, ... 1 rows, because after each the thread must win the interpreter lock back from a busy
event loop: fewer statements, fewer waits. PostgreSQL: one statement whatever their number, with one array a column,
written as PostgreSQL reads it; the driver, which looks at each value of each row, took four times as long with values
of their own.
"""

from collections.abc import Callable, Sequence
from functools import cache
from itertools import chain

from sqlalchemy import BigInteger, Boolean, Connection, Float, Integer, LargeBinary, Table, insert
from sqlalchemy.engine import Dialect

Row = Sequence[object]
"""Values in the order of the columns of a table."""

LARGEST_GROUP = 64


def insert_rows(connection: Connection, table: Table, rows: Sequence[Row], conflict: str = "") -> None:
    """Insert rows. `conflict` is the clause that says what becomes of one that is there; it takes no parameters."""
    if not rows:
        return
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(_arrays_sql(table) + conflict, _arrays(table, rows))
        return
    size = LARGEST_GROUP
    done = 0
    while done < len(rows):
        while size > len(rows) - done:
            size //= 2
        values = tuple(chain.from_iterable(rows[done : done + size]))
        connection.exec_driver_sql(_values_sql(table, size, connection.dialect) + conflict, values)
        done += size


@cache
def _values_sql(table: Table, rows: int, dialect: Dialect) -> str:
    row = dict.fromkeys(table.columns.keys())
    return str(insert(table).values([row] * rows).compile(dialect=dialect))


@cache
def _arrays_sql(table: Table) -> str:
    # text, not varchar(64): to that a cast would cut silently, where the insertion refuses what is too long.
    arrays = ", ".join(f"%s::{_kind(column.type)[0]}[]" for column in table.columns)
    names = ", ".join(column.name for column in table.columns)
    return f"INSERT INTO {table.name} ({names}) SELECT * FROM unnest({arrays})"  # noqa: S608 - names of ours


@cache
def _writers(table: Table) -> tuple[Callable[[object], str], ...]:
    return tuple(_kind(column.type)[1] for column in table.columns)


def _arrays(table: Table, rows: Sequence[Row]) -> tuple[str, ...]:
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
