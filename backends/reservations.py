"""Work in flight, counted from dispatch and given back exactly once.

    reserve ──────────────────────> first_token ──> release
    requests +1, uncached +u,       uncached −u     requests −1,
    decode +d                                       decode −d, and u if no token came

The counts outlive health: an endpoint that is down and comes back still owes what was sent to it until the requests
that were sent have ended, each through its own `release`. O(1) each.
"""

from collections.abc import Callable
from types import TracebackType
from typing import Self

from backends.types import InFlight


class InFlightCounter:
    """Sums of the open reservations of one endpoint; `changed` is called after each change."""

    __slots__ = ("_changed", "_decode_tokens", "_requests", "_uncached_tokens")

    def __init__(self, changed: Callable[[], None] = lambda: None) -> None:
        self._changed = changed
        self._requests = 0
        self._uncached_tokens = 0
        self._decode_tokens = 0

    def read(self) -> InFlight:
        """The sums at this instant."""
        return InFlight(self._requests, self._uncached_tokens, self._decode_tokens)

    def add(self, requests: int, uncached_tokens: int, decode_tokens: int) -> None:
        """Change the sums; only a reservation calls this."""
        self._requests += requests
        self._uncached_tokens += uncached_tokens
        self._decode_tokens += decode_tokens
        assert min(self._requests, self._uncached_tokens, self._decode_tokens) >= 0, (
            "a reservation was given back twice"
        )
        self._changed()


class Reservation:
    """One request's share of an endpoint's work. Release it on every path; as a context manager it does so itself."""

    __slots__ = ("_counter", "_decode_tokens", "_released", "_uncached_tokens")

    def __init__(self, counter: InFlightCounter, uncached_tokens: int, decode_tokens: int) -> None:
        self._counter = counter
        self._uncached_tokens = uncached_tokens
        self._decode_tokens = decode_tokens
        self._released = False
        counter.add(1, uncached_tokens, decode_tokens)

    def first_token(self) -> None:
        """Prefill is over: its tokens no longer wait. Idempotent, also after `release`."""
        if self._uncached_tokens:
            self._counter.add(0, -self._uncached_tokens, 0)
            self._uncached_tokens = 0

    def release(self) -> None:
        """The request has ended, however; what is left of it is given back. Idempotent."""
        if self._released:
            return
        self._released = True
        self._counter.add(-1, -self._uncached_tokens, -self._decode_tokens)
        self._uncached_tokens = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
