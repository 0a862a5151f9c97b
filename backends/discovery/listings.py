"""How each source stands: what it said last, when, and what is wrong with it now. Plain calls."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from backends.discovery.types import Found


@dataclass(slots=True)
class Standing:
    """Of one source. `problem` is why it cannot tell at present; `errors` counts the failures."""

    listed: int = 0
    problem: str | None = None
    errors: int = 0
    told_at_s: float | None = None


@dataclass(slots=True)
class Reporter:
    """A source's `Report`: keeps how it stands, and passes on what is news to `changed`.

    `trouble` is told of a failure that is another one than before.
    """

    name: str
    clock: Callable[[], float]
    changed: Callable[[str, Sequence[Found]], None]
    trouble: Callable[[str, str], None]
    standing: Standing = field(default_factory=Standing)
    heard: bool = False
    """Whether it has said anything yet, be it that it cannot."""
    _last: Sequence[Found] | None = None

    def found(self, listing: Sequence[Found]) -> None:
        """All that there is now."""
        standing = self.standing
        standing.problem, standing.told_at_s, standing.listed = None, self.clock(), len(listing)
        if self._last is None or tuple(listing) != self._last:
            self._last = tuple(listing)
            self.heard = True
            self.changed(self.name, self._last)

    def failed(self, why: str) -> None:
        """It cannot be told at present."""
        self.standing.errors += 1
        self.heard = True
        if why != self.standing.problem:
            self.standing.problem = why
            self.trouble(self.name, why)
