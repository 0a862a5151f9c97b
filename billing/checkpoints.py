"""Moves what SQLite's write-ahead log holds into the file, on a thread of its own.

By default the commit that fills 1,000 pages does it, with two flushes of the disk in it, and whoever waits for that
commit waits for them: measured, 15 to 40 ms for one batch in a hundred. Here the writer only counts what it wrote, and
this thread moves the log with a connection of its own (`PASSIVE`: it waits for no writer and no reader). The log begins
anew at the first commit after all of it was moved. Where commits never pause for that, the log grows; beyond
`MOST_PAGES` the writer moves the rest, which is short, between two commits.
"""

import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing, suppress

EVERY_PAGES = 4096
"""Pages of log, about: 16 MiB."""
_PAGES_OF_BATCH = 5
"""The last page of each of its tables and indexes, however few its rows."""
_ROWS_IN_PAGE = 16
MOST_PAGES = 16 * 1024
"""64 MiB in pages of 4 KiB."""

_MOVE = "PRAGMA wal_checkpoint(PASSIVE)"


class Checkpoints:
    """Of one file. `wrote` is called by the writer, between its commits."""

    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        self._connect = connect
        self._pages = 0
        self._too_long = False
        self._moving = threading.Lock()
        self._wanted = threading.Event()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="ledger-checkpoints")

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def wrote(self, rows: int, connection: sqlite3.Connection) -> None:
        """So many rows were committed at once by the writer's connection, which is used in need only."""
        self._pages += _PAGES_OF_BATCH + rows // _ROWS_IN_PAGE
        if self._too_long and self._moving.acquire(blocking=False):  # two at once are refused by SQLite
            try:
                self._too_long = False
                with suppress(sqlite3.Error):
                    connection.execute(_MOVE).fetchall()
            finally:
                self._moving.release()
        elif self._pages >= EVERY_PAGES:
            self._pages = 0
            self._wanted.set()

    def close(self) -> None:
        """End the thread, if it ever began."""
        if self._thread.ident is None:
            return
        self._closed = True
        self._wanted.set()
        self._thread.join()

    def _run(self) -> None:
        while self._wanted.wait() and not self._closed:
            self._wanted.clear()
            with self._moving, suppress(sqlite3.Error), closing(self._connect()) as connection:
                _, pages, _ = connection.execute(_MOVE).fetchone()
                self._too_long = pages > MOST_PAGES
