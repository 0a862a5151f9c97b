"""What a run would have cost the tenants: the server's prices and the server's arithmetic.

    answered requests -> fresh, cached, output tokens -> billing.charge -> full, charged, saved

Requests are charged one by one, as the server does: the tier of a prompt and the rule for cached tokens are its own.
Nothing is rounded. Only whole answers are billed; of one that was cut, nobody reported tokens.
"""

import math
from dataclasses import dataclass
from datetime import datetime

from billing import Buckets, Price, PriceBook, charge
from gateway.sim.records import Records


class PriceUnclear(Exception):
    """No model was named, and the price book has several, or none."""


@dataclass(frozen=True, slots=True)
class Bill:
    """Amounts in pico-units of the currency; None where there is no price: unknown is never zero."""

    currency: str | None
    full_pico: int | None
    charged_pico: int | None

    @property
    def saved_pico(self) -> int | None:
        """What caching took off."""
        return None if self.full_pico is None or self.charged_pico is None else self.full_pico - self.charged_pico


def price_of(book: PriceBook, model: str | None, when: datetime) -> Price | None:
    """The price of a model at that time, of the only one in the book where none is named; None where there is none.

    Raises `PriceUnclear`.
    """
    if model is None:
        models = sorted({price.model for price in book.prices})
        if not models:
            raise PriceUnclear("the price book has no model")
        if len(models) > 1:
            raise PriceUnclear(f"the price book has the models {', '.join(models)}: name one with --model")
        model = models[0]
    return book.price_at(model, when)


def bill_of(records: Records, price: Price | None) -> Bill:
    """The bill of all requests that were answered. O(requests)."""
    if price is None:
        return Bill(None, None, None)
    full = charged = 0
    for row, ended_s in enumerate(records.ended_s):
        if not math.isnan(ended_s):
            prompt, cached = records.prompt_tokens[row], records.cached_tokens[row]
            one = charge(Buckets(prompt - cached, cached, 0, records.output_tokens[row]), price)
            full += one.full_pico or 0
            charged += one.charged_pico or 0
    return Bill(price.currency, full, charged)
