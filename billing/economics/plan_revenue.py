"""What plans and volume tiers brought beside what requests were charged: the rows of an invoice that are no usage.

    plans_file, rows of the month --> the same statement as on the invoice --> fee + overage + minimum - included

A plan is by the month: of a period that is none, or is not over, what it brought is unknown, and said to be.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import chain

from billing.economics.report import PlanRevenue
from billing.economics.rows import Ledgers
from billing.errors import PeriodInvalid
from billing.invoicing.compose import Facts
from billing.invoicing.documents import Period
from billing.invoicing.ledger_usage import PeriodUsage, corrections_of, tenants_of, usage_of
from billing.invoicing.plan_charges import plans_from
from billing.prices.book import PriceBook
from billing.prices.plans import Plans
from billing.when import to_us

NO_PLAN = "(none)"


@dataclass(frozen=True, slots=True)
class PlanTerms:
    """Plans, the prices that their tenants have, and the currency that revenue is wanted in."""

    plans: Plans
    book: PriceBook
    currency: str


def plan_revenue(ledgers: Ledgers, terms: PlanTerms, start: datetime, end: datetime) -> Iterator[PlanRevenue]:
    """Of every tenant with a plan in [start, end), and of those without to whom volume tiers apply; sorted.

    None where the plan is in another currency, too. Raises `LedgerUnavailable`. Costs: a reading for each tenant.
    """
    used = (tenants_of(one, to_us(start), to_us(end)) for one in ledgers.connections)
    charges_of = plans_from(terms.plans, terms.book)
    for tenant_id in sorted({*chain.from_iterable(used), *terms.plans.tenants_of(start, end)}):
        had = _plans_of(terms.plans, tenant_id, start, end)
        try:
            charges = charges_of(_facts(ledgers, tenant_id, terms, start, end)).charges
        except PeriodInvalid:
            yield PlanRevenue(tenant_id, ", ".join(had), None)
            continue
        foreign = any(terms.plans.plans[plan_id].currency != terms.currency for plan_id in had)
        if had or charges:
            beside_pico = None if foreign else sum(one.pico for one in charges)
            yield PlanRevenue(tenant_id, ", ".join(had) or NO_PLAN, beside_pico)


def _facts(ledgers: Ledgers, tenant_id: str, terms: PlanTerms, start: datetime, end: datetime) -> Facts:
    about = (tenant_id, terms.currency, to_us(start), to_us(end))
    used = (usage_of(one, *about).entries for one in ledgers.connections)
    corrected = (corrections_of(one, *about) for one in ledgers.connections)
    return Facts(
        tenant_id=tenant_id,
        currency=terms.currency,
        period=Period(to_us(start), to_us(end), terms.plans.timezone, start.isoformat(), end.isoformat()),
        usage=PeriodUsage(entries=tuple(chain.from_iterable(used))),
        corrections=tuple({one.id: one for one in chain.from_iterable(corrected)}.values()),
    )


def _plans_of(plans: Plans, tenant_id: str, start: datetime, end: datetime) -> list[str]:
    """The plans that a tenant had in a period, one after another."""
    had = (
        one.plan_id
        for one in plans.assignments
        if one.tenant == tenant_id and one.valid_from < end and (one.valid_to is None or start < one.valid_to)
    )
    return list(dict.fromkeys(had))
