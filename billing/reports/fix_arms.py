"""Requests that were changed on their way beside those that were left as they came, by what the ledger kept of both.

    layout_fixes    on:tools+lines   changed by these       off:tools+lines   would have been

Rows of billable requests whose engine told what was cached; a mean of output tokens says whether answers became longer.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from sqlalchemy import BigInteger, Connection, cast, func, select

from billing.older import column_in
from billing.reports.query import Query
from billing.reports.reading import need_rows
from billing.schema import requests, settlements
from billing.types import BILLABLE_STATES

_r, _s = requests.c, settlements.c
_counted = (_s.prompt_tokens, _s.cached_tokens, _s.output_tokens)


@dataclass(frozen=True, slots=True)
class FixArm:
    """One side of one comparison: sums over the requests of a tenant, and means in seconds where they are known."""

    tenant_id: str
    fixes: str
    arm: str
    requests: int
    prompt_tokens: int
    cached_tokens: int
    counted_answers: int
    """Requests whose engine counted the answer; `output_tokens` is of them."""
    output_tokens: int
    ttft_s: float | None


def fix_arms(connection: Connection, query: Query) -> Iterator[FixArm]:
    """Both sides of a period, tenant by tenant, in order. Raises `PeriodInvalid` where rows are archived. O(rows)."""
    need_rows(connection, query.start_us, query.end_us)
    fixes_kept = column_in(connection, _s.layout_fixes)
    chosen = [_r.opened_at_us >= query.start_us, _r.opened_at_us < query.end_us, fixes_kept.is_not(None)]
    chosen += [_s.state.in_(BILLABLE_STATES), _s.prompt_tokens.is_not(None), _s.cached_tokens.is_not(None)]
    if query.about.tenant is not None:
        chosen.append(_r.tenant_id == query.about.tenant)
    if query.about.model is not None:
        chosen.append(_r.model == query.about.model)
    sums = [cast(func.coalesce(func.sum(one), 0), BigInteger) for one in _counted]
    keys = (_r.tenant_id, fixes_kept)
    asked = (
        select(*keys, func.count(), func.count(_s.output_tokens), *sums, func.avg(_s.ttft_s))
        .select_from(requests.join(settlements, _s.request_id == _r.request_id))
        .where(*chosen)
        .group_by(*keys)
        .order_by(*keys)
    )
    for tenant_id, kept, count, answers, prompt_tokens, cached_tokens, output_tokens, ttft_s in connection.execute(
        asked
    ):
        arm, _, fixes = kept.partition(":")
        yield FixArm(tenant_id, fixes, arm, count, prompt_tokens, cached_tokens, answers, output_tokens, ttft_s)
