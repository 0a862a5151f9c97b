"""What this replica has outstanding, when to say so, and what the others last said.

set ──> own ──(changed: after interval_s; else: every heartbeat_s)──> published
match's reply ──> others, for stale_after_s         total = own + others
"""

from collections.abc import Mapping

from prefix_index.load_book import add_loads
from prefix_index.types import Load


class LoadExchange:
    """Loads of one pool, ours and the others'. Times are of one monotonic clock, seconds."""

    def __init__(self, *, interval_s: float, heartbeat_s: float, stale_after_s: float) -> None:
        self._interval_s = interval_s
        self._heartbeat_s = heartbeat_s
        self._stale_after_s = stale_after_s
        self._changed = False
        self._published_at_s = float("-inf")
        self._others: Mapping[str, Load] = {}
        self._heard_at_s = float("-inf")
        self.own: dict[str, Load] = {}
        """What this replica has outstanding; holders with nothing are absent."""

    def set(self, holder: str, load: Load) -> bool:
        """Replace what is outstanding at `holder`. Returns whether this is news, of which a publisher has to hear."""
        if load == Load():
            self.own.pop(holder, None)
        else:
            self.own[holder] = load
        news, self._changed = not self._changed, True
        return news

    def withdraw(self) -> None:
        """Nothing is outstanding any more, and that is to be said at once."""
        self.own.clear()
        self._published_at_s = float("-inf")

    def heard(self, others: Mapping[str, Load], now_s: float) -> None:
        """The others' loads came with a match."""
        self._others = others
        self._heard_at_s = now_s

    def total(self, now_s: float) -> dict[str, Load]:
        """Everybody's loads; the others' only while they are fresh."""
        total = dict(self.others(now_s))
        add_loads(total, self.own)
        return total

    def others(self, now_s: float) -> Mapping[str, Load]:
        """What the others have, while that is fresh; the same object while it is the same."""
        if self._others and now_s - self._heard_at_s > self._stale_after_s:
            self._others = {}
        return self._others

    @property
    def due_at_s(self) -> float:
        """When the next publication is due."""
        return self._published_at_s + (self._interval_s if self._changed else self._heartbeat_s)

    def publishing(self, now_s: float) -> None:
        """A publication leaves now."""
        self._published_at_s = now_s
        self._changed = False

    def undelivered(self) -> None:
        """The last publication did not arrive."""
        self._changed = True
