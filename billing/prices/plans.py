"""Plans: a fee, what it includes, what is beyond, and a minimum. Pure.

    fee          of the month
    usage        what requests were charged, each at the rates in its row
    included     - tokens of a bucket, up to so many: the dearest first, as they are given back at what they cost
                 - or a pool of weighted tokens, which replaces the prices of all that it covers
    overage      beyond them, where the plan has a rate of its own; else the price holds
    volume       tiers of the prices, for tokens that are neither included nor at a plan's own rate
    commitment   what usage, included, overage, volume and corrections leave of the minimum

    bill = the sum of the lines, in whole pico-units

A token is given back or priced anew at most once, so no usage becomes negative. The fee does not count towards the
minimum.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from fractions import Fraction
from math import ceil, floor
from zoneinfo import ZoneInfo

from billing.errors import PeriodInvalid
from billing.prices.pricing import Bucket
from billing.prices.tiers import BUCKETS, Heaps, MonthSum, StatementKind, StatementLine, volume_lines
from billing.when import to_us


class Proration(StrEnum):
    """What a tenant pays of a month in which its plan began or ended."""

    WHOLE = "whole"
    SHARE = "share"
    """The share of the month in which it had the plan; of the fee and the minimum rounded down, of tokens up."""


@dataclass(frozen=True, slots=True)
class Allowance:
    """Tokens of a bucket that a plan includes, of some models (None = all); beyond them at its own rate, if any."""

    bucket: Bucket
    tokens: int
    models: frozenset[str] | None = None
    overage_pico: int | None = None

    def covers(self, model: str) -> bool:
        """Whether tokens of the model count."""
        return self.models is None or model in self.models


@dataclass(frozen=True, slots=True)
class Pool:
    """Weighted tokens that a plan includes, and the rate of each beyond; `weights` by bucket, in their order.

    The rate is a multiple of the common denominator of the weights, so that every amount is whole.
    """

    tokens: int
    weights: tuple[Fraction, Fraction, Fraction, Fraction]
    overage_pico: int
    models: frozenset[str] | None = None

    def covers(self, model: str) -> bool:
        """Whether tokens of the model count."""
        return self.models is None or model in self.models

    def weighted(self, tokens: Heaps) -> Fraction:
        """Tokens of each bucket as weighted tokens."""
        return sum((weight * count for weight, count in zip(self.weights, tokens, strict=True)), Fraction(0))


@dataclass(frozen=True, slots=True)
class Plan:
    """What a tenant pays for a month, whatever it uses, and what it has for that."""

    id: str
    name: str
    currency: str
    monthly_fee_pico: int = 0
    minimum_pico: int = 0
    included: tuple[Allowance, ...] = ()
    pool: Pool | None = None
    proration: Proration = Proration.WHOLE

    def part(self, share: Fraction) -> "Plan":
        """The plan of a share of a month, rounded in the tenant's favour."""
        if share == 1 or self.proration is Proration.WHOLE:
            return self
        return replace(
            self,
            monthly_fee_pico=floor(self.monthly_fee_pico * share),
            minimum_pico=floor(self.minimum_pico * share),
            included=tuple(replace(one, tokens=ceil(one.tokens * share)) for one in self.included),
            pool=None if self.pool is None else replace(self.pool, tokens=ceil(self.pool.tokens * share)),
        )


@dataclass(frozen=True, slots=True)
class Assignment:
    """A tenant has a plan in [valid_from, valid_to)."""

    tenant: str
    plan_id: str
    valid_from: datetime
    valid_to: datetime | None = None


@dataclass(frozen=True, slots=True)
class Plans:
    """All plans, who has which, and the time zone of their months."""

    plans: Mapping[str, Plan]
    assignments: tuple[Assignment, ...] = ()
    timezone: str = "UTC"

    def plan_of(self, tenant: str, start: datetime, end: datetime) -> Plan | None:
        """The plan of a tenant in the month [start, end), its share of it; None where it has none.

        Raises `PeriodInvalid` where it has one and that is no calendar month in the time zone of the plans.
        """
        for one in self.assignments:
            begins, ends = max(one.valid_from, start), end if one.valid_to is None else min(one.valid_to, end)
            if one.tenant == tenant and begins < ends:
                if not is_month(start, end, self.timezone):
                    raise self._no_month(one, start, end)
                share = Fraction(to_us(ends) - to_us(begins), to_us(end) - to_us(start))
                return self.plans[one.plan_id].part(share)
        return None

    def _no_month(self, one: Assignment, start: datetime, end: datetime) -> PeriodInvalid:
        first, after = (_local_text(at, self.timezone) for at in (start, end))
        return PeriodInvalid(
            f"{first} to {after}",
            f"tenant {one.tenant} has plan {one.plan_id}, which is by the month in {self.timezone}: bill the whole "
            f"month, {first[:7]}, with a seller whose `timezone` is that of the plans",
        )

    def tenants_of(self, start: datetime, end: datetime) -> frozenset[str]:
        """Who has a plan at some time in [start, end), used or not."""
        return frozenset(
            one.tenant
            for one in self.assignments
            if one.valid_from < end and (one.valid_to is None or start < one.valid_to)
        )


