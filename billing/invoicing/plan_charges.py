"""What plans and volume tiers make of a month's usage, as rows of an invoice beside those of the usage itself."""

from collections.abc import Callable, Sequence
from typing import Final

from billing.invoicing.compose import Facts, PlanCharge
from billing.invoicing.documents import UsageEntry
from billing.invoicing.minor_units import pico_of
from billing.prices.book import PriceBook
from billing.prices.plans import Plans, statement_of
from billing.prices.pricing import TIER_MARK, Bucket
from billing.prices.tiers import MonthSum, StatementKind, StatementLine
from billing.when import from_us, to_us

_VOLUME: Final = "Volume tiers"
_BUCKETS: Final = {
    Bucket.INPUT: "input tokens",
    Bucket.CACHED_INPUT: "cached input tokens",
    Bucket.CACHE_WRITE: "tokens written into the cache",
    Bucket.OUTPUT: "output tokens",
}


def plans_from(plans: Plans | None, book: PriceBook) -> Callable[[Facts], tuple[str, Sequence[PlanCharge]]]:
    """What `Drafting` asks for plans. It raises `PeriodInvalid` where a tenant with a plan is billed for no month."""

    def plan_of(facts: Facts) -> tuple[str, Sequence[PlanCharge]]:
        start, end = from_us(facts.period.start_us), from_us(facts.period.end_us)
        plan = None if plans is None else plans.plan_of(facts.tenant_id, start, end)
        if plan is not None and plan.currency != facts.currency:
            plan = None
        entries = sorted(facts.usage.entries, key=lambda entry: _order(entry, book))
        sums = [_sum(entry, book) for entry in entries]
        statement = statement_of(plan, sums, sum(one.pico for one in facts.corrections))
        charges = [_charge(line) for line in statement.lines if line.kind is not StatementKind.USAGE]
        return _VOLUME if plan is None else f"Plan: {plan.name}", charges

    return plan_of


def _sum(entry: UsageEntry, book: PriceBook) -> MonthSum:
    price = book.by_id(entry.price_id)
    return MonthSum(
        model=entry.model,
        price_id=entry.price_id,
        tokens=(entry.fresh_tokens, entry.cached_tokens, entry.written_tokens, entry.output_tokens),
        rates_pico=entry.rates,
        charged_pico=pico_of(entry.charged),
        volume_tiers=() if price is None else price.volume_tiers,
    )


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
            return "Monthly fee"
        case StatementKind.INCLUDED:
            return f"Included, of {over}: {bucket}{whose}"
        case StatementKind.OVERAGE:
            return f"Beyond {over} included: {bucket}{whose}"
        case StatementKind.VOLUME:
            return f"Beyond {over} a month: {bucket}{whose}, difference to the price"
        case _:
            return "Minimum commitment, what is missing to it"
