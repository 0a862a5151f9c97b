"""How likely a run of blocks is still where it was last seen: learned from what engines report.

    a run last used 90 s ago;  60 blocks a second are filled there, 8,000 fit  -->  0.68 turnovers

    turnovers   0 .. .25 .. .5 .. .75 .. 1 .. 1.5 .. 2 ..
    prior       1 ---------------------\\_____    an LRU cache: nothing goes before one turnover
    fleet       .97  .96   .91    .62   .11   .02    all holders, each with a bounded vote; drawn to the prior
    holder      .99  .99   .95    .88   .30   .02    its own matches; drawn to the fleet

The variable is *turnovers*: how many times the holder's capacity was filled since the run was last used. Where its
capacity or its fill rate is not known it is the age alone; where the age is not known either, or eviction is told by
events, one figure for all.

Each bucket counts expected and reported tokens, older ones less and less. A share of tokens says nothing of how many
matches it rests on, and the tokens of one match stand and fall together: so what it weighs is its *effective number of
matches*, (sum of tokens)^2 / (sum of squares) (Kish), and a single long prompt counts as one. Few matches are drawn to
what is known otherwise: (n * share + k * other) / (n + k). The result is pooled (pool adjacent violators) so that it
never rises with age.

Two rules keep a holder's faults its own: in the fleet's figure a holder has at most `MOST_VOTES` matches, and its own
are left out of the one that it is drawn to.

Costs: a curve is drawn in O(buckets), of which there are 36 at most, on the first question after a holder has learned,
and later after every eighth match; all else is O(log buckets). Pure: no clock.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Generic

from prefix_index.types import H

TURNOVER_EDGES: Final = (0.05, 0.1, 0.2, 0.35, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0)
"""Closest where an LRU cache has its cliff."""
AGE_EDGES_S: Final = tuple(2.0 ** (half / 2) for half in range(35))
"""From a second to 36 hours: a cache whose size nobody knows may have its cliff anywhere."""
MEMORY: Final = 1 - 1 / 64
"""What a match still counts after the next one in its bucket: at most 127 matches count at all."""
PULL: Final = 4.0
"""How many matches what is known otherwise weighs."""
GUESS: Final = 1.0
"""How many matches a prior weighs that is no more than a guess: how long a cache of unknown size keeps what it has."""
HEAVIEST: Final = 8.0
"""How many times the mean length of the others a match counts at most: one long prompt must not drown them."""
UNSEEN: Final = 0.01
"""How many matches a bucket without any weighs when neighbours that contradict each other are pooled: it gives way."""
MOST_VOTES: Final = 8.0
"""Matches of one holder that count in a bucket of the fleet's figure: its faults are its own."""
OLDER: Final = 1.5
"""`assured` takes a run for so many times as old: no cliff of an LRU cache may lie just behind it."""
STEADY: Final = 32.0
"""Matches in a bucket from which on one more hardly moves its curve."""
MOST_UNDRAWN: Final = 8
"""So many matches may wait until a curve is drawn anew, in a bucket that has `STEADY` already."""
MOST_HOLDERS: Final = 4096
"""Holders that are remembered one by one; the first learned of is forgotten first."""

_SURELY: Final = 0.98
"""Share taken to be there of what was used just now, before anything is known."""
_PATIENCE_S: Final = 3600.0
"""Age at which half of what is in a cache of unknown size is taken for gone, before anything is known of it."""
_UNKNOWN: Final = 0.95
"""Share taken to be there where no age is known: mostly of holders whose evictions are told by events."""


@dataclass(frozen=True, slots=True)
class SurvivalRow:
    """One bucket of the reliability table: matches whose `variable` was in (`above`, `up_to`].

    `predicted_tokens` is what was predicted for these matches before each was learned: sum of p x expected.
    """

    variable: str
    above: float
    up_to: float | None
    matches: int
    expected_tokens: int
    reported_tokens: int
    predicted_tokens: float
    present: float
    """p for a holder of which nothing is known of its own."""

    @property
    def share(self) -> float:
        """Of the expected tokens, how much was there."""
        return self.reported_tokens / self.expected_tokens if self.expected_tokens else 0.0

    @property
    def predicted(self) -> float:
        """The same as it was predicted."""
        return self.predicted_tokens / self.expected_tokens if self.expected_tokens else 0.0


