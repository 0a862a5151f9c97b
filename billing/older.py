"""Rows of a ledger file that an older gateway wrote and that nothing upgrades: a month that was archived.

Its bytes are sworn to by a SHA-256, so it stays as it is; a column that it has not yet is read as unknown.
"""

from typing import Any

from sqlalchemy import ColumnElement, Connection, Table, inspect, null


def columns_in(connection: Connection, table: Table) -> list[ColumnElement[Any]]:
    """The columns of a table in their order, NULL for each that this ledger does not have. O(columns)."""
    there = {column["name"] for column in inspect(connection).get_columns(table.name)}
    return [column if column.name in there else null().label(column.name) for column in table.columns]
