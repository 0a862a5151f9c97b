"""One line of FOCUS: its columns, and which of them a version and a reader are given.

    tenant's file    the columns of the version, and `x_` columns of what the tenant's bill says too
    internal file    ... and those of what only the operator is to know

Costs and quantities are decimals with all their digits, times are UTC with an exclusive end, NULL is an empty text.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from zoneinfo import ZoneInfo

from sqlalchemy import RowMapping

from billing.money import PICO, TOKENS_PER_PRICE
from billing.reports.tokens_by_kind import Kind
from billing.reports.zones import hours_of, month_around
from billing.types import CorrectionKind
from billing.when import from_us

FocusLine = Mapping[str, str]
"""Column to value; those that are missing are NULL."""

_METERS: Final = {
    Kind.INPUT: "Input Tokens",
    Kind.CACHE_READ: "Cache Read Input Tokens",
    Kind.CACHE_WRITE: "Cache Write Input Tokens",
    Kind.OUTPUT: "Output Tokens",
}
_CACHE_ACTIONS: Final = {Kind.INPUT: "Uncached", Kind.CACHE_READ: "Read", Kind.CACHE_WRITE: "Write"}
_CATEGORIES: Final = {
    CorrectionKind.CORRECTION: ("Usage", "Correction"),
    CorrectionKind.CREDIT: ("Credit", ""),
    CorrectionKind.ADJUSTMENT: ("Adjustment", ""),
}

_BOTH: Final = (
    "BilledCost",
    "BillingAccountId",
    "BillingAccountName",
    "BillingCurrency",
    "BillingPeriodEnd",
    "BillingPeriodStart",
    "ChargeCategory",
    "ChargeClass",
    "ChargeDescription",
    "ChargeFrequency",
    "ChargePeriodEnd",
    "ChargePeriodStart",
    "ConsumedQuantity",
    "ConsumedUnit",
    "ContractedCost",
    "ContractedUnitPrice",
    "EffectiveCost",
    "InvoiceIssuerName",
    "ListCost",
    "ListUnitPrice",
    "PricingCategory",
    "PricingQuantity",
    "PricingUnit",
    "ServiceCategory",
    "ServiceName",
    "ServiceSubcategory",
    "SkuId",
    "SkuMeter",
    "SkuPriceDetails",
    "SkuPriceId",
    "SubAccountId",
    "SubAccountName",
    "Tags",
)
_ONLY: Final = {
    "1.2": ("ProviderName", "PublisherName"),
    "1.4": ("HostProviderName", "ServiceProviderName"),
}
_TENANT_X: Final = (
    "x_CacheSavings",
    "x_CachedTokensSource",
    "x_PriceVersion",
    "x_UncachedUnitPrice",
    "x_UsageStatus",
    "x_VerifiedStatus",
)
_INTERNAL_X: Final = ("x_GpuSeconds",)
"""Never in a tenant's file."""

DECIMALS: Final = frozenset(
    {name for name in _BOTH if name.endswith(("Cost", "Price", "Quantity"))} | {"x_CacheSavings", "x_UncachedUnitPrice"}
)
"""Columns whose texts are decimals of ours."""


@dataclass(frozen=True, slots=True)
class Seller:
    """Who bills: the account that is charged, the issuer of invoices, the service's name.

    `invoice_id` is the number of the invoice on which all that is asked for stands, where one was issued.
    """

    account_id: str = "prefixgate"
    name: str = "prefixgate"
    service: str = "LLM inference"
    invoice_id: str | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """One group of an hour: what its requests have in common, and the sums over them."""

    row: RowMapping | Mapping[str, Any]
    zone: ZoneInfo
    start_us: int
    end_us: int


def columns_for(version: str, seller: Seller, *, internal: bool = False) -> tuple[str, ...]:
    """The columns of a file, in alphabetical order with the `x_` columns last. Raises `KeyError` for no version.

    Without an invoice there is no column of it.
    """
    custom = (*_TENANT_X, *(_INTERNAL_X if internal else ()))
    invoice = () if seller.invoice_id is None else ("InvoiceId",)
    return (*sorted((*_BOTH, *_ONLY[version], *invoice)), *sorted(custom))


def charge_line(part: Part, kind: Kind, tokens: int, rate_pico: int, list_pico: int, seller: Seller) -> dict[str, str]:
    """What the tokens of one kind cost."""
    row, cost = part.row, decimal(tokens * rate_pico, PICO)
    rate = decimal(rate_pico * TOKENS_PER_PRICE, PICO)
    fresh_pico = row["input_pico"]
    is_cache = kind in (Kind.CACHE_READ, Kind.CACHE_WRITE)
    details = {"x_ModelId": row["model"], "x_TokenDirection": "Output" if kind is Kind.OUTPUT else "Input"}
    if kind in _CACHE_ACTIONS:
        details["x_TokenCacheAction"] = _CACHE_ACTIONS[kind]
    return {
        **_about(part, seller),
        "BilledCost": cost,
        "ChargeCategory": "Usage",
        "ChargeDescription": f"{row['model']}, {_METERS[kind].lower()}",
        "ChargeFrequency": "Usage-Based",
        "ConsumedQuantity": str(tokens),
        "ConsumedUnit": "Tokens",
        "ContractedCost": cost,
        "ContractedUnitPrice": rate,
        "EffectiveCost": cost,
        "ListCost": decimal(list_pico, PICO),
        "ListUnitPrice": decimal(list_pico * TOKENS_PER_PRICE, PICO * tokens),
        "PricingCategory": "Standard",
        "PricingQuantity": decimal(tokens, TOKENS_PER_PRICE),
        "PricingUnit": "1000000 Tokens",
        "SkuId": f"{row['model']}/{kind.value}",
        "SkuMeter": _METERS[kind],
        "SkuPriceDetails": _json(details),
        "SkuPriceId": f"{row['price_id']}/{kind.value}",
        "x_CacheSavings": decimal(tokens * (fresh_pico - rate_pico), PICO) if is_cache else "",
        "x_UncachedUnitPrice": decimal(fresh_pico * TOKENS_PER_PRICE, PICO) if is_cache else "",
        "x_GpuSeconds": _seconds(row, kind),
    }


