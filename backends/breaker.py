"""Is one endpoint sent anything: what becomes of its own faults. Pure: the time is an argument.

              `failures` in a row               `open_s`, then twice, four times ... as long
      ┌──────┐ ────────────────> ┌──────┐ ─────────────────────────────────> ┌───────────┐
      │ shut │                   │ open │                                    │ half open │  `probes` at a time
      └──────┘                   └──────┘ <───────────────────────────────── └───────────┘
          ^                                     a fault of one of them              │
          └─────────────────────────────────────────────────────────────────────────┘
                                        one was answered

A fault is the endpoint's own: it refused, broke off, was silent, or failed at what another one then did. What is none
is not told here: a client's mistake, a client that left, a deadline of ours towards anybody else.

Invariants:
- Half open, never more than `probes` requests wait for their first byte that were let in as such (on mere suspicion,
  `is_lenient`: unless nobody else can take them). Each gives its place back once.
- How long it stays open is forgotten only after it was shut for as long as it may be open at most.
- Only requests that were sent since the last change of state speak of it: what was under way before, and fails now, is
  no news.

All calls are O(1).
"""

from dataclasses import dataclass
from enum import StrEnum


class BreakerState(StrEnum):
    """Whether requests are sent to an endpoint."""

    SHUT = "shut"
    """All of them."""
    OPEN = "open"
    """None."""
    HALF_OPEN = "half_open"
    """A few, to see."""


@dataclass(frozen=True, slots=True)
class BreakerRules:
    """After `failures` faults in a row nothing is sent for `open_s` seconds, each further time for twice as long, up to
    `open_max_s`; then `probes` requests at a time until one is answered."""

    failures: int = 3
    open_s: float = 5.0
    open_max_s: float = 120.0
    probes: int = 1


class Breaker:
    """Of one endpoint. Calls that may change its state say whether they did."""

    __slots__ = ("_for_s", "_probing", "_rules", "faults", "is_lenient", "last_fault", "opened", "since_s", "state")

    def __init__(self, rules: BreakerRules, now_s: float) -> None:
        self._rules = rules
        self._for_s = 0.0
        self._probing = 0
        self.state = BreakerState.SHUT
        self.since_s = now_s
        self.faults = 0
        """In a row."""
        self.opened = 0
        """How often, ever."""
        self.last_fault: str | None = None
        """What kind the last one was."""
        self.is_lenient = False
        """Half open on mere suspicion: more than the probes may pass where nobody else can take them."""

    @property
    def is_open_anew(self) -> bool:
        """Whether it is open, and no probe has failed since it was shut."""
        return self.state is BreakerState.OPEN and self._for_s <= self._rules.open_s

    @property
    def why(self) -> str | None:
        """Why it is not shut, for people; None where it is."""
        if self.state is BreakerState.SHUT:
            return None
        why = (self.last_fault or "").replace("_", " ")
        return f"{why}, {_times(self.faults)}" if self.faults else why

    @property
    def has_place(self) -> bool:
        """Whether a request may be sent now."""
        return self.state is BreakerState.SHUT or (self._is_half_open and self._probing < self._rules.probes)

    def fault(self, kind: str, began_s: float, now_s: float) -> bool:
        """The endpoint failed a request that was sent at `began_s`."""
        if began_s < self.since_s or self.state is BreakerState.OPEN:
            return False
        self.faults += 1
        self.last_fault = kind
        if self._is_half_open:
            return self._opens(now_s)
        if self.faults < self._rules.failures:
            return False
        if now_s - self.since_s >= self._rules.open_max_s:
            self._for_s = 0.0
        return self._opens(now_s)

    def begins_to_answer(self, now_s: float) -> bool:
        """The endpoint has given the first bytes of an answer: no proof that it can end one, but probes are over."""
        return self._is_half_open and self._shuts(now_s)

    def answered(self, now_s: float) -> bool:
        """The endpoint answered a request to its end. While it is open that says nothing: it was sent before."""
        if self.state is BreakerState.OPEN:
            return False
        self.faults = 0
        return self._is_half_open and self._shuts(now_s)

    def look(self, now_s: float) -> bool:
        """See whether it has been open for long enough."""
        if self.state is not BreakerState.OPEN or now_s - self.since_s < self._for_s:
            return False
        return self.half_opens(now_s)

    def half_opens(self, now_s: float) -> bool:
        """Let probes through now, since what opened it is over as far as can be seen."""
        if self.state is not BreakerState.OPEN:
            return False
        self.is_lenient = False
        self._becomes(BreakerState.HALF_OPEN, now_s)
        return True

    def suspect(self, why: str, now_s: float) -> bool:
        """Let only probes through from now on, though no request has failed yet, as far as others can take the rest."""
        if self.state is not BreakerState.SHUT:
            return False
        self.faults, self.last_fault, self.is_lenient = 0, why, True
        self._becomes(BreakerState.HALF_OPEN, now_s)
        return True

    def is_another(self, now_s: float) -> bool:
        """The endpoint is another process now: nothing is held against it."""
        self.faults, self._for_s = 0, 0.0
        return self.state is not BreakerState.SHUT and self._shuts(now_s)

    def probe(self) -> bool:
        """A request is being sent: whether it is a probe, whose place must be given back."""
        if self._is_half_open:
            self._probing += 1
        return self._is_half_open

    def probed(self) -> None:
        """A probe gives its place back."""
        self._probing = max(self._probing - 1, 0)

    @property
    def _is_half_open(self) -> bool:
        return self.state is BreakerState.HALF_OPEN

    def _opens(self, now_s: float) -> bool:
        """For twice as long as the last time, where that is remembered."""
        self._for_s = min(2 * self._for_s or self._rules.open_s, self._rules.open_max_s)
        self.opened += 1
        self._becomes(BreakerState.OPEN, now_s)
        return True

    def _shuts(self, now_s: float) -> bool:
        self._becomes(BreakerState.SHUT, now_s)
        return True

    def _becomes(self, state: BreakerState, now_s: float) -> None:
        self.state, self.since_s = state, now_s


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times in a row"
