"""Reading a price file: every rate absolute or as a ratio of the input price, as whole pico-units a token.

file      currency, bill_cached
 |- defaults     the ratios and the rule of those prices that do not say
 |- prices       of a model, with `tenant` of that tenant alone
 |   |- context_tiers    what one leaves out is as in the price itself: a ratio of its own input price
 |   `- volume_tiers     per bucket, by tokens of a month
 `- tenants      discounts on the list, and which cached tokens count
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from fractions import Fraction
from pathlib import Path

from billing.errors import PricesInvalid
from billing.prices.fields import Fields, currency_of, keyed, listed, read_yaml, text_of
from billing.prices.pricing import (
    TERMS_MARK,
    TIER_MARK,
    BillCached,
    Bucket,
    CachedRule,
    ContextTier,
    Price,
    VolumeTier,
    tier_id,
)

RULE_KEYS = frozenset({"min_cached_tokens", "cached_step_tokens"})
RATE_KEYS = frozenset(
    {
        "input_per_mtok",
        "cached_input_per_mtok",
        "cached_input_ratio",
        "cache_write_per_mtok",
        "cache_write_ratio",
        "output_per_mtok",
        "output_ratio",
    }
)
PRICE_KEYS = (
    RATE_KEYS | RULE_KEYS | {"id", "model", "tenant", "currency", "from", "to", "context_tiers", "volume_tiers"}
)
BOOK_KEYS = frozenset({"currency", "bill_cached", "defaults", "prices", "tenants"})
DEFAULT_KEYS = RULE_KEYS | {"cached_input_ratio", "cache_write_ratio"}
CONTEXT_TIER_KEYS = RATE_KEYS | {"over_prompt_tokens"}
VOLUME_TIER_KEYS = frozenset({"bucket", "over_tokens", "per_mtok", "discount_percent"})
TENANT_KEYS = frozenset({"bill_cached", "discounts"})
DISCOUNT_KEYS = frozenset({"id", "percent", "models", "from", "to"})

_POLICIES = tuple(BillCached)
_BUCKETS = tuple(Bucket)
_Rate = tuple[str, Fraction]
"""The key that a rate was given by, which says whether it is absolute, and its value."""


@dataclass(frozen=True, slots=True)
class Discount:
    """A tenant pays so much less, as a part of one, than the list says, for some models (None = all) in a period."""

    id: str
    tenant: str
    part: Fraction
    models: frozenset[str] | None
    valid_from: datetime
    valid_to: datetime | None


@dataclass(frozen=True, slots=True)
class Terms:
    """What one tenant has agreed: discounts, and which cached tokens count; None = as for everyone."""

    tenant: str
    discounts: tuple[Discount, ...] = ()
    bill_cached: BillCached | None = None


@dataclass(frozen=True, slots=True)
class PriceFile:
    """A price file as read; what contradicts itself between entries is for the book to find."""

    currency: str | None = None
    prices: tuple[Price, ...] = ()
    terms: tuple[Terms, ...] = ()
    bill_cached: BillCached = BillCached.REPORTED


def read_prices(path: Path) -> PriceFile:
    """What a file says. Raises `PricesInvalid`."""
    return parse_prices(text_of(path), str(path))


def parse_prices(text: str, where: str) -> PriceFile:
    """What the text of a price file says; `where` names it in errors. Raises `PricesInvalid`."""
    loaded = read_yaml(text, where)
    if loaded is None:
        return PriceFile()
    book = Fields(loaded, where, BOOK_KEYS)
    entries = listed(book.raw("prices"), where, "prices")
    tenants = _tenants(book)
    currency = currency_of(book.raw("currency"), where) if entries or "currency" in book else None
    defaults = Fields(book.raw("defaults") or {}, f"{where}, defaults", DEFAULT_KEYS)
    prices = tuple(
        read_price(Fields(entry, f"{where}, price {number}", PRICE_KEYS), currency or "", defaults)
        for number, entry in enumerate(entries, 1)
    )
    return PriceFile(currency, prices, tenants, BillCached(book.choice("bill_cached", _POLICIES, BillCached.REPORTED)))


def read_price(fields: Fields, currency: str, defaults: Fields) -> Price:
    """One price, from an entry and what the file says for all. Raises `PricesInvalid`."""
    model, tenant = fields.text("model"), fields.optional_text("tenant")
    begins, ends = fields.period()
    if "currency" in fields:
        currency = currency_of(fields.raw("currency"), fields.where)
    given = {**_given(defaults), **_given(fields)}
    for bucket in (Bucket.INPUT, Bucket.OUTPUT):
        if bucket not in given:
            fields.text(f"{bucket}_per_mtok")
    default_id = f"{tenant}/{model}@{begins.isoformat()}" if tenant else f"{model}@{begins.isoformat()}"
    price = _with_rates(
        Price(
            id=_id(fields, default_id),
            model=model,
            currency=currency,
            input_pico=0,
            output_pico=0,
            valid_from=begins,
            valid_to=ends,
            tenant=tenant,
            cached_rule=_rule(fields, defaults),
        ),
        given,
        fields,
    )
    return _with_tiers(price, given, fields)


def _id(fields: Fields, default: str) -> str:
    found = fields.optional_text("id") or default
    if TIER_MARK in found or TERMS_MARK in found:
        raise fields.wrong("id", f": {found!r} must not contain {TIER_MARK!r} or {TERMS_MARK!r}; give another")
    return found


def _given(fields: Fields) -> dict[Bucket, _Rate]:
    """The rates that an entry gives, as it gives them."""
    found: dict[Bucket, _Rate] = {}
    for bucket in Bucket:
        keys = [key for key in (f"{bucket}_per_mtok", f"{bucket}_ratio") if key in fields]
        if len(keys) > 1:
            raise PricesInvalid(fields.where, f"give `{keys[0]}` or `{keys[1]}`, not both")
        for key in keys:
            found[bucket] = (key, fields.decimal(key))
    return found


def _with_rates(price: Price, given: Mapping[Bucket, _Rate], fields: Fields) -> Price:
    """The price with its rates in pico-units. A cached token above the input price is taken for a slip."""
    input_per_mtok = given[Bucket.INPUT][1]

    def pico(bucket: Bucket) -> int | None:
        if bucket not in given:
            return None
        key, value = given[bucket]
        return fields.pico(key, value * input_per_mtok if key.endswith("_ratio") else value)

    input_pico, cached_pico = pico(Bucket.INPUT) or 0, pico(Bucket.CACHED_INPUT)
    if cached_pico is not None and cached_pico > input_pico:
        key = given[Bucket.CACHED_INPUT][0]
        raise PricesInvalid(fields.where, f"`{key}` makes a cached token dearer than a fresh one; is the unit right?")
    return replace(
        price,
        input_pico=input_pico,
        output_pico=pico(Bucket.OUTPUT) or 0,
        cached_input_pico=cached_pico,
        cache_write_pico=pico(Bucket.CACHE_WRITE),
    )


def _rule(fields: Fields, defaults: Fields) -> CachedRule:
    return CachedRule(
        fields.tokens("min_cached_tokens", defaults.tokens("min_cached_tokens", 0)),
        fields.tokens("cached_step_tokens", defaults.tokens("cached_step_tokens", 1, least=1), least=1),
    )


def _with_tiers(price: Price, given: Mapping[Bucket, _Rate], fields: Fields) -> Price:
    tiers: list[ContextTier] = []
    for entry in fields.entries("context_tiers", CONTEXT_TIER_KEYS, "context tier"):
        over = entry.tokens("over_prompt_tokens", least=1)
        if tiers and over <= tiers[-1].over_prompt_tokens:
            raise entry.wrong("over_prompt_tokens", " must be above that of the tier before")
        tier = _with_rates(replace(price, id=tier_id(price.id, over)), {**given, **_given(entry)}, entry)
        tiers.append(ContextTier(over, _with_volume_tiers(tier, fields, has_tiers=True)))
    return replace(
        _with_volume_tiers(price, fields, has_tiers=bool(tiers)),
        context_tiers=tuple(tiers),
    )


def _with_volume_tiers(price: Price, fields: Fields, *, has_tiers: bool) -> Price:
    found: list[VolumeTier] = []
    for entry in fields.entries("volume_tiers", VOLUME_TIER_KEYS, "volume tier"):
        bucket = Bucket(entry.choice("bucket", _BUCKETS))
        over = entry.tokens("over_tokens")
        if any(tier.bucket is bucket and tier.over_tokens >= over for tier in found):
            raise entry.wrong("over_tokens", f" must be above that of the tier of {bucket} before")
        rate_pico = price.rates[bucket]
        if rate_pico is None:
            raise entry.wrong("bucket", f": the price has no rate for {bucket}: it is billed at the input price")
        found.append(VolumeTier(bucket, over, _volume_rate(entry, rate_pico, has_tiers=has_tiers)))
    return replace(price, volume_tiers=tuple(found))


def _volume_rate(entry: Fields, rate_pico: int, *, has_tiers: bool) -> int:
    if ("per_mtok" in entry) == ("discount_percent" in entry):
        raise PricesInvalid(entry.where, "give `per_mtok` or `discount_percent`, and not both")
    if "per_mtok" in entry:
        if has_tiers:
            raise entry.wrong("per_mtok", ": this price has tiers by context; give `discount_percent`")
        return entry.pico("per_mtok", entry.decimal("per_mtok"))
    rate = rate_pico * (1 - entry.percent("discount_percent"))
    if rate.denominator != 1:
        raise entry.wrong("discount_percent", " makes a rate finer than 6 decimal places per million tokens")
    return rate.numerator


def _tenants(book: Fields) -> tuple[Terms, ...]:
    tenants = book.raw("tenants") or {}
    if not isinstance(tenants, dict):
        raise PricesInvalid(book.where, "`tenants` must be a mapping of tenants")
    return tuple(_terms(str(name), entry, f"{book.where}, tenant {name}") for name, entry in tenants.items())


def _terms(tenant: str, entry: object, where: str) -> Terms:
    fields = Fields(keyed(entry, where, TENANT_KEYS), where, TENANT_KEYS)
    policy = fields.choice("bill_cached", _POLICIES) if "bill_cached" in fields else None
    discounts = tuple(_discount(tenant, one) for one in fields.entries("discounts", DISCOUNT_KEYS, "discount"))
    return Terms(tenant, discounts, None if policy is None else BillCached(policy))


def _discount(tenant: str, fields: Fields) -> Discount:
    begins, ends = fields.period()
    return Discount(
        id=_id(fields, f"{tenant}@{begins.isoformat()}"),
        tenant=tenant,
        part=fields.percent("percent"),
        models=fields.names("models"),
        valid_from=begins,
        valid_to=ends,
    )
