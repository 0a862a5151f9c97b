"""Sums of amounts in SQL, exact in 64 bits.

    units, pico     -- sum(units), sum(pico // 10^6), sum(pico % 10^6) -->   one integer in Python
                       name_units  name_high          name_low

A remainder is below 10^12, so a sum of remainders would overflow at 9.2 million rows. Each half of it is below 10^6:
that is 9.2 x 10^12 rows.
"""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import ColumnElement, RowMapping, func

from billing.money import joined_pico

_HALF_PICO = 10**6


def amount_sums(name: str, units: ColumnElement[Any], pico: ColumnElement[Any]) -> tuple[ColumnElement[Any], ...]:
    """The three columns of a sum, for `summed_pico` by name or `whole_pico` in order; 0 where nothing is known."""
    return (
        func.coalesce(func.sum(units), 0).label(f"{name}_units"),
        func.coalesce(func.sum(pico // _HALF_PICO), 0).label(f"{name}_high"),
        func.coalesce(func.sum(pico % _HALF_PICO), 0).label(f"{name}_low"),
    )


def summed_pico(row: RowMapping | Mapping[str, int], name: str) -> int:
    """The amount of a row that has the columns of `amount_sums`."""
    return whole_pico(row[f"{name}_units"], row[f"{name}_high"], row[f"{name}_low"])


def whole_pico(units: int, high: int, low: int) -> int:
    """The amount of the three sums. PostgreSQL gives them as decimals."""
    return joined_pico(int(units), int(high) * _HALF_PICO + int(low))
