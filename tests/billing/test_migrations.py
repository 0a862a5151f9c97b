"""All revisions together make what `schema` draws, on both databases."""

from collections.abc import Iterator

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, create_engine, text
from sqlalchemy.pool import NullPool

from billing import LedgerUnavailable, open_ledger
from billing.maintenance import migrate
from billing.migrations import bring_up, mark, revision_of, run
from billing.postgres_address import postgres_url as with_driver
from billing.schema import REVISION, metadata
from tests.billing.conftest import Where
from tests.billing.samples import book, opened

TRIGGERS = {
    "sqlite": "SELECT name FROM sqlite_master WHERE type = 'trigger' ORDER BY 1",
    "postgresql": "SELECT tgname FROM pg_trigger WHERE NOT tgisinternal ORDER BY 1",
}


@pytest.fixture
def connection(where: Where) -> Iterator[Connection]:
    url = with_driver(where) if isinstance(where, str) else f"sqlite:///{where}"
    with create_engine(url, poolclass=NullPool).connect() as opened_connection:
        yield opened_connection


def triggers(connection: Connection) -> list[str]:
    return list(connection.execute(text(TRIGGERS[connection.dialect.name])).scalars())


def test_revisions_make_what_the_schema_draws(connection: Connection) -> None:
    run(connection)
    assert revision_of(connection) == REVISION
    assert compare_metadata(MigrationContext.configure(connection), metadata) == []
    by_revisions = triggers(connection)
    connection.rollback()
    bring_up(connection)
    assert triggers(connection) == by_revisions
    assert by_revisions


async def test_opening_a_ledger_again_changes_nothing(where: Where) -> None:
    for name in ("1", "2"):
        async with open_ledger(where, book()) as ledger:
            await ledger.open(opened(name))


async def test_tables_are_made_and_upgraded_before_a_gateway_starts(where: Where, connection: Connection) -> None:
    assert migrate(where) is None
    assert migrate(where) == REVISION
    async with open_ledger(where, book()) as ledger:
        await ledger.open(opened("1"))
        assert migrate(where) == REVISION  # also beside a gateway
    mark(connection, "9999")
    connection.commit()
    with pytest.raises(LedgerUnavailable, match="9999"):
        migrate(where)
