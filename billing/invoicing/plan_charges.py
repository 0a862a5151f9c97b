"""What plans and volume tiers make of a month's usage, as rows of an invoice beside those of the usage itself.

What came late of an earlier month is at its price in rows of its own, and here is what the month's plan and tiers make
of that: the statement of the month with it, less the statement without it. So late tokens that the month included are
given back, and what was paid as missing to its minimum too.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from billing.invoicing.compose import Facts, LatePeriod, PlanCharge, Planned
from billing.invoicing.documents import UsageEntry
from billing.invoicing.minor_units import pico_of
from billing.prices.book import PriceBook
from billing.prices.plans import Plan, Plans, is_month, statement_of
from billing.prices.pricing import TIER_MARK, Bucket, VolumeTier
from billing.prices.tiers import MonthSum, StatementKind, StatementLine
from billing.when import from_us, to_us

FEE: Final = "Monthly fee"
"""The words of a plan's fee on an invoice, by which it is told from the other charges."""

_VOLUME: Final = "Volume tiers"
_NO_TIERS: Final = "Volume tiers are by the month: an invoice of another period is without them."
_BUCKETS: Final = {
    Bucket.INPUT: "input tokens",
    Bucket.CACHED_INPUT: "cached input tokens",
    Bucket.CACHE_WRITE: "tokens written into the cache",
    Bucket.OUTPUT: "output tokens",
}


def plans_from(plans: Plans | None, book: PriceBook) -> Callable[[Facts], Planned]:
    """What `Drafting` asks for plans. It raises `PeriodInvalid` where a tenant with a plan is billed for no month."""

    def plan_of(facts: Facts) -> Planned:
        start, end = from_us(facts.period.start_us), from_us(facts.period.end_us)
        plan = None if plans is None else plans.plan_of(facts.tenant_id, start, end)
        month = _Month.of(plan, facts, start, end)
        corrections_pico = sum(one.pico for one in facts.corrections)
        charges = month.charges(facts.usage.entries, corrections_pico, book)
        late = (charge for one in facts.late for charge in late_charges(one, facts))
        has_tiers = any(_tiers(entry, book) for entry in facts.usage.entries)
        notes = (_NO_TIERS,) if has_tiers and not month.has_tiers else ()
        return Planned(month.name, (*charges, *late), notes)

    def late_charges(late: LatePeriod, facts: Facts) -> Sequence[PlanCharge]:
        start, end = from_us(late.start_us), from_us(late.end_us)
        has_months = plans is not None and is_month(start, end, plans.timezone)
        plan = plans.plan_of(facts.tenant_id, start, end) if plans is not None and has_months else None
        month = _Month.of(plan, facts, start, end)
        before = month.charges(late.billed, late.corrections_pico, book)
        after = month.charges((*late.billed, *late.late), late.corrections_pico, book)
        return [replace(one, plan_name=month.name, of=late) for one in _beyond(after, before)]

    return plan_of


@dataclass(frozen=True, slots=True)
class _Month:
    """A tenant's terms: its plan, and volume tiers, which are of whole months alone."""

    plan: Plan | None
    has_tiers: bool

    @classmethod
    def of(cls, plan: Plan | None, facts: Facts, start: datetime, end: datetime) -> "_Month":
        """A plan in another currency is not of these facts. One that is has been looked for in a month."""
        has_tiers = plan is not None or is_month(start, end, facts.period.timezone)
        return cls(plan if plan is not None and plan.currency == facts.currency else None, has_tiers)

    @property
    def name(self) -> str:
        return _VOLUME if self.plan is None else f"Plan: {self.plan.name}"

    def charges(self, usage: Iterable[UsageEntry], corrections_pico: int, book: PriceBook) -> list[PlanCharge]:
        """What a statement over some usage has beside it."""
        entries = sorted(usage, key=lambda entry: _order(entry, book))
        sums = [_sum(entry, book, has_tiers=self.has_tiers) for entry in entries]
        statement = statement_of(self.plan, sums, corrections_pico)
        return [_charge(line) for line in statement.lines if line.kind is not StatementKind.USAGE]


def _beyond(after: Iterable[PlanCharge], before: Iterable[PlanCharge]) -> list[PlanCharge]:
    """What charges have become, less what they were; those that are the same are in none."""
    found: dict[tuple[str, int | None], PlanCharge] = {}
    for sign, charges in ((1, after), (-1, before)):
        for one in charges:
            key = one.description, one.rate_pico
            was = found.get(key, replace(one, pico=0, tokens=None if one.tokens is None else 0))
            tokens = None if was.tokens is None or one.tokens is None else was.tokens + sign * one.tokens
            found[key] = replace(was, pico=was.pico + sign * one.pico, tokens=tokens)
    return [one for one in found.values() if one.pico]


def _sum(entry: UsageEntry, book: PriceBook, *, has_tiers: bool) -> MonthSum:
    return MonthSum(
        model=entry.model,
        price_id=entry.price_id,
        tokens=(entry.fresh_tokens, entry.cached_tokens, entry.written_tokens, entry.output_tokens),
        rates_pico=entry.rates,
        charged_pico=pico_of(entry.charged),
        volume_tiers=_tiers(entry, book) if has_tiers else (),
    )


def _tiers(entry: UsageEntry, book: PriceBook) -> tuple[VolumeTier, ...]:
    price = book.by_id(entry.price_id)
    return () if price is None else price.volume_tiers


def _order(entry: UsageEntry, book: PriceBook) -> tuple[int, int, str, str]:
    """Volume tiers count by the periods of the prices, and within one from the shortest prompts up."""
    price = book.by_id(entry.price_id)
    _, _, over = entry.price_id.partition(TIER_MARK)
    since = 0 if price is None else to_us(price.valid_from)
    return since, int(over) if over.isdecimal() else 0, entry.model, entry.price_id


def _charge(line: StatementLine) -> PlanCharge:
    return PlanCharge(_words(line), line.pico, line.tokens, line.rate_pico)


def _words(line: StatementLine) -> str:
    bucket = "tokens" if line.bucket is None else _BUCKETS[line.bucket]
    whose = f", {line.model}" if line.model else ""
    over = f"{line.over_tokens or 0:,}"
    match line.kind:
        case StatementKind.FEE:
            return FEE
        case StatementKind.INCLUDED:
            return f"Included, of {over}: {bucket}{whose}"
        case StatementKind.OVERAGE:
            return f"Beyond {over} included: {bucket}{whose}"
        case StatementKind.VOLUME:
            return f"Beyond {over} a month: {bucket}{whose}, difference to the price"
        case _:
            return "Minimum commitment, what is missing to it"
