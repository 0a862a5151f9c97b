"""One transaction's worth of records, on the way from objects to rows.

What a bill needs of a request (`Fact`) is remembered from its opening to its settlement, in the batch at hand or in
those committed before, and read back where it is in neither. A request has one settlement: a second is ignored and
counted.
"""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, Select, select
from sqlalchemy import Row as FoundRow

from billing.batch_sql import Rows
from billing.errors import RowRefused
from billing.prices.book import Prices
from billing.rollup import QuarterSums
from billing.rows import (
    Fact,
    Row,
    attempt_row,
    billed,
    chain_row,
    correction_row,
    fact_of,
    late_correction,
    request_row,
    sample_row,
    settlement_row,
)
from billing.schema import attempts, chains, corrections, engine_samples, requests, settlements, usage_quarters
from billing.types import Correction, EngineSample, OpenedRequest, Settlement, SettlementState
from billing.when import from_us

_READ_BACK = select(
    requests.c.opened_at_us,
    requests.c.model,
    requests.c.tenant_id,
    requests.c.key_id,
    requests.c.tags,
    settlements.c.state,
).outerjoin(settlements, settlements.c.request_id == requests.c.request_id)


class Batch:
    """Collects rows. After their commit, `opened`, `settled` and `settled_twice` hold true. `connection` is for what is
    not remembered, outside of a transaction."""

    def __init__(self, connection: Connection, owner_id: str, book: Prices, remembered: Mapping[str, Fact]) -> None:
        self.opened: dict[str, Fact] = {}
        self.settled: set[str] = set()
        self.settled_twice = 0
        self._connection = connection
        self._owner_id = owner_id
        self._book = book
        self._remembered = remembered
        self._requests: list[Row] = []
        self._chains: list[Row] = []
        self._settlements: list[Row] = []
        self._attempts: list[Row] = []
        self._corrections: list[Row] = []
        self._samples: list[Row] = []
        self._late: set[str] = set()
        self._quarters = QuarterSums()

    def add(self, record: OpenedRequest | Settlement | Correction | EngineSample) -> RowRefused | None:
        """Take a record; says if the ledger's own rows refuse it. What the database refuses shows at the end."""
        if isinstance(record, Settlement):
            return self._settle(record)
        if isinstance(record, Correction):
            self._corrections.append(correction_row(record))
            return None
        if isinstance(record, EngineSample):
            self._samples.append(sample_row(record, self._owner_id))
            return None
        fact = fact_of(record)
        self._requests.append(request_row(record, fact, self._owner_id))
        if record.chain is not None:
            self._chains.append(chain_row(record.request_id, record.chain))
        self.opened[record.request_id] = fact
        self._quarters.opened(fact)
        return None

    def rows(self) -> Rows:
        """All that was taken."""
        return {
            requests: self._requests,
            chains: self._chains,
            settlements: self._settlements,
            attempts: self._attempts,
            corrections: self._corrections,
            engine_samples: self._samples,
            usage_quarters: [*self._quarters.rows(self._owner_id)],
        }

    def _settle(self, settlement: Settlement) -> RowRefused | None:
        request_id = settlement.request_id
        if request_id in self.settled:
            self.settled_twice += 1
            return None
        fact = self.opened.get(request_id) or self._remembered.get(request_id)
        if fact is None:
            found = self._first(_READ_BACK.where(requests.c.request_id == request_id))
            if found is None:
                return RowRefused(request_id, "it was never opened")
            opened_us = found.opened_at_us
            fact = Fact(from_us(opened_us), opened_us, found.model, found.tenant_id, found.key_id, found.tags)
            if found.state is not None:
                self._settle_again(settlement, fact, found.state)
                return None
        self.settled.add(request_id)
        bill = billed(settlement, fact, self._book)
        self._settlements.append(settlement_row(bill))
        self._quarters.settled(fact, bill)
        self._attempts += map(attempt_row, settlement.attempts)
        return None

    def _settle_again(self, settlement: Settlement, fact: Fact, state: str) -> None:
        """The first settlement stands. Where it is of those who took us for dead and knew nothing, ours corrects it."""
        self.settled_twice += 1
        late = late_correction(settlement, fact, self._book) if state == SettlementState.INTERRUPTED else None
        if late is None or late.correction_id in self._late:
            return
        known = select(corrections.c.correction_id).where(corrections.c.correction_id == late.correction_id)
        if self._first(known) is None:
            self._late.add(late.correction_id)
            self._corrections.append(correction_row(late))

    def _first(self, query: Select[Any]) -> FoundRow[Any] | None:
        with self._connection.begin():
            return self._connection.execute(query).first()
