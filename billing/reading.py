"""A ledger to be read, wherever it is: a SQLite file, or a PostgreSQL database by its URL.

What is read is a snapshot: a gateway may write meanwhile.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Connection, create_engine
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import NullPool

from billing.errors import LedgerUnavailable


@contextmanager
def reading(where: Path | str) -> Iterator[Connection]:
    """A connection that only reads; a statement sees the ledger as it was when the statement began.

    Raises `LedgerUnavailable`, also for what fails inside.
    """
    path = Path(where).absolute()
    if not path.exists():
        raise LedgerUnavailable(f"there is no ledger at {path}")
    engine = create_engine(f"sqlite+pysqlite:///{path.as_uri()}?mode=ro&uri=true", poolclass=NullPool)
    try:
        with engine.connect() as connection:
            yield connection
    except SQLAlchemyError as error:
        raise LedgerUnavailable(f"{path} cannot be read: {getattr(error, 'orig', None) or error}") from error
