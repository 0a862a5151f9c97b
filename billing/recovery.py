"""What a gateway that died left open: closed as interrupted. What it used is not known, and not zero."""

from collections.abc import Sequence

from sqlalchemy import ColumnElement, Connection, case, false, func, insert, literal, select, update

from billing.rollup import QUARTER_US, QuarterSums
from billing.rollup_sql import QUARTER_OF_REQUEST, add
from billing.rows import Fact
from billing.schema import OPENED, owners, requests, settlements, usage_quarters
from billing.types import SettlementState
from billing.when import from_us

_r = requests.c
_q = usage_quarters.c


def close_open(connection: Connection, dead: Sequence[str], by: str, currency: str | None, now_us: int) -> int:
    """Settle the open requests of dead owners, and add them to the sums of the owner `by`. Returns how many there were.

    O(requests since the first that is open). In the transaction of the caller.
    """
    if not dead:
        return 0
    source = requests.outerjoin(settlements, settlements.c.request_id == _r.request_id)
    left_open = (settlements.c.request_id.is_(None), _r.owner_id.in_(dead), *_where_any_is_open(connection))
    keys = (QUARTER_OF_REQUEST, _r.model, _r.tenant_id, _r.key_id, _r.tags)
    counted = select(*keys, func.count()).select_from(source).where(*left_open).group_by(*keys)
    sums = QuarterSums()
    closed = 0
    for quarter_us, model, tenant_id, key_id, tags, count in connection.execute(counted):
        fact = Fact(from_us(quarter_us), quarter_us, model, tenant_id, key_id, tags)
        sums.interrupted(fact, currency or "", count)
        closed += count
    if closed:
        known = {
            "settled_at_us": literal(now_us),
            "state": literal(SettlementState.INTERRUPTED.value),
            "flags": literal(""),
            "currency": literal(currency),
        }
        rows = select(_r.request_id, *known.values()).select_from(source).where(*left_open)
        connection.execute(insert(settlements).from_select(["request_id", *known], rows))
        add(connection, list(sums.rows(by)))
    connection.execute(update(owners).where(owners.c.owner_id.in_(dead)).values(ended_at_us=now_us))
    return closed


def _where_any_is_open(connection: Connection) -> list[ColumnElement[bool]]:
    """From the first quarter with more openings than settlements to the last: the sums know it without the rows."""
    open_here = func.sum(case((_q.state == OPENED, _q.requests), else_=-_q.requests))
    quarters = select(_q.quarter_us).group_by(_q.quarter_us).having(open_here != 0).subquery()
    first_us, last_us = connection.execute(
        select(func.min(quarters.c.quarter_us), func.max(quarters.c.quarter_us))
    ).one()
    if first_us is None:
        return [false()]
    return [_r.opened_at_us >= first_us, _r.opened_at_us < last_us + QUARTER_US]
