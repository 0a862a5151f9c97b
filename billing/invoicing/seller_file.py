"""Who sends invoices, to whom, with which taxes: the YAML file that `invoicing_file` names.

Every scalar of it stays the text that was written, so that a registration number keeps its zeros.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import tzinfo
from decimal import Decimal
from pathlib import Path

import msgspec

from billing.errors import PeriodInvalid, YamlInvalid
from billing.exact_yaml import read_exact
from billing.invoicing.amounts import TaxRule
from billing.invoicing.documents import Fact, InvoiceInvalid, LineKind, Party
from billing.invoicing.minor_units import Rounding, minor_digits
from billing.when import zone_named

_MOST_PERCENT = 1000


class _Strict(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Unknown keys are errors."""


class _Fact(_Strict, frozen=True):
    label: str
    value: str


class _Party(_Strict, frozen=True):
    name: str
    id: str = ""
    address: tuple[str, ...] = ()
    registrations: tuple[_Fact, ...] = ()
    tax: str = ""


class _Tax(_Strict, frozen=True):
    label: str
    rate_percent: Decimal
    note: str = ""


class _File(_Strict, frozen=True):
    seller: _Party
    currency: str
    taxes: dict[str, _Tax]
    default_tax: str
    taxes_of: dict[LineKind, str] = {}
    tax_rounding: Rounding = Rounding.HALF_EVEN
    timezone: str = "UTC"
    number_format: str = "{year}-{sequence:06d}"
    payment_terms_days: int = 30
    payment: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    buyers: dict[str, _Party] = {}
    fonts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Seller:
    """The file, checked. `buyers` is by tenant id, `fonts` are TrueType files for scripts that ours lack."""

    party: Party
    currency: str
    taxes: Mapping[str, TaxRule]
    default_tax: str
    taxes_of: Mapping[LineKind, str] = field(default_factory=dict)
    tax_rounding: Rounding = Rounding.HALF_EVEN
    timezone: str = "UTC"
    number_format: str = "{year}-{sequence:06d}"
    payment_terms_days: int = 30
    payment: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    buyers: Mapping[str, Party] = field(default_factory=dict)
    buyer_taxes: Mapping[str, str] = field(default_factory=dict)
    fonts: tuple[Path, ...] = ()

    @property
    def zone(self) -> tzinfo:
        """Of periods, dates, and of the year in a number."""
        return zone_of(self.timezone)

    def buyer(self, tenant_id: str) -> Party:
        """The buyer of a tenant; one that the file does not know is called by its id."""
        return self.buyers.get(tenant_id, Party(tenant_id, tenant_id))

    def tax_of(self, tenant_id: str, kind: LineKind) -> str:
        """The tax of a line: the buyer's own, else that of the kind, else the default."""
        own = self.buyer_taxes.get(tenant_id, "")
        return own or self.taxes_of.get(kind, self.default_tax)

    def number(self, year: int, sequence: int) -> str:
        """An invoice number."""
        return self.number_format.format(year=year, sequence=sequence)


def zone_of(name: str) -> tzinfo:
    """A time zone by its name. Raises `InvoiceInvalid`."""
    try:
        return zone_named(name)
    except PeriodInvalid as error:
        raise InvoiceInvalid(str(error)) from None


def read_seller(path: Path) -> Seller:
    """The seller's file. Raises `InvoiceInvalid`, with the file and the key."""
    try:
        found = msgspec.convert(read_exact(path.read_text("utf-8")), _File, strict=False)
    except (OSError, ValueError, YamlInvalid) as error:  # msgspec's and Unicode's are ValueErrors
        raise InvoiceInvalid(f"{path}: {error}") from None
    seller = Seller(
        party=_party(found.seller.id or "default", found.seller),
        currency=found.currency,
        taxes={name: TaxRule(name, tax.label, tax.rate_percent, tax.note) for name, tax in found.taxes.items()},
        default_tax=found.default_tax,
        taxes_of=found.taxes_of,
        tax_rounding=found.tax_rounding,
        timezone=found.timezone,
        number_format=found.number_format,
        payment_terms_days=found.payment_terms_days,
        payment=found.payment,
        notes=found.notes,
        buyers={tenant: _party(tenant, one) for tenant, one in found.buyers.items()},
        buyer_taxes={tenant: one.tax for tenant, one in found.buyers.items() if one.tax},
        fonts=tuple((path.parent / font).resolve() for font in found.fonts),
    )
    try:
        complaint = _complaint(seller)
    except InvoiceInvalid as error:
        complaint = str(error)
    if complaint:
        raise InvoiceInvalid(f"{path}: {complaint}")
    return seller


def _party(id_: str, found: _Party) -> Party:
    return Party(id_, found.name, found.address, tuple(Fact(one.label, one.value) for one in found.registrations))


def _complaint(seller: Seller) -> str:
    """What is wrong with a file whose keys are right; empty where nothing is."""
    minor_digits(seller.currency)
    named = {seller.default_tax, *seller.taxes_of.values(), *seller.buyer_taxes.values()}
    unknown = sorted(named - set(seller.taxes))
    if unknown:
        return f"the tax {unknown[0]!r} is not among `taxes`"
    for name, tax in seller.taxes.items():
        if not tax.rate_percent.is_finite() or not 0 <= tax.rate_percent <= _MOST_PERCENT:
            return f"`rate_percent` of the tax {name!r} must be between 0 and {_MOST_PERCENT}"
    if seller.payment_terms_days < 0:
        return "`payment_terms_days` must not be negative"
    zone_of(seller.timezone)
    absent = [font for font in seller.fonts if not font.is_file()]
    if absent:
        return f"`fonts`: there is no file {absent[0]}"
    return _number_complaint(seller)


def _number_complaint(seller: Seller) -> str:
    try:
        made = [seller.number(year, sequence) for year in (2026, 2027) for sequence in (1, 2)]
    except (ValueError, KeyError, IndexError, AttributeError) as error:
        return f"`number_format` cannot be filled in: {error}"
    if len(set(made)) != len(made):
        return "`number_format` must have {year} and {sequence} in it, or numbers would repeat"
    return ""
