"""What a database must do for the ledger, beside SQL: be owned, be reached, say who died, and know its own errors."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from sqlalchemy import Connection

from billing.batch_sql import Rows

Sync = Literal["normal", "disk"]
"""What a commit survives: `normal` the death of the gateway, `disk` also the loss of power."""


@dataclass(frozen=True, slots=True)
class Watcher:
    """Who closes what the dead leave open: `owner_id` is asked each time, as it may change; `closed` hears how many."""

    owner_id: Callable[[], str]
    currency: str | None
    now_us: Callable[[], int]
    closed: Callable[[int], None]


class Database(Protocol):
    """One ledger in one database. All calls come from the writer's thread."""

    row_errors: tuple[type[Exception], ...]
    """What is wrong with a row, not with the database."""
    failures: tuple[type[Exception], ...]
    """What is wrong with the database. Looked at after `row_errors`."""

    @property
    def name(self) -> str:
        """Where it is, for people; without secrets."""

    def hold(self) -> None:
        """Keep out whoever may not write beside us. Raises `LedgerUnavailable`."""

    def connect(self) -> Connection:
        """A connection, ready to write. Raises one of `failures`."""

    def own(self, connection: Connection, owner_id: str) -> None:
        """Have this connection stand for that owner: while it lives, so does the owner."""

    def stand_for(self, connection: Connection, owner_id: str) -> None:
        """The same, where `own` could not do it yet. Called before each transaction."""

    def reach(self) -> None:
        """See whether the database answers. On any thread. Raises one of `failures`."""

    def is_away(self, error: Exception) -> bool:
        """Whether a failure to connect may pass by itself."""

    def begin_alone(self, connection: Connection) -> None:
        """Begin a transaction in which nobody else makes or changes tables."""

    def write(self, connection: Connection, rows: Rows) -> None:
        """Insert the rows, all or none, in a transaction of their own. Raises one of `row_errors` or `failures`."""

    def dead_at_start(self, unended: Sequence[str]) -> Sequence[str]:
        """Which of the owners that are noted as alive have surely died."""

    def watch(self, watcher: Watcher) -> None:
        """From now on, close what other owners leave open when they die, where there can be others."""

    def tend(self, connection: Connection, owner_id: str) -> None:
        """Called about once a second, when the writer has nothing to do. Raises where the connection has ended."""

    def is_lost(self, connection: Connection) -> bool:
        """Whether a failure was the end of the connection only, so that another may do."""

    def let_go(self) -> None:
        """The opposite of `hold`."""


def words(error: BaseException) -> str:
    """The driver's own words, without the statement and its values: PostgreSQL tells those from its second line on."""
    return str(getattr(error, "orig", None) or error).strip().partition("\n")[0]
