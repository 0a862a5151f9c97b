"""What is allowed in a price book and yet may be a slip: said by `prefixgate prices check`, refused by nobody. Pure."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise

from billing.prices.book import PriceBook
from billing.prices.pricing import Price
from billing.prices.view import per_mtok

DEAR_PER_MTOK = 1_000
"""Units of a currency of two decimal places: above it an input price is looked at twice."""

_DEAR_PICO = DEAR_PER_MTOK * 10**6
_DEAR_CURRENCIES = frozenset({"USD", "EUR", "GBP", "CHF"})


def advice(book: PriceBook, now: datetime) -> Sequence[str]:
    """A sentence for each thing that may be a slip. O(prices)."""
    found = []
    by_whose: dict[tuple[str, str], list[Price]] = defaultdict(list)
    for price in book.prices:
        by_whose[price.model, price.tenant or ""].append(price)
        found += _of_one(price)
    for (model, tenant), prices in sorted(by_whose.items()):
        whose = f"{model}, tenant {tenant}" if tenant else model
        prices.sort(key=lambda price: price.valid_from)
        for earlier, later in pairwise(prices):
            if earlier.valid_to is not None and earlier.valid_to < later.valid_from:
                gap = f"{earlier.valid_to.isoformat()} to {later.valid_from.isoformat()}"
                found.append(f"{whose}: no price from {gap}" + ("; the list price holds" if tenant else ""))
        if not tenant and book.price_at(model, now) is None:
            found.append(f"{whose}: no list price now; requests are recorded without an amount")
    listed = {price.model for price in book.prices}
    for terms in book.terms:
        for discount in terms.discounts:
            for model in sorted((discount.models or frozenset()) - listed):
                found.append(f"discount {discount.id}: there is no price of {model}")
    return found


def _of_one(price: Price) -> list[str]:
    found = []
    if price.cached_input_pico is None:
        found.append(f"{price.id}: no cached rate, so cached tokens cost what fresh ones do")
    if price.currency in _DEAR_CURRENCIES and price.input_pico > _DEAR_PICO:
        found.append(
            f"{price.id}: {per_mtok(price.input_pico)} {price.currency} per million input tokens; is it right?"
        )
    return found
