"""What misses lost in a period, by who asked for what, why, and in which part of the prompt.

settlements  prompt_changed:12, `system time`, 960 lost  --+
             prompt_changed:12, `system time`, 944 lost  --+--> acme, m, /v1/chat/completions: 2 requests, 1,904
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, func, select

from billing.older import columns_in
from billing.schema import requests, settlements
from billing.verification.columns import miss_kind

_r, _s = requests.c, settlements.c


@dataclass(frozen=True, slots=True)
class Loss:
    """Requests of one tenant, model and route that missed for one reason, in one part of their prompts.

    `of` is how many of that tenant, model and route there were in the period. `lost_tokens` leaves out what is unknown.
    """

    tenant_id: str
    model: str
    route: str
    reason: str | None
    changed_segment: str | None
    requests: int
    of: int
    lost_tokens: int
    first_us: int
    last_us: int


def losses(connection: Connection, from_us: int, to_us: int) -> list[Loss]:
    """Those of the requests that came in within [from, to), most lost tokens first. One pass over them.

    A request without a reason counts where its engine does not tell what was cached, and its prompt had changed.
    """
    columns = {column.key: column for column in columns_in(connection, settlements)}
    segment: ColumnElement[str | None] = columns["changed_segment"].label("segment")
    lost = func.sum(columns["lost_tokens"]).label("lost")
    who, reason = (_r.tenant_id, _r.model, _r.route), miss_kind().label("reason")
    asked = (
        select(*who, reason, segment, func.count().label("requests"), lost)
        .add_columns(func.min(_r.opened_at_us).label("first_us"), func.max(_r.opened_at_us).label("last_us"))
        .select_from(requests.join(settlements, _s.request_id == _r.request_id))
        .where(_r.opened_at_us >= from_us, _r.opened_at_us < to_us)
        .group_by(*who, reason, segment)
    )
    rows = connection.execute(asked).mappings().all()
    of: dict[tuple[str, str, str], int] = {}
    for row in rows:
        name = row["tenant_id"], row["model"], row["route"]
        of[name] = of.get(name, 0) + int(row["requests"])
    found = [
        Loss(
            *(row["tenant_id"], row["model"], row["route"], row["reason"], row["segment"], int(row["requests"])),
            of=of[row["tenant_id"], row["model"], row["route"]],
            lost_tokens=int(row["lost"] or 0),
            first_us=row["first_us"],
            last_us=row["last_us"],
        )
        for row in rows
        if row["reason"] is not None or row["segment"] is not None
    ]
    return sorted(found, key=lambda loss: (-loss.lost_tokens, loss.tenant_id, loss.model, loss.route))


def by_reason(found: Sequence[Loss]) -> dict[str, tuple[int, int]]:
    """Requests and lost tokens of each reason."""
    sums: dict[str, tuple[int, int]] = {}
    for loss in found:
        if loss.reason is not None:
            requests_, tokens = sums.get(loss.reason, (0, 0))
            sums[loss.reason] = requests_ + loss.requests, tokens + loss.lost_tokens
    return dict(sorted(sums.items()))