def difference_line(part: Part, charged_pico: int, seller: Seller) -> dict[str, str]:
    """What was charged beyond tokens × rates, so that the sum of the lines is the amount."""
    category = {"ChargeCategory": "Adjustment", "ChargeFrequency": "Usage-Based"}
    description = {"ChargeDescription": f"{part.row['model']}, charged beyond tokens × rates"}
    return _about(part, seller) | category | description | _costs(charged_pico)


def correction_line(
    row: RowMapping | Mapping[str, Any], charged_pico: int, seller: Seller, zone: ZoneInfo
) -> dict[str, str]:
    """A correction, credit or adjustment, in the hour in which it was made."""
    category, class_ = _CATEGORIES[CorrectionKind(row["kind"])]
    known = {"tags": None, "state": None, "verdict": None, "cached_source": None, "price_id": None}
    part = Part({**row, **known}, zone, *hours_of(row["made_at_us"], zone))
    return {
        **_about(part, seller),
        **_costs(charged_pico),
        "ChargeCategory": category,
        "ChargeClass": class_,
        "ChargeDescription": row["reason"],
        "ChargeFrequency": "One-Time",
    }


def amount_line(part: Part, pico: int, seller: Seller, category: str, description: str) -> dict[str, str]:
    """An amount of an invoice that no request has. A purchase is of each month, and has a price."""
    line = _about(part, seller) | _costs(pico) | {"ChargeCategory": category, "ChargeDescription": description}
    if category != "Purchase":
        return line | {"ChargeFrequency": "One-Time"}
    price = decimal(pico, PICO)
    return line | {
        "ChargeFrequency": "Recurring",
        "ContractedUnitPrice": price,
        "ListUnitPrice": price,
        "PricingCategory": "Standard",
        "PricingQuantity": "1",
        "PricingUnit": "Months",
        "SkuId": description,
        "SkuPriceId": description,
    }


def decimal(numerator: int, denominator: int) -> str:
    """A fraction as a decimal, exact where it ends within 24 places, else cut there."""
    places = 24
    units, rest = divmod(abs(numerator) * 10**places // denominator, 10**places)
    digits = f"{rest:0{places}d}".rstrip("0")
    return f"{'-' if numerator < 0 else ''}{units}{'.' if digits else ''}{digits}"


def _about(part: Part, seller: Seller) -> dict[str, str]:
    row = part.row
    month_start, month_end = month_around(part.start_us, part.zone)
    tags = json.loads(row["tags"]) if row["tags"] else {}
    key = {"prefixgate:key": row["key_id"]} if row["key_id"] else {}
    return {
        "BillingAccountId": seller.account_id,
        "BillingAccountName": seller.name,
        "BillingCurrency": row["currency"],
        "BillingPeriodStart": _time(month_start),
        "BillingPeriodEnd": _time(month_end),
        "ChargePeriodStart": _time(from_us(part.start_us)),
        "ChargePeriodEnd": _time(from_us(part.end_us)),
        "HostProviderName": seller.name,
        "InvoiceId": seller.invoice_id or "",
        "InvoiceIssuerName": seller.name,
        "ProviderName": seller.name,
        "PublisherName": seller.name,
        "ServiceProviderName": seller.name,
        "ServiceCategory": "AI and Machine Learning",
        "ServiceSubcategory": "Generative AI",
        "ServiceName": seller.service,
        "SubAccountId": row["tenant_id"],
        "SubAccountName": row["tenant_id"],
        "Tags": _json({**tags, **key}),
        "x_CachedTokensSource": row["cached_source"] or "",
        "x_PriceVersion": row["price_id"] or "",
        "x_UsageStatus": row["state"] or "",
        "x_VerifiedStatus": row["verdict"] or "",
    }


def _costs(charged_pico: int) -> dict[str, str]:
    cost = decimal(charged_pico, PICO)
    return dict.fromkeys(("BilledCost", "ContractedCost", "EffectiveCost", "ListCost"), cost)


def _seconds(row: RowMapping | Mapping[str, Any], kind: Kind) -> str:
    """Of prefill with the fresh tokens, of decode with the output."""
    name = {Kind.INPUT: "prefill_s", Kind.OUTPUT: "decode_s"}.get(kind)
    return "" if name is None or row[name] is None else f"{row[name]:.6f}"


def _time(when: datetime) -> str:
    fraction = f".{when:%f}" if when.microsecond else ""
    return f"{when:%Y-%m-%dT%H:%M:%S}{fraction}Z"


def _json(values: Mapping[str, str]) -> str:
    return json.dumps(values, sort_keys=True, ensure_ascii=False, separators=(",", ":")) if values else ""
