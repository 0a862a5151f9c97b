"""Rows that nobody changes: triggers refuse every change of a table that only grows, on either database.

In PostgreSQL an owner of the tables could switch a trigger off, as in SQLite whoever has the file could drop it. They
guard against mistakes, not against the operator: for that, keep what `prefixgate ledger archive` writes elsewhere.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from sqlalchemy import Connection

_WHY = "rows of the ledger are immutable"
_CHANGES = ("UPDATE", "DELETE")
_ARCHIVING = "prefixgate.archiving"

_FUNCTION = f"""
CREATE OR REPLACE FUNCTION prefixgate_immutable() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' AND current_setting('{_ARCHIVING}', true) = 'on' THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION '{_WHY}' USING ERRCODE = 'restrict_violation';
END $$
"""


def make_immutable(connection: Connection, table: str) -> None:
    """Let rows of a table be added and read, and no more."""
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(_FUNCTION)
        run = "EXECUTE FUNCTION prefixgate_immutable()"
        for change in _CHANGES:
            connection.exec_driver_sql(
                f"CREATE TRIGGER {_name(table, change)} BEFORE {change} ON {table} FOR EACH ROW {run}"
            )
        connection.exec_driver_sql(
            f"CREATE TRIGGER {_name(table, 'TRUNCATE')} BEFORE TRUNCATE ON {table} FOR EACH STATEMENT {run}"
        )
        return
    for change in _CHANGES:
        connection.exec_driver_sql(
            f"CREATE TRIGGER {_name(table, change)} BEFORE {change} ON {table} BEGIN SELECT RAISE(ABORT, '{_WHY}'); END"
        )


def make_mutable(connection: Connection, table: str) -> None:
    """The opposite, for the length of an upgrade."""
    on_postgres = connection.dialect.name == "postgresql"
    for change in (*_CHANGES, "TRUNCATE") if on_postgres else _CHANGES:
        of_table = f" ON {table}" if on_postgres else ""
        connection.exec_driver_sql(f"DROP TRIGGER {_name(table, change)}{of_table}")


@contextmanager
def deletable(connection: Connection, tables: Sequence[str]) -> Iterator[None]:
    """Inside, rows of these tables may be deleted by this transaction alone; for what has been archived."""
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"SET LOCAL {_ARCHIVING} = 'on'")
        yield
        connection.exec_driver_sql(f"SET LOCAL {_ARCHIVING} = 'off'")
        return
    for table in tables:
        make_mutable(connection, table)
    yield
    for table in tables:
        make_immutable(connection, table)


def _name(table: str, change: str) -> str:
    return f"{table}_no_{change.lower()}"
