"""Budgets and plans in another currency than the prices beside them: said by `check` and `prices check`. Pure.

A budget counts no other currency than its own, so a model with a price in another is refused to who has the budget; a
plan includes no usage in another currency.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from billing import PriceBook
from billing.prices.plans import Plans
from billing.quotas.types import Allowance
from gateway.keys_file import DefaultsEntry, KeyEntry, KeysFile, TenantEntry
from gateway.types import Scopes

_MOST_MODELS = 3


@dataclass(frozen=True, slots=True)
class Money:
    """All files in which amounts have a currency, and `quota.unpriced`."""

    book: PriceBook
    keys: KeysFile | None
    plans: Plans | None
    unpriced: Literal["deny", "allow"] = "deny"


def currency_advice(money: Money, now: datetime) -> Sequence[str]:
    """A sentence for each that meets a price in another currency now. O(keys × models)."""
    return [*_of_budgets(money, now), *_of_plans(money, now)]


def _of_budgets(money: Money, now: datetime) -> Iterable[str]:
    if money.keys is None:
        return
    for tenant in money.keys.tenants:
        priced = _priced(money.book, tenant.id, now)
        working = _working(tenant)
        of_tenant = tenant.allowance(None, money.keys.defaults)
        yield from _of_one(f"tenant {tenant.id}", of_tenant, _usable(priced, working), money)
        for key in working:
            allowance = key.allowance(key.id, DefaultsEntry())
            yield from _of_one(f"key {key.id}", allowance, _usable(priced, [key]), money)


def _of_one(whose: str, allowance: Allowance, usable: Mapping[str, str], money: Money) -> Iterable[str]:
    meant = {budget.currency or money.book.currency for budget in allowance.budgets}
    effect = (
        "requests for it are refused with 403 model_not_priced"
        if money.unpriced == "deny"
        else "requests for it do not count towards the budget"
    )
    for currency in sorted(one for one in meant if one is not None):
        for other, models in _others(usable, currency):
            yield (
                f"the budget of {whose} is in {currency}, its price of {models} in {other}: {effect}; "
                "give the budget the currency of the price"
            )


def _of_plans(money: Money, now: datetime) -> Iterable[str]:
    if money.plans is None:
        return
    for one in money.plans.assignments:
        if one.valid_to is not None and one.valid_to <= now:
            continue
        plan = money.plans.plans[one.plan_id]
        at = max(now, one.valid_from)
        usable = _priced(money.book, one.tenant, at)
        found = None if money.keys is None else next((t for t in money.keys.tenants if t.id == one.tenant), None)
        if found is not None:
            usable = _usable(usable, _working(found))
        for other, models in _others(usable, plan.currency):
            yield (
                f"plan {plan.id} of tenant {one.tenant} is in {plan.currency}, its price of {models} in {other}: "
                "the plan includes none of that usage, which is on an invoice of its own"
            )


def _priced(book: PriceBook, tenant: str, at: datetime) -> Mapping[str, str]:
    """The currency in which a tenant pays for each model that has a price."""
    quotes = {model: book.quote(model, tenant, at).price for model in sorted({price.model for price in book.prices})}
    return {model: price.currency for model, price in quotes.items() if price is not None}


def _working(tenant: TenantEntry) -> Sequence[KeyEntry]:
    return [key for key in tenant.keys if not (tenant.disabled or key.disabled)]


def _usable(priced: Mapping[str, str], keys: Sequence[KeyEntry]) -> Mapping[str, str]:
    """The models that one of the keys may use."""
    scopes = [key.scopes.scopes() or Scopes() for key in keys]
    return {model: currency for model, currency in priced.items() if any(one.allow_model(model) for one in scopes)}


def _others(usable: Mapping[str, str], currency: str) -> Iterable[tuple[str, str]]:
    """Each other currency, and the models that have a price in it."""
    found: dict[str, list[str]] = defaultdict(list)
    for model, has in usable.items():
        if has != currency:
            found[has].append(model)
    for other, models in sorted(found.items()):
        more = f" and {len(models) - _MOST_MODELS} more" if len(models) > _MOST_MODELS else ""
        yield other, ", ".join(models[:_MOST_MODELS]) + more