@dataclass(frozen=True, slots=True)
class Statement:
    """A tenant's month in one currency: lines that add up to `pico`."""

    lines: tuple[StatementLine, ...]

    @property
    def pico(self) -> int:
        """What is to be paid, before tax and corrections."""
        return sum(line.pico for line in self.lines)

    def of(self, *kinds: StatementKind) -> int:
        """The sum of the lines of some kinds."""
        return sum(line.pico for line in self.lines if line.kind in kinds)


def statement_of(plan: Plan | None, sums: Sequence[MonthSum], corrections_pico: int = 0) -> Statement:
    """The bill of a month. Without a plan it is the usage and its volume tiers. O(sums × (allowances + tiers)).

    `sums` are in the order in which volume tiers count them. Corrections are lines of their own elsewhere; here they
    only count towards the minimum.
    """
    usage = [
        StatementLine(StatementKind.USAGE, one.charged_pico, one.model, one.price_id)
        for one in sums
        if one.charged_pico
    ]
    if plan is None:
        return Statement((*usage, *volume_lines(sums)))
    left = [one.tokens for one in sums]
    lines = [*usage, *_pooled(plan.pool, sums, left)]
    for allowance in plan.included:
        lines += _allowed(allowance, sums, left)
    lines += volume_lines(sums, left)
    missing = plan.minimum_pico - sum(line.pico for line in lines) - corrections_pico
    if missing > 0:
        lines.append(StatementLine(StatementKind.COMMITMENT, missing))
    if plan.monthly_fee_pico:
        lines.insert(0, StatementLine(StatementKind.FEE, plan.monthly_fee_pico))
    return Statement(tuple(lines))


def is_month(start: datetime, end: datetime, timezone: str) -> bool:
    """Whether [start, end) is a calendar month in a time zone."""
    if not (begins_month(start, timezone) and begins_month(end, timezone)):
        return False
    first, after = (at.astimezone(ZoneInfo(timezone)) for at in (start, end))
    return (first.year + first.month // 12, first.month % 12 + 1) == (after.year, after.month)


def begins_month(when: datetime, timezone: str) -> bool:
    """Whether a moment is the first of a month in a time zone; none is where that zone has no calendar left."""
    try:
        local = when.astimezone(ZoneInfo(timezone))
    except OverflowError:
        return False
    return to_us(when) == to_us(datetime(local.year, local.month, 1, tzinfo=ZoneInfo(timezone)))


def _local_text(when: datetime, timezone: str) -> str:
    with suppress(OverflowError):  # a time that is none there is shown as it was given
        when = when.astimezone(ZoneInfo(timezone))
    return f"{when:%Y-%m-%d %H:%M}"


def _pooled(pool: Pool | None, sums: Sequence[MonthSum], left: list[Heaps]) -> list[StatementLine]:
    """Give back what the pool covers, and charge what is beyond it; takes the covered tokens out of `left`."""
    if pool is None:
        return []
    lines, used = [], Fraction(0)
    for number, one in enumerate(sums):
        if pool.covers(one.model):
            used += pool.weighted(one.tokens)
            left[number] = (0, 0, 0, 0)
            given_back = -sum(count * rate for count, rate in zip(one.tokens, one.rates_pico, strict=True))
            if given_back:
                kind = StatementKind.INCLUDED
                lines.append(StatementLine(kind, given_back, one.model, one.price_id, over_tokens=pool.tokens))
    beyond = used - pool.tokens
    if beyond > 0:
        whole = beyond.numerator if beyond.denominator == 1 else None
        amount = beyond * pool.overage_pico
        assert amount.denominator == 1, "the rate is a multiple of the denominators of the weights"
        lines.append(
            StatementLine(
                StatementKind.OVERAGE,
                amount.numerator,
                tokens=whole,
                rate_pico=None if whole is None else pool.overage_pico,
                over_tokens=pool.tokens,
            )
        )
    return lines


def _allowed(allowance: Allowance, sums: Sequence[MonthSum], left: list[Heaps]) -> list[StatementLine]:
    """Give back what is included, the dearest first; takes what is included or priced anew out of `left`."""
    place = BUCKETS.index(allowance.bucket)
    covered = [number for number, one in enumerate(sums) if allowance.covers(one.model)]
    rest, lines = allowance.tokens, []
    for number in sorted(covered, key=lambda number: -sums[number].rates_pico[place]):
        tokens, rate = left[number][place], sums[number].rates_pico[place]
        given = min(rest, tokens)
        rest -= given
        lines.append(_line(StatementKind.INCLUDED, allowance, sums[number], given, -rate))
        tokens -= given
        if allowance.overage_pico is not None:
            lines.append(_line(StatementKind.OVERAGE, allowance, sums[number], tokens, allowance.overage_pico - rate))
            tokens = 0
        heaps = list(left[number])
        heaps[place] = tokens
        left[number] = (heaps[0], heaps[1], heaps[2], heaps[3])
    return [line for line in lines if line.pico]


def _line(kind: StatementKind, allowance: Allowance, of: MonthSum, tokens: int, rate_pico: int) -> StatementLine:
    return StatementLine(
        kind=kind,
        pico=tokens * rate_pico,
        model=of.model,
        price_id=of.price_id,
        bucket=allowance.bucket,
        tokens=tokens,
        rate_pico=rate_pico,
        over_tokens=allowance.tokens,
    )
