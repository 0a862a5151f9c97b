"""The price book: which price holds for a model, a tenant and a moment, and the YAML file it is written in.

    currency: USD
    prices:
      - model: llama-3.3-70b
        input_per_mtok: 0.60
        cached_input_ratio: 0.1          # or cached_input_per_mtok: 0.06
        output_per_mtok: 2.40
        from: 2026-11-01
        to: 2027-01-01                   # exclusive; absent = until further notice

    quote    the tenant's own price of the model, else the list price less the tenant's discount, else the list price

Every decimal is read as it is written, never through a float. Rates become whole pico-units a token when the file is
loaded, discounts applied; one that does not fit is an error, so that no rounding hides in a price. Periods are
half-open and must not overlap: each moment has one price of a model for a tenant or none, and one discount or none.
Look-up: O(log prices of the model + discounts of the tenant).
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Protocol

from billing.errors import PricesInvalid
from billing.prices.file import Discount, PriceFile, Terms, parse_prices, read_prices
from billing.prices.pricing import TERMS_MARK, TIER_MARK, BillCached, Price, Quote, named, scaled

_Whose = tuple[str | None, str]


class Prices(Protocol):
    """What the ledger asks of prices: one book, or whichever is in force."""

    @property
    def currency(self) -> str | None:
        """Of what has no price."""

    def quote(self, model: str, tenant: str | None, when: datetime) -> Quote:
        """What holds for a request opened at `when`."""


@dataclass(frozen=True)
class PriceBook:
    """Prices by model, tenant and time. Raises `PricesInvalid` where two contradict each other."""

    currency: str | None
    prices: tuple[Price, ...]
    terms: tuple[Terms, ...] = ()
    bill_cached: BillCached = BillCached.REPORTED
    _by_whose: dict[_Whose, list[Price]] = field(init=False, repr=False, compare=False, default_factory=dict)
    _discounted: dict[tuple[str, str], Price] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        _check_ids(self.prices)
        _check_ids(discount for terms in self.terms for discount in terms.discounts)
        for price in sorted(self.prices, key=lambda price: price.valid_from):
            of_model = self._by_whose.setdefault((price.tenant, price.model), [])
            if of_model:
                _check_disjoint(of_model[-1], price)
            of_model.append(price)
        for terms in self.terms:
            _check_discounts(terms.discounts)
            for discount in terms.discounts:
                self._apply(discount)

    @classmethod
    def load(cls, path: Path | str) -> "PriceBook":
        """Read a price file. Raises `PricesInvalid`, naming the file, the price and what would help."""
        return cls._of(read_prices(Path(path)))

    @classmethod
    def parse(cls, text: str, where: str = "the text given") -> "PriceBook":
        """Read the text of a price file. Raises `PricesInvalid`."""
        return cls._of(parse_prices(text, where))

    @classmethod
    def empty(cls) -> "PriceBook":
        """A book without prices: usage is recorded, every amount is unknown."""
        return cls(None, ())

    @classmethod
    def _of(cls, file: PriceFile) -> "PriceBook":
        return cls(file.currency, file.prices, file.terms, file.bill_cached)

    def price_at(self, model: str, when: datetime, tenant: str | None = None) -> Price | None:
        """The list price of `model` for a request opened at `when`, or what `tenant` has in its place; None = none."""
        of_model = self._by_whose.get((tenant, model))
        if of_model is None:
            return None
        price = of_model[-1]
        if when < price.valid_from:  # mostly it is the newest
            at = bisect_right(of_model, when, key=lambda price: price.valid_from)
            if not at:
                return None
            price = of_model[at - 1]
        return price if price.valid_to is None or when < price.valid_to else None

    def quote(self, model: str, tenant: str | None, when: datetime) -> Quote:
        """What `tenant` pays for a request opened at `when`, and what the list says."""
        on_list = self.price_at(model, when)
        if tenant is None:
            return Quote(on_list, on_list, self.bill_cached)
        terms = self._terms_of.get(tenant)
        policy = self.bill_cached if terms is None or terms.bill_cached is None else terms.bill_cached
        own = self.price_at(model, when, tenant)
        if own is not None:
            comparable = on_list is not None and on_list.currency == own.currency
            return Quote(own, on_list if comparable else own, policy)
        discount = None if terms is None else _discount_at(terms.discounts, model, when)
        if on_list is None or discount is None:
            return Quote(on_list, on_list, policy)
        return Quote(self._discounted[on_list.id, discount.id], on_list, policy)

    def by_id(self, price_id: str) -> Price | None:
        """The price that a row names, discounts and tier by context included; None where the book has it no more."""
        whole, _, over = price_id.partition(TIER_MARK)
        id_, _, discount_id = whole.partition(TERMS_MARK)
        found = self._discounted.get((id_, discount_id)) if discount_id else self._by_id.get(id_)
        if found is None or not over:
            return found
        return next((tier.price for tier in found.context_tiers if tier.price.id == price_id), None)

    @cached_property
    def _by_id(self) -> Mapping[str, Price]:
        return {price.id: price for price in self.prices}

    @cached_property
    def _terms_of(self) -> Mapping[str, Terms]:
        return {terms.tenant: terms for terms in self.terms}

    def _apply(self, discount: Discount) -> None:
        """Resolve the rates of a discount now, so that one that does not fit is an error of the file."""
        for price in self.prices:
            if price.tenant is None and _covers(discount, price.model) and _meet(discount, price):
                try:
                    less = scaled(price, 1 - discount.part)
                except ValueError as error:
                    raise PricesInvalid(f"discount {discount.id}", f"{error}; give a coarser percentage") from None
                self._discounted[price.id, discount.id] = named(less, f"{price.id}{TERMS_MARK}{discount.id}")


def _covers(discount: Discount, model: str) -> bool:
    return discount.models is None or model in discount.models


def _meet(one: Discount | Price, other: Discount | Price) -> bool:
    """Whether two periods share a moment."""
    return (one.valid_to is None or other.valid_from < one.valid_to) and (
        other.valid_to is None or one.valid_from < other.valid_to
    )


def _discount_at(discounts: Sequence[Discount], model: str, when: datetime) -> Discount | None:
    for one in discounts:
        if one.valid_from <= when and (one.valid_to is None or when < one.valid_to) and _covers(one, model):
            return one
    return None


def _check_ids(things: Iterable[Price | Discount]) -> None:
    seen: set[str] = set()
    for thing in things:
        if thing.id in seen:
            kind = "price" if isinstance(thing, Price) else "discount"
            raise PricesInvalid(f"{kind} {thing.id}", "its id is used twice; a bill names the id of its price")
        seen.add(thing.id)


def _check_disjoint(earlier: Price, later: Price) -> None:
    if earlier.valid_to is None or earlier.valid_to > later.valid_from:
        whose = "" if later.tenant is None else f" for tenant {later.tenant}"
        raise PricesInvalid(
            f"price {later.id}",
            f"overlaps {earlier.id} of model {later.model}{whose}; "
            f"end that one with `to: {later.valid_from.isoformat()}`",
        )


def _check_discounts(discounts: Sequence[Discount]) -> None:
    for one, other in combinations(discounts, 2):
        share = one.models is None or other.models is None or one.models & other.models
        if share and _meet(one, other):
            raise PricesInvalid(
                f"discount {other.id}", f"overlaps {one.id} of tenant {one.tenant}: a request has one discount at most"
            )
