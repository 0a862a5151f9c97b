"""Rows of a ledger file that an older gateway wrote and that nothing upgrades: a month that was archived.

Its bytes are sworn to by a SHA-256, so it stays as it is; a column that it has not yet is read as unknown.
"""

from typing import Any

from sqlalchemy import Column, ColumnElement, Connection, Table, cast, inspect, null


def columns_in(connection: Connection, table: Table) -> list[ColumnElement[Any]]:
    """The columns of a table in their order, NULL for each that this ledger does not have. O(columns)."""
    there = _names(connection, table)
    return [column if column.name in there else null().label(column.name) for column in table.columns]


def column_in(connection: Connection, column: Column[Any]) -> ColumnElement[Any]:
    """One column, for expressions: a NULL of its type where this ledger does not have it. O(columns)."""
    return column if column.name in _names(connection, column.table) else cast(null(), column.type)


def _names(connection: Connection, table: Table) -> set[str]:
    return {column["name"] for column in inspect(connection).get_columns(table.name)}
