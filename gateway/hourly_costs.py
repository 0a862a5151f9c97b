"""What endpoints cost an hour: by the costs file, else as whoever lists them says.

    costs_file   gpu-a  8 GPUs of 2.50                 the rate that is valid now
    listings     pod-7  prefixgate.io/gpu-cost-per-hour: "2.50"     where the file has no rate of it at all

All in the currency of the file. What is listed is a price as of now: reports take it for all of their period, since who
is listed by a cluster has a name of its own for as long as it lives.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Final

from billing.economics import CostBook, EndpointRate
from billing.money import PICO
from billing.when import to_us

LISTED: Final = "as listed"
"""Kind of GPU in reports, where a listing says no more than a price."""

Listed = Callable[[str], str | None]
"""The price an hour of an endpoint as a listing has it, decimal text; None where it has none."""


class HourlyCosts:
    """Prices as of now, for decisions. `listed` is asked for endpoints that the file does not have."""

    def __init__(self, costs_file: Path | None, wall: Callable[[], datetime]) -> None:
        """Reads the file. Raises `CostsInvalid`."""
        self._book = None if costs_file is None else CostBook.load(costs_file)
        self._wall = wall
        self.listed: Listed = lambda _: None

    def per_hour(self, endpoint_id: str) -> float | None:
        """The price of an endpoint now; None where nobody says. O(log rates)."""
        book = self._book
        if book is not None and endpoint_id in book:
            rate = book.rate_at(endpoint_id, to_us(self._wall()))
            return None if rate is None else float(rate.pico_per_hour / PICO)
        said = self.listed(endpoint_id)
        return None if said is None else float(said)


def with_listed(book: CostBook, endpoint_ids: Iterable[str], listed: Listed) -> CostBook:
    """The book, and the listed prices of endpoints that it has no rate of."""
    said = ((one, listed(one)) for one in endpoint_ids if one not in book)
    rates = [_rate(one, price) for one, price in said if price is not None]
    return replace(book, rates=(*book.rates, *rates)) if rates else book


def _rate(endpoint_id: str, price: str) -> EndpointRate:
    return EndpointRate(
        endpoint_id=endpoint_id,
        gpu_type=LISTED,
        gpus=1,
        pico_per_hour=Fraction(Decimal(price)) * PICO,
        owned=False,
        valid_from=datetime(1970, 1, 1, tzinfo=UTC),
    )
