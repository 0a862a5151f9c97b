"""Calendar periods of budgets: the day or month that a time lies in, in a time zone. Pure.

A day is from local midnight to local midnight, so it has 23 or 25 hours when clocks change. Where a zone skips midnight
itself, the day begins with the first instant of that date.
"""

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from billing.quotas.types import Allowance, Budget, Per, Purse

_MOST_KEPT = 4096


@dataclass(frozen=True, slots=True)
class _Kept:
    """Purses that are the same from `start` on, before `end`."""

    allowances: tuple[Allowance, ...]
    purses: tuple[Purse, ...]
    start: datetime
    end: datetime


class Periods:
    """Purses, remembered while all their periods last: of one key they are one object then, found by a comparison.

    Allowances are known by identity: those of a key are one object until the keys file is changed.
    """

    def __init__(self) -> None:
        self._kept: dict[int, _Kept] = {}

    def purses_of(self, allowances: tuple[Allowance, ...], at: datetime) -> tuple[Purse, ...]:
        """The period of each budget that `at` lies in, as the function of this name has it."""
        kept = self._kept.get(id(allowances))
        if kept is None or kept.allowances is not allowances or not kept.start <= at < kept.end:
            if len(self._kept) >= _MOST_KEPT:
                self._kept.clear()
            purses = purses_of(allowances, at)
            start = max((purse.start for purse in purses), default=at)
            end = min((purse.end for purse in purses), default=at)
            kept = self._kept[id(allowances)] = _Kept(allowances, purses, start, end)
        return kept.purses


def purses_of(allowances: tuple[Allowance, ...], at: datetime) -> tuple[Purse, ...]:
    """The period of each budget that `at` lies in, the tenant's before the key's."""
    return tuple(_purse(one.key_id, one.owner, budget, at) for one in allowances for budget in one.budgets)


@lru_cache(maxsize=4096)
def period_of(per: Per, time_zone: str, day: date) -> tuple[datetime, datetime]:
    """First instant, and first after it, of the period that a local date lies in; UTC."""
    zone = ZoneInfo(time_zone)
    if per is Per.DAY:
        first, last = day, day + timedelta(days=1)
    else:
        first = day.replace(day=1)
        last = (first + timedelta(days=31)).replace(day=1)
    return _first_instant(first, zone), _first_instant(last, zone)


def _purse(key_id: str | None, owner: str, budget: Budget, at: datetime) -> Purse:
    local = at.astimezone(ZoneInfo(budget.time_zone)).date()
    start, end = period_of(budget.per, budget.time_zone, local)
    name = f"{owner}:{budget.per.value}:{budget.time_zone}:{local:%Y%m%d}"
    if budget.per is Per.MONTH:
        name = name[:-2]
    if budget.currency is not None:
        name = f"{name}:{budget.currency}"
    return Purse(key_id, name, budget.amount_micro, start, end, budget.currency)


def _first_instant(day: date, zone: ZoneInfo) -> datetime:
    # fold=0 in a gap is the offset before it: as an instant that is later than the gap, by its length at most.
    start = datetime.combine(day, time(), zone).astimezone(UTC)
    skipped = start.astimezone(zone)
    while skipped.date() == day and skipped.time() > time():  # midnight was skipped: back to the first of the date
        start -= timedelta(minutes=15)
        skipped = start.astimezone(zone)
    return start if skipped.date() == day else start + timedelta(minutes=15)