class SurvivalBook(Generic[H]):
    """What is known of all holders. Plain calls on one thread."""

    def __init__(self) -> None:
        turnovers = [_SURELY / (1 + middle**8) for middle in _middles(TURNOVER_EDGES)]
        ages = [_SURELY / (1 + middle / _PATIENCE_S) for middle in _middles(AGE_EDGES_S)]
        self._turnovers: _Axis[H] = _Axis("turnovers", TURNOVER_EDGES, turnovers, worth=PULL)
        self._ages: _Axis[H] = _Axis("age_s", AGE_EDGES_S, ages)
        self._unknown: _Axis[H] = _Axis("unknown", (), [_UNKNOWN])

    def probability(self, holder: H, age_s: float | None, turnovers: float | None) -> float:
        """Share of a run last used so long ago that is expected to be there still: from 0 to 1, never rising with age.

        `turnovers` goes before `age_s`; None is unknown.
        """
        axis, position = self._place(age_s, turnovers)
        return axis.probability(holder, position)

    def assured(self, holder: H, age_s: float | None, turnovers: float | None) -> float:
        """The same, carefully: as if the run were `OLDER` times as old, so that no cliff lies just behind it.

        Where the prior is a guess, of ages, it is worth nothing here: only runs of at least that age that were found
        at this holder speak for one.
        """
        axis, position = self._place(age_s, turnovers)
        return axis.assured(holder, OLDER * position)

    def learn(
        self, holder: H, age_s: float | None, turnovers: float | None, expected_tokens: int, reported_tokens: int
    ) -> None:
        """A run of `expected_tokens` was looked for; `reported_tokens` of them were there."""
        if expected_tokens > 0:
            axis, position = self._place(age_s, turnovers)
            axis.learn(holder, position, expected_tokens, min(max(reported_tokens, 0), expected_tokens))

    def forget(self, holder: H) -> None:
        """The holder is gone for good; what was learned there stays in the fleet's figure, as one holder's vote."""
        for axis in (self._turnovers, self._ages, self._unknown):
            axis.forget(holder)

    def table(self) -> list[SurvivalRow]:
        """All that was ever learned, bucket by bucket; buckets without a match are left out."""
        rows = (row for axis in (self._turnovers, self._ages, self._unknown) for row in axis.rows())
        return [row for row in rows if row.matches]

    def _place(self, age_s: float | None, turnovers: float | None) -> "tuple[_Axis[H], float]":
        if turnovers is not None:
            return self._turnovers, turnovers
        if age_s is not None:
            return self._ages, age_s
        return self._unknown, 0.0


class _Cells:
    """Decayed sums for each bucket; the evidence in them; and the vote that they have in the fleet's figure."""

    __slots__ = (
        "curve",
        "expected",
        "found",
        "matches",
        "reported",
        "seen",
        "squares",
        "undrawn",
        "voted",
        "voted_there",
    )

    def __init__(self, buckets: int) -> None:
        self.matches = [0.0] * buckets
        self.expected = [0.0] * buckets
        self.reported = [0.0] * buckets
        self.squares = [0.0] * buckets
        self.seen = [0.0] * buckets
        """The effective number of matches."""
        self.found = [0.0] * buckets
        """The same times the share of their tokens that was there."""
        self.voted = [0.0] * buckets
        self.voted_there = [0.0] * buckets
        self.curve: list[float] | None = None
        self.undrawn = 0

    def add(self, at: int, expected: float, share: float) -> None:
        """Count a match, as if it were no more than `HEAVIEST` times as long as the others."""
        if self.matches[at]:
            expected = min(expected, HEAVIEST * self.expected[at] / self.matches[at])
        self.matches[at] = self.matches[at] * MEMORY + 1
        total = self.expected[at] = self.expected[at] * MEMORY + expected
        self.reported[at] = self.reported[at] * MEMORY + expected * share
        self.squares[at] = self.squares[at] * MEMORY * MEMORY + expected * expected
        self.seen[at] = total * total / self.squares[at]
        self.found[at] = self.seen[at] * min(self.reported[at] / total, 1.0)


class _Totals:
    """What the reliability table shows of one bucket; nothing is forgotten."""

    __slots__ = ("expected_tokens", "matches", "predicted_tokens", "reported_tokens")

    def __init__(self) -> None:
        self.matches = self.expected_tokens = self.reported_tokens = 0
        self.predicted_tokens = 0.0


