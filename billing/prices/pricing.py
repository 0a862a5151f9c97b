"""What usage costs: pure arithmetic on integers. Nothing is rounded here; rounding is for the invoice line.

    prompt   = fresh + cached + written                  by its length a tier of the price is chosen, for all of it
    cached   = discounted + rest                         the rest is below the minimum, no whole step, or doubted
    full     = prompt x input                            + output x output rate        as if nothing were cached
    charged  = (fresh + rest) x input + discounted x cached rate
                              + written x write rate     + output x output rate
    list     = charged, at the price of those who have no terms of their own
    saved    = full - charged

A rate that the price does not have is the input rate, with a flag. A count that is unknown is not in the amount, with
a flag; where all are unknown, or there is no price, the amount is None: unknown is never zero.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from fractions import Fraction

from msgspec import Struct

from billing.types import Buckets, SettlementState, Usage, UsageFlag

TIER_MARK = "#over-"
"""Between the id of a price and its tier in the id of a tier: `llama-2026-11#over-200000`."""
TERMS_MARK = "~"
"""Between the id of a price and that of a discount: `llama-2026-11~acme-2026`."""
_UNKNOWN = Buckets(None, None, None, None)
_NONE: frozenset[UsageFlag] = frozenset()
_UNREPORTED = frozenset({UsageFlag.UNREPORTED})
_INCOMPLETE = frozenset({UsageFlag.INCOMPLETE})


class Bucket(StrEnum):
    """One of the disjoint heaps of tokens that have a rate of their own."""

    INPUT = "input"
    CACHED_INPUT = "cached_input"
    CACHE_WRITE = "cache_write"
    OUTPUT = "output"


class BillCached(StrEnum):
    """Which of the cached tokens are billed at the cached rate."""

    REPORTED = "reported"
    """Those that the engine reported."""
    MIN_OF_REPORTED_AND_EXPECTED = "min_of_reported_and_expected"
    """Of them, no more than the index expected; all where nothing was expected or known of it."""


@dataclass(frozen=True, slots=True)
class CachedRule:
    """How many of the cached tokens of a prompt are billed as cached: none below a minimum, then whole steps."""

    minimum_tokens: int = 0
    step_tokens: int = 1

    def discounted_tokens(self, cached_tokens: int) -> int:
        """Of 1,500 with 1024/128: 1,408."""
        if cached_tokens < self.minimum_tokens:
            return 0
        return cached_tokens - (cached_tokens - self.minimum_tokens) % self.step_tokens


@dataclass(frozen=True, slots=True)
class VolumeTier:
    """The rate of what a tenant uses of a bucket beyond so many tokens a month. No request is priced by it."""

    bucket: Bucket
    over_tokens: int
    rate_pico: int


@dataclass(frozen=True, slots=True)
class ContextTier:
    """The price of requests whose prompt has more than so many tokens. All of their tokens are at it."""

    over_prompt_tokens: int
    price: "Price"


@dataclass(frozen=True, slots=True)
class Price:
    """Rates of one model in pico-units a token, for requests opened in [valid_from, valid_to), UTC.

    `tenant` is None for the list price. Tiers are in ascending order; the price of a tier has no tiers by context.
    """

    id: str
    model: str
    currency: str
    input_pico: int
    output_pico: int
    valid_from: datetime
    valid_to: datetime | None = None
    cached_input_pico: int | None = None
    cache_write_pico: int | None = None
    tenant: str | None = None
    cached_rule: CachedRule = CachedRule()
    context_tiers: tuple[ContextTier, ...] = ()
    volume_tiers: tuple[VolumeTier, ...] = ()

    def for_prompt(self, prompt_tokens: int) -> "Price":
        """The price of a request with a prompt of that length. O(tiers)."""
        found = self
        for tier in self.context_tiers:
            if prompt_tokens > tier.over_prompt_tokens:
                found = tier.price
        return found

    @property
    def rates(self) -> Mapping[Bucket, int | None]:
        """The rate of each bucket; None = at the input rate."""
        return {
            Bucket.INPUT: self.input_pico,
            Bucket.CACHED_INPUT: self.cached_input_pico,
            Bucket.CACHE_WRITE: self.cache_write_pico,
            Bucket.OUTPUT: self.output_pico,
        }


class Quote(Struct, frozen=True, gc=False):
    """What holds for one tenant, model and moment: the price it pays, the one on the list, and the rule for cached.

    `list_price` is in the currency of `price`; a tenant whose price has no such counterpart has it as its list price.
    """

    price: Price | None
    list_price: Price | None = None
    bill_cached: BillCached = BillCached.REPORTED


class Charge(Struct, frozen=True, gc=False):
    """Amounts in pico-units, None = unknown: at full price, as charged, and at the list price.

    `flags` say what they rest on; `discounted_tokens` were billed at the cached rate; `price` has the rates applied.
    """

    full_pico: int | None
    charged_pico: int | None
    flags: frozenset[UsageFlag] = frozenset()
    list_pico: int | None = None
    discounted_tokens: int | None = None
    price: Price | None = None

    @property
    def saved_pico(self) -> int | None:
        """What caching took off the bill; negative only where writes cost more than reads saved."""
        if self.full_pico is None or self.charged_pico is None:
            return None
        return self.full_pico - self.charged_pico


def charge(buckets: Buckets, price: Price | None, list_price: Price | None = None) -> Charge:
    """Price disjoint buckets of one billable request, all of its cached tokens as such that the price's rule lets be.

    Without `list_price` the price is its own. Never negative for buckets that are not.
    """
    return _charge(buckets, Quote(price, list_price), buckets.cached_tokens)


def bill(
    state: SettlementState, usage: Usage | None, quote: Quote, expected_cached_tokens: int | None = None
) -> Charge:
    """The charge of a request that ended in `state`: nothing where it failed, unknown where it was interrupted."""
    if state is SettlementState.INTERRUPTED:
        return Charge(None, None, price=quote.price)
    if not state.billable:
        prompt = (usage.prompt_tokens if usage is not None else None) or 0
        none = None if quote.price is None else 0
        at = None if quote.price is None else quote.price.for_prompt(prompt)
        return Charge(0, 0, frozenset({UsageFlag.NOT_BILLABLE}), 0, none, at)
    buckets = _UNKNOWN if usage is None else Buckets.of(usage)
    billed = buckets.cached_tokens
    doubts = quote.bill_cached is BillCached.MIN_OF_REPORTED_AND_EXPECTED
    if doubts and billed is not None and expected_cached_tokens is not None:
        billed = min(billed, max(expected_cached_tokens, 0))
    return _charge(buckets, quote, billed)


def scaled(price: Price, factor: Fraction) -> Price:
    """The price with every rate times `factor`. Raises `ValueError` where a rate is no whole pico-unit then."""

    def rate(pico: int) -> int:
        product = pico * factor
        if product.denominator != 1:
            raise ValueError(f"{price.id} would have a rate finer than 6 decimal places per million tokens")
        return product.numerator

    def optional(pico: int | None) -> int | None:
        return None if pico is None else rate(pico)

    return replace(
        price,
        input_pico=rate(price.input_pico),
        output_pico=rate(price.output_pico),
        cached_input_pico=optional(price.cached_input_pico),
        cache_write_pico=optional(price.cache_write_pico),
        context_tiers=tuple(replace(tier, price=scaled(tier.price, factor)) for tier in price.context_tiers),
        volume_tiers=tuple(replace(tier, rate_pico=rate(tier.rate_pico)) for tier in price.volume_tiers),
    )


def named(price: Price, id_: str) -> Price:
    """The price, and with it its tiers, under another id."""
    tiers = tuple(
        replace(tier, price=replace(tier.price, id=tier_id(id_, tier.over_prompt_tokens)))
        for tier in price.context_tiers
    )
    return replace(price, id=id_, context_tiers=tiers)


def tier_id(id_: str, over_prompt_tokens: int) -> str:
    """The id in the rows of requests in a tier; so each id has one rate for a bucket."""
    return f"{id_}{TIER_MARK}{over_prompt_tokens}"


def _charge(buckets: Buckets, quote: Quote, billed_as_cached: int | None) -> Charge:
    flags = _unknowns(buckets)
    if quote.price is None:
        return Charge(None, None, flags | {UsageFlag.UNPRICED})
    cached, written, output = buckets.cached_tokens or 0, buckets.cache_write_tokens or 0, buckets.output_tokens or 0
    prompt = (buckets.fresh_tokens or 0) + cached + written
    price = quote.price.for_prompt(prompt)
    if buckets == _UNKNOWN:
        return Charge(None, None, flags, price=price)
    if price.cached_input_pico is None and cached:
        flags |= {UsageFlag.NO_CACHED_PRICE}
    if price.cache_write_pico is None and written:
        flags |= {UsageFlag.NO_WRITE_PRICE}
    used = (prompt, billed_as_cached or 0, written, output)
    charged, discounted = _at(used, price)
    on_list = charged
    if quote.list_price is not None and quote.list_price is not quote.price:
        on_list, _ = _at(used, quote.list_price.for_prompt(prompt))
    return Charge(
        full_pico=prompt * price.input_pico + output * price.output_pico,
        charged_pico=charged,
        flags=flags,
        list_pico=on_list,
        discounted_tokens=None if buckets.cached_tokens is None else discounted,
        price=price,
    )


def _at(used: tuple[int, int, int, int], price: Price) -> tuple[int, int]:
    """The amount of prompt, billed as cached, written, output tokens; and how many were at the cached rate."""
    prompt, cached, written, output = used
    discounted = 0 if price.cached_input_pico is None else price.cached_rule.discounted_tokens(cached)
    write_rate = price.input_pico if price.cache_write_pico is None else price.cache_write_pico
    pico = (
        (prompt - discounted - written) * price.input_pico
        + discounted * (price.cached_input_pico or 0)
        + written * write_rate
        + output * price.output_pico
    )
    return pico, discounted


def _unknowns(buckets: Buckets) -> frozenset[UsageFlag]:
    incomplete = buckets.fresh_tokens is None or buckets.output_tokens is None
    if buckets.cached_tokens is None:
        return _UNREPORTED | _INCOMPLETE if incomplete else _UNREPORTED
    return _INCOMPLETE if incomplete else _NONE
