"""Tables of an older ledger, made those of this one: Alembic's revisions, run in the transaction that opens the ledger.

    nothing there     the tables are made as `schema` draws them, and marked with its revision
    an older revision the revisions after it, and the sums from the rows where there were none
    a newer one       refused: an older gateway must not write into a newer ledger

A test holds the outcome of all revisions against the drawing, on both databases.
"""

from pathlib import Path

from sqlalchemy import Column, Connection, MetaData, String, Table, delete, insert, inspect, select

from billing.errors import LedgerUnavailable
from billing.rollup_sql import rebuild
from billing.schema import REVISION, metadata, requests

_version = Table("alembic_version", MetaData(), Column("version_num", String(32), primary_key=True))
__all__ = ["bring_up", "mark", "revision_of", "run"]

_OLDEST = "0001"
_FIRST_WITH_SUMS = "0002"


def bring_up(connection: Connection) -> None:
    """Make what is missing, upgrade what is older. Raises `LedgerUnavailable` for a ledger of a newer gateway.

    O(1) where nothing is to do, O(rows) for an upgrade of a ledger without sums. In the transaction of the caller, who
    keeps others out.
    """
    revision = revision_of(connection)
    if revision is None:
        metadata.create_all(connection)
        mark(connection)
    elif revision > REVISION:
        raise LedgerUnavailable(f"its tables are of version {int(revision)}, this program writes {int(REVISION)}")
    elif revision < REVISION:
        mark(connection, revision)
        run(connection)
        mark(connection)
        if revision < _FIRST_WITH_SUMS:  # later ones keep theirs, also those of months whose rows are elsewhere
            rebuild(connection)
    else:
        metadata.create_all(connection)  # a table that is missing is no new revision
        if not inspect(connection).has_table(_version.name):
            mark(connection)


def revision_of(connection: Connection) -> str | None:
    """The revision of the ledger's tables; None where there are none."""
    if inspect(connection).has_table(_version.name):
        return connection.execute(select(_version.c.version_num)).scalar()
    if connection.dialect.name == "sqlite":  # before Alembic, and in a file that only a newer gateway understands
        version = connection.exec_driver_sql("PRAGMA user_version").scalar_one()
        if version:
            return f"{version:04d}"
    return _OLDEST if inspect(connection).has_table(requests.name) else None


def mark(connection: Connection, revision: str = REVISION) -> None:
    """Note of which revision the tables are; in SQLite also where gateways before Alembic look."""
    _version.create(connection, checkfirst=True)
    connection.execute(delete(_version))
    connection.execute(insert(_version).values(version_num=revision))
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql(f"PRAGMA user_version = {int(revision)}")


def run(connection: Connection) -> None:
    """All revisions that are missing, by Alembic."""
    from alembic import command  # noqa: PLC0415 - half a second that only an upgrade needs
    from alembic.config import Config  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
