"""The database of a path or a URL."""

from pathlib import Path

from billing.database import Database, Sync
from billing.sqlite_file import SqliteFile


def database_at(where: Path | str, *, sync: Sync = "normal", patience_s: float, takeover_s: float = 30.0) -> Database:
    """A file for a path, a server for a URL. Nothing is opened. Raises `LedgerUnavailable` for another kind of URL."""
    if "://" in str(where):
        from billing.postgres import Postgres  # noqa: PLC0415 - its driver takes 10 MB, which only this needs

        return Postgres(str(where), sync=sync, patience_s=patience_s, takeover_s=takeover_s)
    return SqliteFile(Path(where), sync=sync, busy_timeout_s=patience_s)
