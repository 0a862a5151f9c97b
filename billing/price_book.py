"""The price book: which price holds for a model at a time, and the YAML file it is written in.

    currency: USD
    prices:
      - model: llama-3.3-70b
        input_per_mtok: 0.60
        cached_input_ratio: 0.1          # or cached_input_per_mtok: 0.06
        output_per_mtok: 2.40
        from: 2026-11-01
        to: 2027-01-01                   # exclusive; absent = until further notice

Every decimal is read as it is written, never through a float. Rates become whole pico-units a token when the file is
loaded; one that does not fit is an error, so that no rounding hides in a price. Periods of one model are half-open and
must not overlap: each moment has one price or none. Look-up: O(log prices of the model).
"""

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from billing.errors import PricesInvalid
from billing.price_file import read_prices
from billing.pricing import Price


@dataclass(frozen=True, slots=True)
class PriceBook:
    """Prices by model and time, in one currency. Raises `PricesInvalid` where two contradict each other."""

    currency: str | None
    prices: tuple[Price, ...]
    _by_model: dict[str, list[Price]] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        _check_ids(self.prices)
        for price in sorted(self.prices, key=lambda price: price.valid_from):
            of_model = self._by_model.setdefault(price.model, [])
            if of_model:
                _check_disjoint(of_model[-1], price)
            of_model.append(price)

    @classmethod
    def load(cls, path: Path | str) -> "PriceBook":
        """Read a price file. Raises `PricesInvalid`, naming the file, the price and what would help."""
        return cls(*read_prices(Path(path)))

    @classmethod
    def empty(cls) -> "PriceBook":
        """A book without prices: usage is recorded, every amount is unknown."""
        return cls(None, ())

    def price_at(self, model: str, when: datetime) -> Price | None:
        """The price of `model` for a request opened at `when`; None where the book has none."""
        of_model = self._by_model.get(model, [])
        at = bisect_right(of_model, when, key=lambda price: price.valid_from)
        if not at:
            return None
        price = of_model[at - 1]
        return price if price.valid_to is None or when < price.valid_to else None


def _check_ids(prices: Iterable[Price]) -> None:
    seen: set[str] = set()
    for price in prices:
        if price.id in seen:
            raise PricesInvalid(f"price {price.id}", "its id is used twice; a bill names the id of its price")
        seen.add(price.id)


def _check_disjoint(earlier: Price, later: Price) -> None:
    if earlier.valid_to is None or earlier.valid_to > later.valid_from:
        raise PricesInvalid(
            f"price {later.id}",
            f"overlaps {earlier.id} of model {later.model}; end that one with `to: {later.valid_from.isoformat()}`",
        )
