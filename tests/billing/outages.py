"""A ledger that goes away and comes back, and what a test of it waits for."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from billing import Ledger, LedgerOptions, reading
from billing.rollup_sql import differences
from tests.until import until


def with_spool(folder: Path, most_bytes: int = 1 << 30) -> LedgerOptions:
    return LedgerOptions(busy_timeout_s=0.05, takeover_s=3600, spool=folder, spool_most_bytes=most_bytes)


@contextmanager
def away(postgres_url: str) -> Iterator[None]:
    """The server refuses whoever comes, and has ended all sessions of this database."""
    name = postgres_url.partition("@/")[2].partition("?")[0]
    with psycopg.connect(postgres_url.replace(name, "postgres"), autocommit=True) as server:
        server.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false".encode())
        server.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'".encode())
        try:
            yield
        finally:
            server.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true".encode())


async def until_empty(ledger: Ledger) -> None:
    await until(lambda: not (ledger.spool is None or ledger.spool.is_away or ledger.spool.size_bytes))


async def until_healthy(ledger: Ledger) -> None:
    await until(lambda: ledger.healthy)


def sums_equal_rows(where: str | Path) -> bool:
    with reading(where) as connection:
        return list(differences(connection)) == []
