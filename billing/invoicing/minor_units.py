"""From pico-units to what money can be paid in: cents, yen, fils. Every rounding of an invoice is made here.

A row of an invoice is shown rounded; the sum of a tax rate is rounded once from the exact sum, and so is its tax.
"""

from enum import StrEnum
from fractions import Fraction

from billing.currencies import MINOR_UNIT_PLACES
from billing.invoicing.documents import InvoiceInvalid
from billing.money import PICO, amount_text


class Rounding(StrEnum):
    """What becomes of a part of the smallest unit. Rules for the seller's tax; amounts are always `HALF_EVEN`."""

    HALF_EVEN = "half_even"
    HALF_UP = "half_up"
    """A half goes away from zero."""
    DOWN = "down"
    """Towards zero."""
    UP = "up"
    """Away from zero."""


def minor_digits(currency: str) -> int:
    """Digits after the point of a currency. Raises `InvoiceInvalid` for a code that ISO 4217 gives none."""
    if currency not in MINOR_UNIT_PLACES:
        raise InvoiceInvalid(f"{currency!r} is no currency of ISO 4217 that invoices can be written in")
    return MINOR_UNIT_PLACES[currency]


def minor_of(pico: int, currency: str) -> int:
    """An exact amount in the smallest unit of its currency, half-even."""
    return rounded(Fraction(pico, PICO // 10 ** minor_digits(currency)))


def rounded(value: Fraction, rule: Rounding = Rounding.HALF_EVEN) -> int:
    """A whole number; all rules treat -x as they treat x."""
    sign, size = (-1, -value) if value < 0 else (1, value)
    match rule:
        case Rounding.HALF_EVEN:
            return sign * round(size)
        case Rounding.HALF_UP:
            return sign * ((2 * size.numerator + size.denominator) // (2 * size.denominator))
        case Rounding.DOWN:
            return sign * (size.numerator // size.denominator)
        case _:
            return sign * -(-size.numerator // size.denominator)


def money_text(minor: int, currency: str) -> str:
    """An amount as people read it: `-1,234.50`, or `10,000,000,000` for a currency without a smaller unit."""
    digits = minor_digits(currency)
    whole, rest = divmod(abs(minor), 10**digits)
    point = f".{rest:0{digits}d}" if digits else ""
    return f"{'-' if minor < 0 else ''}{whole:,}{point}"


def exact_text(pico: int) -> str:
    """All digits of an amount that say something: `0.341642`, `12`, `-0.5`."""
    return amount_text(pico).rstrip("0").rstrip(".")


def pico_of(text: str) -> int:
    """The amount that `exact_text` wrote."""
    whole, _, rest = text.removeprefix("-").partition(".")
    pico = int(whole) * PICO + int(rest.ljust(12, "0") or 0)
    return -pico if text.startswith("-") else pico
