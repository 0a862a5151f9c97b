"""Prices as people read them: amounts per million tokens as exact text, in mappings ready for JSON. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from billing.money import PICO, TOKENS_PER_PRICE
from billing.prices.book import PriceBook
from billing.prices.file import Discount
from billing.prices.pricing import Price, Quote

_STEP = PICO // TOKENS_PER_PRICE


class ChangeKind(StrEnum):
    """What an edit did."""

    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True)
class Change:
    """What one edit of a price file means. `had_begun`: requests may have been billed by what was there before."""

    what: str
    kind: ChangeKind
    had_begun: bool


def per_mtok(pico: int) -> str:
    """A rate of pico-units a token per million tokens: 600,000 is `0.6`."""
    units, rest = divmod(pico, _STEP)
    return f"{units}.{rest:06d}".rstrip("0").rstrip(".")


def price_view(price: Price) -> dict[str, object]:
    """All of a price. A rate that it does not have is None, and billed at the input price."""
    return {
        "id": price.id,
        "model": price.model,
        "tenant": price.tenant,
        "from": price.valid_from.isoformat(),
        "to": None if price.valid_to is None else price.valid_to.isoformat(),
        **rates_view(price),
        "context_tiers": [
            {"id": tier.price.id, "over_prompt_tokens": tier.over_prompt_tokens, **rates_view(tier.price)}
            for tier in price.context_tiers
        ],
    }


def rates_view(price: Price) -> dict[str, object]:
    """Rates, currency, the rule for cached tokens and tiers by volume."""
    return {
        "currency": price.currency,
        **{f"{bucket}_per_mtok": None if pico is None else per_mtok(pico) for bucket, pico in price.rates.items()},
        "min_cached_tokens": price.cached_rule.minimum_tokens,
        "cached_step_tokens": price.cached_rule.step_tokens,
        "volume_tiers": [
            {"bucket": tier.bucket.value, "over_tokens": tier.over_tokens, "per_mtok": per_mtok(tier.rate_pico)}
            for tier in price.volume_tiers
        ],
    }


def book_view(book: PriceBook) -> dict[str, object]:
    """A whole price book."""
    return {
        "currency": book.currency,
        "bill_cached": book.bill_cached.value,
        "prices": [price_view(price) for price in book.prices],
        "tenants": {
            terms.tenant: {
                "bill_cached": (terms.bill_cached or book.bill_cached).value,
                "discounts": [_discount_view(discount) for discount in terms.discounts],
            }
            for terms in book.terms
        },
    }


def quote_view(quote: Quote, prompt_tokens: int | None) -> dict[str, object]:
    """What a tenant pays, beside the list; with `prompt_tokens`, in the tier of such a prompt."""

    def shown(price: Price | None) -> dict[str, object] | None:
        if price is None:
            return None
        return price_view(price if prompt_tokens is None else price.for_prompt(prompt_tokens))

    return {"bill_cached": quote.bill_cached.value, "price": shown(quote.price), "list": shown(quote.list_price)}


def changes(old: PriceBook, new: PriceBook, now: datetime) -> Sequence[Change]:
    """What is different in a book, by the ids of prices and discounts, and by tenants. O(prices)."""
    before, after = _things(old), _things(new)
    found = []
    for what in sorted(before.keys() | after.keys()):
        was, is_ = before.get(what), after.get(what)
        if was != is_:
            kind = ChangeKind.ADDED if was is None else ChangeKind.REMOVED if is_ is None else ChangeKind.CHANGED
            began = isinstance(was, Price | Discount) and was.valid_from <= now
            found.append(Change(what, kind, began))
    return found


def _things(book: PriceBook) -> Mapping[str, object]:
    return {
        **{f"price {price.id}": price for price in book.prices},
        **{f"discount {one.id}": one for terms in book.terms for one in terms.discounts},
        **{f"bill_cached of {terms.tenant}": terms.bill_cached for terms in book.terms if terms.bill_cached},
        "bill_cached": book.bill_cached,
        **({"currency": book.currency} if book.currency else {}),
    }


def _discount_view(discount: Discount) -> dict[str, object]:
    percent = discount.part * 100
    return {
        "id": discount.id,
        "percent": f"{percent.numerator / percent.denominator:.6f}".rstrip("0").rstrip("."),
        "models": None if discount.models is None else sorted(discount.models),
        "from": discount.valid_from.isoformat(),
        "to": None if discount.valid_to is None else discount.valid_to.isoformat(),
    }
