"""A ledger to be read, wherever it is: a SQLite file, or a PostgreSQL database by its URL.

What is read is a snapshot: a gateway may write meanwhile.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Connection, Engine, create_engine
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import NullPool

from billing.database import words
from billing.errors import LedgerUnavailable
from billing.postgres_address import postgres_url, shown

_MISSING = re.compile(r"no such (table|column)|(relation|column) .+ does not exist")


@contextmanager
def reading(where: Path | str) -> Iterator[Connection]:
    """A connection that only reads; a statement sees the ledger as it was when the statement began.

    Raises `LedgerUnavailable`, also for what fails inside.
    """
    name, engine = _engine(where)
    try:
        with engine.connect() as connection:
            yield connection
    except SQLAlchemyError as error:
        raise LedgerUnavailable(f"{name} cannot be read: {words(error)}{upgrade_hint(error)}") from error


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
        only_read = {"options": "-c default_transaction_read_only=on", "application_name": "prefixgate report"}
        return shown(url), create_engine(url, poolclass=NullPool, hide_parameters=True, connect_args=only_read)
    path = Path(where).absolute()
    if not path.exists():
        raise LedgerUnavailable(f"there is no ledger at {path}")
    how = "mode=ro&immutable=1" if is_read_only(path) else "mode=ro"
    return str(path), create_engine(f"sqlite+pysqlite:///{path.as_uri()}?{how}&uri=true", poolclass=NullPool)
