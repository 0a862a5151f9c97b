"""What backends serve and nobody has said the price or the cost of: said by `prefixgate check`. Pure.

Otherwise it is seen at the end of the month, in a report full of `unpriced`. A price book copied from an example, or
costs by other ids than those of the backends, are no error of their files.
"""

from collections.abc import Collection, Iterator
from datetime import datetime
from itertools import islice

from billing import PriceBook
from billing.economics import CostBook
from billing.when import to_us
from gateway.keys_file import DefaultsEntry, KeysFile

_MOST_NAMES = 3


def unpriced(book: PriceBook, served: Collection[str], now: datetime) -> Iterator[str]:
    """A sentence where models that are served have no price now, on the list or of any tenant. O(prices + models).

    `served` are the names that backends answer to; where there are none, none is missed.
    """
    priced = {
        one.model for one in book.prices if one.valid_from <= now and (one.valid_to is None or now < one.valid_to)
    }
    missing = sorted(set(served) - priced)
    if missing:
        idle = sorted(priced - set(served))
        instead = f"; the price book has {_names(idle)}, which no backend here serves" if idle else ""
        yield f"no price of {_names(missing)} now: requests are recorded without an amount{instead}"


def unpayable(keys: KeysFile) -> Iterator[str]:
    """A sentence where there are budgets, but no price book: such a key can ask for nothing. O(keys)."""
    budgeted = [one.id for one in keys.tenants if one.allowance(None, keys.defaults).budgets]
    budgeted += [key.id for one in keys.tenants for key in one.keys if key.allowance(key.id, DefaultsEntry()).budgets]
    if budgeted:
        yield (
            f"a budget of {_names(sorted(set(budgeted)))}, but no prices: each request under it is refused with 403 "
            "model_not_priced; give prices_file"
        )


def unrated(costs: CostBook, endpoints: Collection[str], now: datetime) -> Iterator[str]:
    """A sentence where endpoints have no rate now. O(endpoints)."""
    missing = sorted(one for one in endpoints if costs.rate_at(one, to_us(now)) is None)
    if missing:
        others = sorted(set(costs.endpoint_ids) - set(endpoints))
        instead = f"; the costs file has {_names(others)}, but no backend here is called so" if others else ""
        yield f"no cost of the endpoint {_names(missing)} now: it is unknown what its tokens cost{instead}"


def _names(names: Collection[str]) -> str:
    more = len(names) - _MOST_NAMES
    return ", ".join(islice(names, _MOST_NAMES)) + (f" and {more} more" if more > 0 else "")
