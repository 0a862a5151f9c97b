"""What a period cost and what was left of it: the account, put together from a ledger, a costs file and prices."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from billing.economics.account import Account, account_of
from billing.economics.break_even import BreakEven, ComparedPrice, break_evens, mix_of
from billing.economics.discount import Discount, discounts
from billing.economics.fills import Fills
from billing.economics.margin import Margin, Margins, grouped, margins, total
from billing.economics.rates import CostBook
from billing.economics.rows import Ledgers
from billing.economics.types import Who
from billing.errors import PeriodInvalid


@dataclass(frozen=True, slots=True)
class PlanRevenue:
    """A tenant's plan, and what it brought in the period beside what its requests were charged; None unknown."""

    tenant_id: str
    plan_id: str
    beside_pico: int | None


@dataclass(frozen=True, slots=True)
class Assumptions:
    """What is no measurement: prices to compare with, and plans."""

    api_prices: Sequence[ComparedPrice] = ()
    plans: Sequence[PlanRevenue] = ()


@dataclass(frozen=True, slots=True)
class CostReport:
    """All of it. `fine` is at the finest grain; plan fees are in no sums but those by tenant and plan."""

    account: Account
    fine: Margins
    tenant_models: Mapping[tuple[str, str], Margin]
    """Sums by tenant and model."""
    users: Mapping[tuple[str, str | None], Margin]
    """Sums by tenant and end user; those who were not named are None."""
    plans: Mapping[str, PlanRevenue]
    fills: Fills
    discounts: Sequence[Discount]
    break_evens: Sequence[BreakEven]
    other_currency_prices: int

    def by_tenant(self) -> dict[str, Margin]:
        """Margins of tenants, plan fees included; also of those who have a plan and used nothing."""
        found = grouped(self.tenant_models, lambda key: key[0])
        for tenant_id, plan in self.plans.items():
            if plan.beside_pico is not None:
                found.setdefault(tenant_id, Margin()).fees_pico += plan.beside_pico
        return dict(sorted(found.items()))

    def whole(self) -> Margin:
        """All tenants together, plan fees included; idle cost that nobody bears is `account.unborne_pico` beside it."""
        return total(self.by_tenant().values())


def cost_report(
    ledgers: Ledgers, book: CostBook, start_us: int, end_us: int, assumed: Assumptions | None = None
) -> CostReport:
    """Account for [start_us, end_us). Raises `LedgerUnavailable`, and `PeriodInvalid` for one without length, or whose
    rows were archived."""
    _check(ledgers, start_us, end_us)
    assumed = assumed or Assumptions()
    account = account_of(book, start_us, end_us, ledgers.calls(start_us, end_us))
    fine = margins(account, ledgers.earned(start_us, end_us))
    tenant_models = grouped(fine, lambda who: (who.tenant_id, who.model))
    mix = mix_of(total(tenant_models.values()))
    return CostReport(
        account=account,
        fine=fine,
        tenant_models=tenant_models,
        users=grouped(fine, lambda who: (who.tenant_id, who.end_user)),
        plans={one.tenant_id: one for one in assumed.plans},
        fills=ledgers.fills(start_us, end_us),
        discounts=discounts(account),
        break_evens=break_evens(account, mix, assumed.api_prices),
        other_currency_prices=sum(one.currency != book.currency for one in assumed.api_prices),
    )


Job = tuple[str, str]
"""Tenant and job id."""


@dataclass(frozen=True, slots=True)
class JobReport:
    """The runs of agents in a period. `currency` is that of the costs, else of what was charged; empty for neither."""

    currency: str
    jobs: Mapping[Job, Margin]


def job_report(ledgers: Ledgers, book: CostBook | None, start_us: int, end_us: int) -> JobReport:
    """By tenant and job; calls that named no job are in none. Without a book there are no costs, which is no zero.

    Raises as `cost_report` does.
    """
    _check(ledgers, start_us, end_us)
    earned = ledgers.earned(start_us, end_us)
    if book is None:
        currencies = (currency for _, currency in earned if currency is not None)
        account = account_of(CostBook(next(currencies, ""), ()), start_us, end_us, ())
    else:
        account = account_of(book, start_us, end_us, ledgers.calls(start_us, end_us))
    return JobReport(account.currency, grouped(margins(account, earned), _job_of))


def _job_of(who: Who) -> Job | None:
    return None if who.job_id is None else (who.tenant_id, who.job_id)


def _check(ledgers: Ledgers, start_us: int, end_us: int) -> None:
    if end_us <= start_us:
        raise PeriodInvalid("the period", "it must have begun")
    ledgers.need_rows(start_us, end_us)
