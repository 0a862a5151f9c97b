"""The price book in force, and its file, which may change while the gateway runs.

    file changed --> seen twice alike --> read --> valid:   the new book holds, as a whole, from now on
                                              `-> invalid: the old book holds, `problem` says why

A request is priced by the book in force when it is settled, and in it by the moment at which it came in. Rows that are
written keep their rates. The book is replaced by one assignment: who reads it, on any thread, has one or the other.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from billing.errors import PricesInvalid
from billing.prices.book import PriceBook
from billing.prices.pricing import Quote
from billing.prices.view import Change, changes


class _Mark(NamedTuple):
    """What tells one state of a file from another without reading it."""

    mtime_ns: int
    inode: int
    size: int


@dataclass(frozen=True, slots=True)
class Reloaded:
    """What became of reading the file again: the changes that hold now, or the problem that kept the old book."""

    changes: Sequence[Change] = ()
    problem: str | None = None


class LivePrices:
    """The prices that hold now. `clock` is wall time in UTC."""

    def __init__(self, path: Path | None, clock: Callable[[], datetime]) -> None:
        """Read the file; without one there are no prices. Raises `PricesInvalid`."""
        self.path = path
        self._clock = clock
        self._read = self._seen = self._mark()
        self.book = PriceBook.empty() if path is None else PriceBook.load(path)
        self.loaded_at = clock()
        self.problem: str | None = None

    @property
    def currency(self) -> str | None:
        """Of the book in force."""
        return self.book.currency

    def quote(self, model: str, tenant: str | None, when: datetime) -> Quote:
        """What holds for a request opened at `when`."""
        return self.book.quote(model, tenant, when)

    def check(self, text: str) -> Sequence[Change]:
        """What would change if the file had this text; changes nothing. Raises `PricesInvalid`."""
        return changes(self.book, PriceBook.parse(text), self._clock())

    def reload(self) -> Reloaded:
        """Read the file again; where it cannot be used, all stays as it is."""
        if self.path is None:
            return Reloaded(problem="there is no prices_file in the configuration")
        self._read = self._seen = self._mark()
        try:
            new = PriceBook.load(self.path)
        except PricesInvalid as error:
            self.problem = str(error)
            return Reloaded(problem=self.problem)
        now = self._clock()
        found = changes(self.book, new, now)
        self.book, self.loaded_at, self.problem = new, now, None
        return Reloaded(found)

    def poll(self) -> Reloaded | None:
        """Reload if the file has changed, and did not since the last look: one being written is let be."""
        if self.path is None:
            return None
        mark = self._mark()
        settled, self._seen = mark == self._seen, mark
        return self.reload() if settled and mark != self._read else None

    def _mark(self) -> _Mark | None:
        """None where there is no such file."""
        if self.path is None:
            return None
        try:
            state = self.path.stat()
        except OSError:
            return None
        return _Mark(state.st_mtime_ns, state.st_ino, state.st_size)
