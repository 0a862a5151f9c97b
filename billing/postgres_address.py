"""Where a ledger in PostgreSQL is: its URL, read and shown. No driver is loaded for that, which takes 10 MB."""

from typing import Final

from sqlalchemy import URL, make_url
from sqlalchemy.exc import SQLAlchemyError

from billing.errors import LedgerUnavailable

KEEPALIVE: Final = {"keepalives_idle": "10", "keepalives_interval": "5", "keepalives_count": "3"}
"""Of TCP, in libpq's words: a machine that is cut off is noticed within half a minute."""


def postgres_url(url: str | URL) -> URL:
    """The URL with our driver. Raises `LedgerUnavailable` for one of another database; never repeats it."""
    try:
        read = make_url(url)
    except SQLAlchemyError:
        raise LedgerUnavailable(
            "its URL cannot be read; one of PostgreSQL is postgresql://user@host/database"
        ) from None
    if read.get_backend_name() not in ("postgresql", "postgres"):
        raise LedgerUnavailable(f"there is no ledger in {read.get_backend_name()}: use postgresql:// or a path")
    return read.set(drivername="postgresql+psycopg")


def shown(url: URL) -> str:
    """The URL as people may see it: without password, and without what follows the name of the database."""
    return url.set(drivername="postgresql", query={}).render_as_string(hide_password=True)
