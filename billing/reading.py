"""A ledger to be read, wherever it is: a SQLite file, or a PostgreSQL database by its URL.

What is read is a snapshot: a gateway may write meanwhile.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from sqlalchemy import URL, Connection, Engine, create_engine
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import NullPool

from billing.database import words
from billing.errors import LedgerUnavailable
from billing.postgres_address import KEEPALIVE, postgres_url, shown

CONNECT_S: Final = 10
"""A server that does not answer for so long when it is called is away. Statements may take as long as they take."""

_MISSING = re.compile(r"no such (table|column)|(relation|column) .+ does not exist")


@contextmanager
def reading(where: Path | str) -> Iterator[Connection]:
    """A connection that only reads; a statement sees the ledger as it was when the statement began.

    Raises `LedgerUnavailable`, also for what fails inside.
    """
    name, engine = _engine(where)
    try:
        with connected(engine) as connection:
            yield connection
    except SQLAlchemyError as error:
        raise LedgerUnavailable(f"{name} cannot be read: {words(error)}{upgrade_hint(error)}") from error


def postgres_reader(url: URL, **settings: str) -> Engine:
    """Sessions at PostgreSQL with these settings of libpq, which do not wait for ever to be let in."""
    from billing.patience import make_patient  # noqa: PLC0415 - the driver takes 10 MB

    arguments = {**KEEPALIVE, "connect_timeout": str(CONNECT_S), **settings}
    engine = create_engine(url, poolclass=NullPool, hide_parameters=True, connect_args=arguments)
    make_patient(engine, CONNECT_S)
    return engine


@contextmanager
def connected(engine: Engine) -> Iterator[Connection]:
    """A connection, whose statements may take as long as they take."""
    with engine.connect() as connection:
        be_patient(connection, None)
        yield connection


def be_patient(connection: Connection, silent_s: float | None) -> None:
    """A server may say nothing for so long from now on; None is for ever. Nothing in SQLite."""
    if connection.dialect.name != "sqlite":
        from billing.patience import allow  # noqa: PLC0415 - as above

        allow(connection, silent_s)


def upgrade_hint(error: Exception) -> str:
    """What would help where a table or a column is missing; empty elsewhere."""
    is_missing = _MISSING.search(words(error)) is not None
    return "; a ledger of an older gateway is upgraded when this one is started on it" if is_missing else ""


def is_read_only(path: Path) -> bool:
    """Whether a file is where nothing can be written, as on a medium, and nobody is writing it: SQLite would want to
    make files beside it, unless told that it does not change."""
    return not os.access(path.parent, os.W_OK) and not path.with_name(f"{path.name}-wal").exists()


def _engine(where: Path | str) -> tuple[str, Engine]:
    if "://" in str(where):
        url = postgres_url(str(where))
        only_read = "-c default_transaction_read_only=on"
        return shown(url), postgres_reader(url, options=only_read, application_name="prefixgate report")
    path = Path(where).absolute()
    if not path.exists():
        raise LedgerUnavailable(f"there is no ledger at {path}")
    how = "mode=ro&immutable=1" if is_read_only(path) else "mode=ro"
    return str(path), create_engine(f"sqlite+pysqlite:///{path.as_uri()}?{how}&uri=true", poolclass=NullPool)