class _Axis(Generic[H]):
    """One variable cut into buckets: the fleet's figures, and those of each holder."""

    def __init__(self, variable: str, edges: Sequence[float], prior: list[float], *, worth: float = GUESS) -> None:
        self._variable = variable
        self._worth = worth
        self._edges = edges
        self._prior = prior
        self._own: dict[H, _Cells] = {}
        self._votes = [0.0] * len(prior)
        self._votes_there = [0.0] * len(prior)
        self._past = _Cells(len(prior))
        self._curve: list[float] | None = None
        self._totals = [_Totals() for _ in prior]

    def probability(self, holder: H, position: float) -> float:
        return self._curve_of(self._own.get(holder))[self._bucket(position)]

    def assured(self, holder: H, position: float) -> float:
        likely = self.probability(holder, position)
        if self._worth > GUESS:
            return likely
        own = self._own.get(holder)
        if own is None:
            return 0.0
        found = sum(own.found[self._bucket(position) :])
        return likely * found / (found + PULL)

    def learn(self, holder: H, position: float, expected: int, reported: int) -> None:
        at = self._bucket(position)
        totals = self._totals[at]
        totals.matches += 1
        totals.expected_tokens += expected
        totals.reported_tokens += reported
        totals.predicted_tokens += expected * self.probability(holder, position)
        own = self._own.get(holder)
        if own is None:
            if len(self._own) >= MOST_HOLDERS:
                self.forget(next(iter(self._own)))
            own = self._own[holder] = _Cells(len(self._prior))
        own.add(at, expected, reported / expected)
        fitting = min(1.0, MOST_VOTES / own.seen[at])
        self._vote(own, at, fitting * own.seen[at], fitting * own.found[at])
        own.undrawn += 1
        if own.seen[at] < STEADY or own.undrawn >= MOST_UNDRAWN:
            own.undrawn = 0
            self._curve = own.curve = None  # drawn anew when somebody asks

    def forget(self, holder: H) -> None:
        own = self._own.pop(holder, None)
        if own is None:
            return
        for at in range(len(self._prior)):
            votes, there = own.voted[at], own.voted_there[at]
            self._vote(own, at, 0.0, 0.0)
            votes, there = votes + self._past.voted[at], there + self._past.voted_there[at]
            fitting = min(1.0, MOST_VOTES / votes) if votes else 1.0
            self._vote(self._past, at, votes * fitting, there * fitting)
        self._curve = None

    def rows(self) -> list[SurvivalRow]:
        bounds: list[float | None] = [*self._edges, None]
        fleet = self._curve_of(None)
        return [
            SurvivalRow(
                self._variable,
                0.0 if at == 0 else self._edges[at - 1],
                bounds[at],
                totals.matches,
                totals.expected_tokens,
                totals.reported_tokens,
                totals.predicted_tokens,
                fleet[at],
            )
            for at, totals in enumerate(self._totals)
        ]

    def _curve_of(self, own: _Cells | None) -> list[float]:
        """The curve of a holder; None: of one of which nothing is known. What others learned since comes in later."""
        if own is None:
            if self._curve is None:
                self._curve = self._fleet()
            return self._curve
        if own.curve is None:
            own.curve = self._drawn(own, self._fleet(without=own))
        return own.curve

    def _bucket(self, position: float) -> int:
        return bisect_right(self._edges, position) if position > 0 else 0  # clocks of others may make it negative

    def _vote(self, cells: _Cells, at: int, votes: float, there: float) -> None:
        """Replace what `cells` put into the fleet's figure."""
        self._votes[at] = max(self._votes[at] - cells.voted[at] + votes, 0.0)
        self._votes_there[at] = max(self._votes_there[at] - cells.voted_there[at] + there, 0.0)
        cells.voted[at], cells.voted_there[at] = votes, there

    def _fleet(self, without: _Cells | None = None) -> list[float]:
        """The fleet's curve, but for one holder's vote."""
        votes, votes_there = self._votes, self._votes_there
        if without is not None:
            votes = [max(all_of - own, 0.0) for all_of, own in zip(votes, without.voted, strict=True)]
            votes_there = [max(all_of - own, 0.0) for all_of, own in zip(votes_there, without.voted_there, strict=True)]
        worth = self._worth
        values = [
            (min(there, cast) + worth * prior) / (cast + worth)
            for cast, there, prior in zip(votes, votes_there, self._prior, strict=True)
        ]
        return never_rising(values, votes)

    def _drawn(self, own: _Cells, others: list[float]) -> list[float]:
        """A holder's own curve, drawn to that of the others: no more than they have seen themselves."""
        values = []
        for seen, found, all_of, voted, other in zip(own.seen, own.found, self._votes, own.voted, others, strict=True):
            pull = min(PULL, max(all_of - voted, 0.0) + self._worth)
            values.append((found + pull * other) / (seen + pull))
        return never_rising(values, own.seen)


def never_rising(values: Sequence[float], weights: Sequence[float]) -> list[float]:
    """The closest sequence, in weighted squares, that never rises: pool adjacent violators. O(values).

    What weighs nothing gives way to its neighbours.
    """
    if all(earlier >= later for earlier, later in pairwise(values)):
        return list(values)
    pools: list[tuple[float, float, int]] = []
    for value, weight in zip(values, weights, strict=True):
        pool = (value, max(weight, UNSEEN), 1)
        while pools and pools[-1][0] < pool[0]:
            before, before_weight, before_length = pools.pop()
            total = before_weight + pool[1]
            pool = ((before * before_weight + pool[0] * pool[1]) / total, total, before_length + pool[2])
        pools.append(pool)
    return [value for value, _, length in pools for _ in range(length)]


def _middles(edges: Sequence[float]) -> list[float]:
    """A point in each bucket: the last has none, and is taken as wide as its edge."""
    return [(low + high) / 2 for low, high in zip((0.0, *edges), (*edges, 2 * edges[-1]), strict=True)]
