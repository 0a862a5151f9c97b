"""What is left of what was paid: revenue, cost of revenue and margin, of any grouping of `Who`. Pure.

    revenue      charged for requests opened in the period + corrections made in it + fees
    cost         busy: what its calls spent; loaded: with its share of the idle cost
    margin       revenue - cost                 token tax = cost / revenue         both with and without idle

Inference is cost of revenue, not an operating expense. Sums of groups are sums of the finest grain, so every grouping
adds up to the same totals. What is unknown is counted and not in the amounts: amounts of requests without a price, the
cost of calls without a rate and of interrupted requests. Revenue in another currency than the costs' is kept apart.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil
from typing import Generic, TypeVar

from billing.economics.account import Account
from billing.economics.rows import Earned, EarnedBy
from billing.economics.split import shared
from billing.economics.types import Spent, Who

Key = TypeVar("Key")
Grain = TypeVar("Grain")

HEAVIEST = Fraction(1, 10)
"""Flat plans lose on few: this part of the users, those who cost most, is shown apart."""


@dataclass(slots=True)
class Margin:
    """Sums of a group. `idle_*` are its shares of the idle cost, by what they were shared out along."""

    spent: Spent = field(default_factory=Spent)
    idle_fresh_pico: int = 0
    idle_cached_pico: int = 0
    idle_output_pico: int = 0
    idle_other_pico: int = 0
    earned: Earned = field(default_factory=Earned)
    """In the currency of the costs; counts and tokens of unpriced requests too."""
    fees_pico: int = 0
    foreign_pico: dict[str, int] = field(default_factory=dict)
    """Revenue in other currencies, which is in no margin."""

    @property
    def idle_pico(self) -> int:
        """Its share of the idle cost."""
        return self.idle_fresh_pico + self.idle_cached_pico + self.idle_output_pico + self.idle_other_pico

    @property
    def busy_pico(self) -> int:
        """Cost of revenue without idle time."""
        return self.spent.busy_pico

    @property
    def loaded_pico(self) -> int:
        """Cost of revenue with idle time."""
        return self.busy_pico + self.idle_pico

    @property
    def revenue_pico(self) -> int:
        """What was charged, corrections and fees included."""
        return self.earned.revenue_pico + self.fees_pico

    @property
    def busy_margin_pico(self) -> int:
        """Revenue less busy cost."""
        return self.revenue_pico - self.busy_pico

    @property
    def loaded_margin_pico(self) -> int:
        """Revenue less fully loaded cost."""
        return self.revenue_pico - self.loaded_pico

    def of_revenue(self, pico: int) -> float | None:
        """A part of the revenue; None where there is none."""
        return pico / self.revenue_pico if self.revenue_pico else None

    def add(self, other: "Margin") -> "Margin":
        """Take another's sums into this one; returns itself."""
        self.spent.add(other.spent)
        self.idle_fresh_pico += other.idle_fresh_pico
        self.idle_cached_pico += other.idle_cached_pico
        self.idle_output_pico += other.idle_output_pico
        self.idle_other_pico += other.idle_other_pico
        self.earned.add(other.earned)
        self.fees_pico += other.fees_pico
        for currency, pico in other.foreign_pico.items():
            self.foreign_pico[currency] = self.foreign_pico.get(currency, 0) + pico
        return self


Margins = dict[Who, Margin]


def margins(account: Account, earned: EarnedBy) -> Margins:
    """Cost and revenue at the finest grain."""
    found: Margins = {}
    for _, who, spent, idle_pico in account.lines():
        one = found.setdefault(who, Margin())
        one.spent.add(spent)
        if idle_pico:
            weights = (spent.fresh_pico, spent.cached_pico, spent.output_pico, spent.unmeasured_pico + spent.lost_pico)
            fresh, cached, output, other = shared(idle_pico, weights)
            one.idle_fresh_pico += fresh
            one.idle_cached_pico += cached
            one.idle_output_pico += output
            one.idle_other_pico += other
    for (who, currency), money in earned.items():
        one = found.setdefault(who, Margin())
        if currency is None or currency == account.currency:
            one.earned.add(money)
        else:
            one.add(Margin(earned=money.without_money(), foreign_pico={currency: money.revenue_pico}))
    return found


def grouped(found: Mapping[Grain, Margin], key_of: Callable[[Grain], Key | None]) -> dict[Key, Margin]:
    """Sums by a coarser key; those of which it is None are left out. O(found)."""
    groups: dict[Key, Margin] = {}
    for grain, one in found.items():
        key = key_of(grain)
        if key is not None:
            groups.setdefault(key, Margin()).add(one)
    return groups


def total(found: Iterable[Margin]) -> Margin:
    """The sum of all."""
    whole = Margin()
    for one in found:
        whole.add(one)
    return whole


@dataclass(frozen=True, slots=True)
class Decile(Generic[Key]):
    """The heaviest tenth of the users of something, at least one, by what they cost; and all the others."""

    keys: tuple[Key, ...]
    heaviest: Margin
    others: Margin
    others_count: int

    @property
    def cost_share(self) -> float | None:
        """Their part of the busy cost of all."""
        whole = self.heaviest.busy_pico + self.others.busy_pico
        return self.heaviest.busy_pico / whole if whole else None


def heaviest(users: Mapping[Key, Margin]) -> Decile[Key] | None:
    """None where there are no users. Of equal cost, the one that comes first in the mapping is the heavier."""
    if not users:
        return None
    ranked = sorted(users.items(), key=lambda user: -user[1].busy_pico)
    most = ceil(len(ranked) * HEAVIEST)
    top, rest = ranked[:most], ranked[most:]
    return Decile(
        keys=tuple(key for key, _ in top),
        heaviest=total(one for _, one in top),
        others=total(one for _, one in rest),
        others_count=len(rest),
    )
