"""Money as integers of pico-units, 10^-12 of a currency; text and fractions only at the edges.

    one token at $0.0028 per million    =             2,800 pico
    the largest signed 64-bit integer   = 9,223,372 units and a bit

So a sum does not fit into a column of 64 bits: a stored amount is whole units and a pico remainder of 0..10^12 - 1.
In Python, integers have no end, and adding them is exact in every order.
"""

from fractions import Fraction

PICO = 10**12
"""Pico-units in one unit of a currency."""

TOKENS_PER_PRICE = 10**6
"""Prices are written per million tokens."""

MOST_PER_MTOK = 10**9
"""Highest price per million tokens. Together with the largest token count it keeps one amount inside its columns."""


def split_pico(pico: int) -> tuple[int, int]:
    """Whole units and the remainder, which is never negative."""
    return divmod(pico, PICO)


def joined_pico(units: int, remainder_pico: int) -> int:
    """The amount that `split_pico` took apart."""
    return units * PICO + remainder_pico


def amount_text(pico: int) -> str:
    """All digits of an amount: `0.341642000000`. Reading it back gives the same amount."""
    units, remainder = divmod(abs(pico), PICO)
    return f"{'-' if pico < 0 else ''}{units}.{remainder:012d}"


def pico_per_token(per_mtok: Fraction) -> int:
    """The price of one token of a price per million, exact. Raises `ValueError` where that is no whole pico-unit."""
    if not 0 <= per_mtok <= MOST_PER_MTOK:
        raise ValueError(f"a price must be between 0 and {MOST_PER_MTOK} per million tokens")
    pico = per_mtok * PICO / TOKENS_PER_PRICE
    if pico.denominator != 1:
        raise ValueError("finer than 6 decimal places per million tokens: a token would cost a part of a pico-unit")
    return pico.numerator
