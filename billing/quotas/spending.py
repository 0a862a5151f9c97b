"""The money of limits: what a request may cost before it runs, what it did cost, and what the ledger says was spent.

    held    = expected fresh tokens x input + expected cached x cached rate + answer as long as it may be x output rate
    charged = the bill of the settlement, as the ledger has it
    spent   = roll-ups of the period + corrections made in it

All by the price book, tiers and the tenant's terms included: it is the ledger's own arithmetic. Counters have whole
micro-units; the parts of one that a charge leaves over are carried to the next charge of the same key, so that many
small charges add up to what the ledger has.
"""

from datetime import datetime
from pathlib import Path

from sqlalchemy import ColumnElement, Connection, Table, select

from billing.amount_sums import amount_sums, summed_pico
from billing.prices.book import Prices
from billing.prices.pricing import bill, charge
from billing.quotas.types import MICRO_PICO, Purse
from billing.reading import reading
from billing.schema import corrections, usage_quarters
from billing.types import Buckets, Settlement, Usage
from billing.usage import checked
from billing.when import to_us

_NO_USAGE = Usage(None, None, None)


class Change:
    """Parts of a micro-unit that are still to be charged, by key."""

    def __init__(self) -> None:
        self._left_pico: dict[tuple[str, str], int] = {}

    def whole_micro(self, tenant_id: str, key_id: str, pico: int) -> int:
        """Micro-units to charge now for an amount, with what was left over before."""
        micro, left = divmod(pico + self._left_pico.get((tenant_id, key_id), 0), MICRO_PICO)
        self._left_pico[tenant_id, key_id] = left
        return micro


def held_pico(buckets: Buckets, model: str, tenant_id: str, at: datetime, prices: Prices) -> tuple[int, str] | None:
    """What tokens will cost at most if they are as expected, and the currency; None where the model has no price."""
    price = prices.quote(model, tenant_id, at).price
    if price is None:
        return None
    return charge(buckets, price).charged_pico or 0, price.currency


def charged_pico(settlement: Settlement, model: str, tenant_id: str, at: datetime, prices: Prices) -> int | None:
    """What the ledger charges for a settlement; None where it does not know."""
    usage, _ = checked(settlement.usage or _NO_USAGE)
    quote = prices.quote(model, tenant_id, at)
    return bill(settlement.state, usage, quote, settlement.expected_cached_tokens).charged_pico


def spent_micro(ledger: Path | str, tenant_id: str, purse: Purse, currency: str | None) -> int:
    """What a tenant, or one of its keys, has spent in the period of a purse. Blocking: a read of the roll-ups.

    `currency` is the price book's. Raises `LedgerUnavailable`.
    """
    counted = purse.currency or currency
    with reading(ledger) as connection:
        pico = sum(
            _sum(connection, table, at, tenant_id, purse, counted)
            for table, at in ((usage_quarters, usage_quarters.c.quarter_us), (corrections, corrections.c.made_at_us))
        )
    return max(0, pico // MICRO_PICO)


def _sum(
    connection: Connection, table: Table, at: ColumnElement[int], tenant_id: str, purse: Purse, currency: str | None
) -> int:
    columns = amount_sums("charged", table.c.charged_units, table.c.charged_pico)
    query = select(*columns).where(table.c.tenant_id == tenant_id, at >= to_us(purse.start), at < to_us(purse.end))
    if purse.key_id is not None:
        query = query.where(table.c.key_id == purse.key_id)
    if currency is not None:
        query = query.where(table.c.currency == currency)
    return summed_pico(connection.execute(query).mappings().one(), "charged")
