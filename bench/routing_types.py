"""The nouns of the routing benchmark: a scenario is a load on a fleet, a table some scenarios and what they must show.

    Table "E" ── Scenario "1x" ── policy ── seed ──> Outcome(figures)         one process each, kept once it is known
                 load(seed), plan     └ CEILING: one cache for all, without a policy

The same seed gives every policy the same requests: differences are taken seed by seed.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import mean, stdev
from typing import Final, TypeAlias

from bench.result import Goal
from gateway.sim.fleet import FleetPlan
from gateway.sim.play import OURS, Played, Replicas
from gateway.sim.types import Workload

ONE_REPLICA: Final = Replicas()

CEILING: Final = "ceiling"
"""In place of a policy: what one pooled, and one unlimited cache would hit."""
POOLED: Final = "pooled"
UNLIMITED: Final = "unlimited"

Figure: TypeAlias = str
"""A name of `Figures`, or one that a scenario's `extra` gives."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """One load on one fleet. `load` makes it from a seed; `name` is unique in its table.

    Without `timed` requests are answered at once, one after the other, and only caches count. `skip_s`: a warm-up.
    `extra` makes further figures of a run that is over. `ceilings`: whether to ask what a single cache gives.
    `most_seeds`: of a long run, no more than so many.
    `player`: what plays it instead of the simulator.
    """

    name: str
    load: Callable[[int], Workload]
    plan: FleetPlan
    policies: Sequence[str]
    timed: bool = True
    replicas: Replicas = ONE_REPLICA
    skip_s: float = 0.0
    extra: Callable[[Played], Mapping[Figure, float]] | None = None
    ceilings: bool = True
    most_seeds: int | None = None
    player: "Player | None" = None


Player: TypeAlias = Callable[[Scenario, str, int], Mapping[Figure, float]]
"""Plays a scenario under a policy with a seed in a way of its own."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run in numbers; those that have no meaning are left out."""

    scenario: str
    policy: str
    seed: int
    figures: Mapping[Figure, float]


@dataclass(frozen=True, slots=True)
class Sample:
    """A figure over the seeds, in their order."""

    values: Sequence[float]

    @property
    def mean(self) -> float:
        """NaN of none."""
        return mean(self.values) if self.values else math.nan

    @property
    def deviation(self) -> float:
        """The standard deviation; 0 of a single value."""
        return stdev(self.values) if len(self.values) > 1 else 0.0

    @property
    def error(self) -> float:
        """The standard error of the mean; 0 of a single value."""
        return self.deviation / math.sqrt(len(self.values)) if self.values else 0.0


@dataclass(slots=True)
class Outcomes:
    """All runs of one table."""

    _figures: dict[tuple[str, str], dict[int, Mapping[Figure, float]]] = field(default_factory=dict)

    def add(self, outcome: Outcome) -> None:
        """One more."""
        self._figures.setdefault((outcome.scenario, outcome.policy), {})[outcome.seed] = outcome.figures

    def runs(self) -> list[tuple[str, str]]:
        """Scenario and policy of all that was run."""
        return list(self._figures)

    def names(self, scenario: str, policy: str) -> list[Figure]:
        """The figures there are, as the first seed gave them."""
        runs = self._figures.get((scenario, policy), {})
        return list(runs[min(runs)]) if runs else []

    def seeds(self, scenario: str, policy: str) -> list[int]:
        """The seeds that were run."""
        return sorted(self._figures.get((scenario, policy), {}))

    def sample(self, scenario: str, policy: str, figure: Figure) -> Sample:
        """A figure over the seeds; empty where the policy was not run or has no such figure."""
        runs = self._figures.get((scenario, policy), {})
        return Sample([runs[seed][figure] for seed in sorted(runs) if figure in runs[seed]])

    def difference(self, scenario: str, figure: Figure, policy: str, other: str) -> Sample:
        """`policy` less `other`, seed by seed, where both have the figure."""
        ours, theirs = self._figures.get((scenario, policy), {}), self._figures.get((scenario, other), {})
        return Sample(
            [
                ours[seed][figure] - theirs[seed][figure]
                for seed in sorted(ours.keys() & theirs.keys())
                if figure in ours[seed] and figure in theirs[seed]
            ]
        )

    def at_least(self, name: str, scenario: str, figure: Figure, bound: float, policy: str = OURS) -> Goal:
        """A goal: the mean of ours is so much or more."""
        return Goal(name, self.sample(scenario, policy, figure).mean, bound, ">=")

    def at_most(self, name: str, scenario: str, figure: Figure, bound: float, policy: str = OURS) -> Goal:
        """A goal: the mean of ours is so much or less."""
        return Goal(name, self.sample(scenario, policy, figure).mean, bound, "<=")

    def never_worse(
        self, name: str, scenario: str, figure: Figure, others: Sequence[str], *, more_is_better: bool = False
    ) -> list[Goal]:
        """Goals: ours less each other, seed by seed, is on the good side of 0 or within two standard errors of it."""
        goals = []
        for other in others:
            if other == OURS or not (sample := self.difference(scenario, figure, OURS, other)).values:
                continue
            text, leeway = f"{name}: {figure}, {OURS} − {other}", 2 * sample.error
            goals.append(
                Goal(text, sample.mean, -leeway, ">=") if more_is_better else Goal(text, sample.mean, leeway, "<=")
            )
        return goals


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a printed table: a figure, times `factor`, to so many `digits`; with its standard error, or not."""

    head: str
    figure: Figure
    digits: int = 2
    factor: float = 1.0
    errors: bool = True


HITS: Final = Column("hits %", "hit_share", 1, 100)
TTFT: Final = (
    Column("TTFT mean s", "ttft_mean_s"),
    Column("p90 s", "ttft_p90_s"),
    Column("p99 s", "ttft_p99_s"),
)
OUTPUT: Final = Column("output tokens/s", "output_tokens_per_s", 0)
EVENNESS: Final = Column("max/mean work", "imbalance")
EXPECTED: Final = Column("expected − reported %", "expected_minus_reported", 2, 100)

TIMED: Final = (HITS, *TTFT, OUTPUT, EVENNESS, EXPECTED)
CACHES: Final = (HITS, EVENNESS, EXPECTED)


@dataclass(frozen=True, slots=True)
class Series:
    """A figure at several points of one run, shown as policies by points, means alone: figures named
    `figure @ point`."""

    title: str
    figure: Figure
    digits: int = 2
    factor: float = 1.0


@dataclass(frozen=True, slots=True)
class Table:
    """`text`: what the load and the fleet are, and where the numbers come from, for the page. `goals` of its runs.
    `flat`: its scenarios are shown as one, with a line for each scenario and policy.
    """

    key: str
    title: str
    text: str
    scenarios: Sequence[Scenario]
    goals: Callable[[Outcomes], Sequence[Goal]] = lambda _: ()
    columns: Sequence[Column] = TIMED
    series: Sequence[Series] = ()
    flat: bool = False

    def scenario(self, name: str) -> Scenario:
        """By name. Raises `KeyError`."""
        found = next((one for one in self.scenarios if one.name == name), None)
        if found is None:
            raise KeyError(f"table {self.key} has no scenario {name!r}")
        return found
