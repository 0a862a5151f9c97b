"""A restart noticed without the engine's help: too much is gone at once that should be there.

    contradiction   a run last used at u was looked for at t, and is gone  -->  a restart lies between u and t
    agreement       a run last used at u was looked for at t, and is there -->  no restart lies between u and t

    A gone   u|-----------------------|t
    B gone          u|---------------------|t
    X there                      u|----------|t
    restart          |-----------|                  still possible: the X's are younger than it

A restart has a moment. Contradictions that one moment explains make a *case*; one that it does not explain begins a
new case, and an agreement that leaves no moment closes it. What was computed after the restart agrees too, and refutes
nothing.

How much a contradiction says depends on how unexpected it was: -ln(1 - p) for a run that would be there with
probability p, less where a part of it was there. Where eviction is likely, that is next to nothing; a case is proven
once a living cache would show it in one of a thousand (`PROVEN`). p counts as at most `MOST_SURE`, so that two are
never enough: three runs that were surely there, gone one after the other, are. The first block that is missing names
the loss, and each loss counts once: a shared prefix that was evicted, and that many prompts miss at the same time, is
one.

While a case is open, its contradictions teach nothing about survival: of a restart they would teach the wrong thing.
They are handed on when it closes; when it is proven too, if it is the second within `RARE_S`, since an engine that
restarts all the time is more likely one that evicts sooner than was thought.

Costs: O(1) a call, at most `MOST_OPEN` comparisons a holder. Pure: no clock.
"""

import math
from dataclasses import dataclass, field
from typing import Final, Generic

import msgspec

from prefix_index.types import H

PROVEN: Final = -math.log(1 / 1000)
"""Surprise, in nats, at which a case is proven."""
MOST_SURE: Final = 0.95
"""Most that a probability counts for: a surprise of 3 nats, so that two contradictions prove nothing."""
MOSTLY: Final = 0.5
"""Share of a run from which on it was there: that is an agreement."""
LIKELY: Final = 0.5
"""A run below this was not expected to be there: that it is gone says nothing."""
MOST_OPEN: Final = 16
"""Contradictions of an open case; the next one that proves nothing closes it."""
RARE_S: Final = 3600.0
"""Seconds after a proven restart in which a second one teaches about survival too: eviction is likelier then."""
MOST_HOLDERS: Final = 4096
"""Holders that are remembered; the first that was seen is forgotten first."""


class Comparison(msgspec.Struct, frozen=True):
    """A run that was looked for: `expected_tokens` (at least 1) by the index, of which `reported_tokens` were there.

    `age_s` and `turnovers` say how long ago it was last used (None: unknown) when it was looked for at `sent_s`;
    `survival` how likely it was there, carefully: rather too low. `lost` is the hash of the first block that is
    missing.
    """

    expected_tokens: int
    reported_tokens: int
    age_s: float | None
    turnovers: float | None
    survival: float
    sent_s: float
    lost: bytes = b""

    @property
    def used_s(self) -> float:
        """When the run was last used before."""
        return -math.inf if self.age_s is None else self.sent_s - max(self.age_s, 0.0)

    @property
    def share(self) -> float:
        """How much of it was there, from 0 to 1."""
        return min(max(self.reported_tokens / self.expected_tokens, 0.0), 1.0)


@dataclass(frozen=True, slots=True)
class Finding:
    """What follows from a comparison: whether the holder was restarted, and what can be learned about survival now."""

    restarted: bool = False
    learnable: tuple[Comparison, ...] = ()


@dataclass(slots=True)
class _Case:
    """Contradictions that a restart between `after_s` and `before_s` explains."""

    after_s: float
    before_s: float
    surprise: float = 0.0
    losses: set[bytes] = field(default_factory=set)
    open: list[Comparison] = field(default_factory=list)


@dataclass(slots=True)
class _Holder:
    case: _Case | None = None
    cleared_s: float = -math.inf
    proven_s: float = -math.inf


class Contradictions(Generic[H]):
    """The open cases of all holders."""

    def __init__(self) -> None:
        self._holders: dict[H, _Holder] = {}

    def add(self, holder: H, seen: Comparison, now_s: float) -> Finding:
        """Take one comparison. A restart that it proves is the caller's to act on; the holder counts as cleared then.

        What was looked for before the holder was last cleared says nothing any more.
        """
        record = self._record(holder)
        if seen.sent_s < record.cleared_s:
            return Finding()
        if seen.share >= MOSTLY:
            return self._agrees(record, seen)
        if seen.survival < LIKELY:
            return Finding(learnable=(seen,))
        return self._contradicts(record, seen, now_s)

    def cleared(self, holder: H, now_s: float) -> None:
        """The index was told, by whomever, that the holder has nothing."""
        record = self._record(holder)
        record.cleared_s, record.case = now_s, None

    def forget(self, holder: H) -> None:
        """The holder is gone for good."""
        self._holders.pop(holder, None)

    def _record(self, holder: H) -> _Holder:
        record = self._holders.get(holder)
        if record is None:
            if len(self._holders) >= MOST_HOLDERS:
                del self._holders[next(iter(self._holders))]
            record = self._holders[holder] = _Holder()
        return record

    def _agrees(self, record: _Holder, seen: Comparison) -> Finding:
        case = record.case
        if case is None:
            return Finding(learnable=(seen,))
        if seen.sent_s >= case.before_s:
            case.before_s = min(case.before_s, seen.used_s)
        elif seen.used_s <= case.after_s:
            case.after_s = max(case.after_s, seen.sent_s)
        if case.after_s < case.before_s:
            return Finding(learnable=(seen,))
        record.case = None
        return Finding(learnable=(*case.open, seen))

    def _contradicts(self, record: _Holder, seen: Comparison, now_s: float) -> Finding:
        case = record.case
        learnable: tuple[Comparison, ...] = ()
        if case is not None and seen.lost in case.losses:
            return Finding()
        if case is None or max(case.after_s, seen.used_s) >= min(case.before_s, seen.sent_s):
            learnable = () if case is None else tuple(case.open)
            case = record.case = _Case(seen.used_s, seen.sent_s)
        case.after_s = max(case.after_s, seen.used_s)
        case.before_s = min(case.before_s, seen.sent_s)
        case.losses.add(seen.lost)
        case.open.append(seen)
        case.surprise -= math.log1p(-min(seen.survival, MOST_SURE)) * (1 - seen.share / MOSTLY)
        if case.surprise >= PROVEN:
            rare = now_s - record.proven_s > RARE_S
            record.case, record.cleared_s, record.proven_s = None, now_s, now_s
            return Finding(restarted=True, learnable=() if rare else tuple(case.open))
        if len(case.open) > MOST_OPEN:
            record.case = None
            learnable = tuple(case.open)
        return Finding(learnable=learnable)
