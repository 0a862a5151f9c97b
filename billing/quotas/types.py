"""The nouns of limits: who may use how much, what one request asks for, and what it is told.

    Quota                 a tenant's
    |- Allowance "t"      of the tenant, all its keys together
    `- Allowance "k:ID"   of one key
         |- requests and tokens per minute, requests at once
         `- Budget        money a calendar day or month, in a time zone   --(at a time)-->   Purse: one period of it

    Ask --> Granted | Refused | Unstarted          a request asks all of it at once, and gets all of it or nothing

Money is in micro-units (10^-6 of the currency) here: the counters are shared in Redis, whose scripts count in doubles,
and those are exact up to 2^53. Times of counters are milliseconds since 1970.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum, StrEnum
from typing import Final

MOST_MICRO: Final = 9_000 * 10**12
"""Largest budget, 9 billion units: below 2^53 micro-units."""

MICRO_PICO: Final = 10**6
"""Pico-units in a micro-unit."""


class Per(StrEnum):
    """The calendar period of a budget."""

    DAY = "day"
    MONTH = "month"


@dataclass(frozen=True, slots=True)
class Budget:
    """So much money in each calendar period of a time zone (an IANA name); `currency` None is the price book's."""

    amount_micro: int
    per: Per
    time_zone: str = "UTC"
    currency: str | None = None


@dataclass(frozen=True, slots=True)
class Allowance:
    """What one owner may use: the tenant (`key_id` None) or a key. None = no limit."""

    key_id: str | None = None
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    concurrent: int | None = None
    budgets: tuple[Budget, ...] = ()

    @property
    def owner(self) -> str:
        """Its name in the counters."""
        return "t" if self.key_id is None else f"k:{self.key_id}"

    @property
    def is_empty(self) -> bool:
        """Whether it limits nothing."""
        rates = (self.requests_per_minute, self.tokens_per_minute, self.concurrent)
        return not self.budgets and all(rate is None for rate in rates)


@dataclass(frozen=True, slots=True)
class Quota:
    """All limits that a request with one key is under: the tenant's first. `cached_permille` of a cached prompt token
    counts towards tokens per minute."""

    tenant_id: str
    allowances: tuple[Allowance, ...]
    cached_permille: int = 0

    @property
    def has_budget(self) -> bool:
        """Whether money is counted."""
        return any(one.budgets for one in self.allowances)


@dataclass(frozen=True, slots=True)
class Purse:
    """One period of a budget: [start, end), UTC. Equal names are one counter, whatever the limit."""

    key_id: str | None
    name: str
    limit_micro: int
    start: datetime
    end: datetime
    currency: str | None = None


@dataclass(frozen=True, slots=True)
class Ask:
    """What a request wants to have held. `tokens` are weighted; `micro` is what it is thought to cost."""

    request_id: str
    tenant_id: str
    allowances: tuple[Allowance, ...]
    purses: tuple[Purse, ...]
    tokens: int
    micro: int


class LimitKind(IntEnum):
    """Which limit refused; the numbers are those of `quota.lua`."""

    REQUESTS = 1
    TOKENS = 2
    CONCURRENT = 3
    BUDGET = 4
    """The period's money is spent."""
    BUDGET_HELD = 5
    """What is left of it is held for calls in flight."""


@dataclass(frozen=True, slots=True)
class Room:
    """What is left to one owner; None = no such limit. Resets are ms until nothing of the window is used."""

    requests_left: int | None
    requests_reset_ms: int
    tokens_left: int | None
    tokens_reset_ms: int


@dataclass(frozen=True, slots=True)
class Granted:
    """Held. One `Room` per allowance, spent and held micro-units per purse."""

    rooms: tuple[Room, ...]
    purses: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Refused:
    """Nothing is held. `at` is the place of the allowance, or of the purse, that refused; `wait_ms` after which asking
    again may help."""

    kind: LimitKind
    at: int
    wait_ms: int
    rooms: tuple[Room, ...]


@dataclass(frozen=True, slots=True)
class Unstarted:
    """Nothing is held: the counters of these purses (places in the ask) were never begun, or are lost."""

    places: tuple[int, ...]


Answer = Granted | Refused | Unstarted


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a request used in the end. None = unknown: then what was held counts. `committed_ms` is when the ledger had
    it: counters that were begun from the ledger later have it already."""

    request_id: str
    tenant_id: str
    purses: tuple[Purse, ...]
    tokens: int | None
    micro: int | None
    committed_ms: int


Spent = Mapping[str, int]
"""Micro-units spent by the name of a purse."""
