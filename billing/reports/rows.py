"""The rows behind a bill, one by one: with them a tenant computes its bill again.

    requests in order of opening  -->  row, row, ...   then the corrections made in the period  -->  row, row, ...

    charged = (prompt - discounted - written) × input + discounted × cached input + written × cache write
              + output × output rate                 unknown counts as 0, rates per million tokens, nothing rounded

Rows are read as they are asked for: memory is constant, whatever the period. A reading can be cut into pages and taken
up again after a `Cursor`. What only the operator is to know (endpoint, seconds) is left out unless asked for.
"""

from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from sqlalchemy import Connection, RowMapping, Select, select, tuple_

from billing.errors import ReportInvalid
from billing.money import TOKENS_PER_PRICE, amount_text, joined_pico
from billing.older import columns_in
from billing.reports.columns import USAGE
from billing.reports.groups import FROM_CORRECTIONS, FROM_ROWS, groups
from billing.reports.query import Query
from billing.reports.reading import need_rows
from billing.reports.sums import ROWS
from billing.reports.tally import IN_FLIGHT
from billing.schema import corrections, requests, settlements
from billing.when import from_us

_PAGE_ROWS = 1000
_r, _s, _c = requests.c, settlements.c, corrections.c
_COUNTS = (
    "prompt_tokens",
    "cached_tokens",
    "discounted_tokens",
    "cache_write_tokens",
    "output_tokens",
    "reasoning_tokens",
    "expected_cached_tokens",
)
_RATES = ("input", "cached_input", "cache_write", "output")
_AMOUNTS = ("list", "full", "charged")
_CHANGES = ("layout_fixes", "changed_segment", "lost_tokens", "model_asked", "route_rule", "continuations")
_SECONDS = ("ttft_s", "duration_s", "prefill_s", "decode_s")
_BY_PHASE = ("prefill_cached_tokens", "decode_cached_tokens")
_OPERATOR = ("endpoint_id", *_SECONDS, "prefill_endpoint_id", *_BY_PHASE)

NUMBERS = frozenset([*(f"{name}_per_mtok" for name in _RATES), *(f"amount_{name}" for name in _AMOUNTS)])
"""Columns whose texts are decimals of ours."""


KINDS: dict[str, type] = {
    **dict.fromkeys((*_COUNTS, "http_status", "lost_tokens", "continuations", *_BY_PHASE), int),
    **dict.fromkeys(_SECONDS, float),
    **dict.fromkeys(NUMBERS, Decimal),
}
"""What the columns hold that are no texts."""


@dataclass(frozen=True, slots=True)
class Cursor:
    """The last row of a page: whether it is a correction, when it was, and its id."""

    is_correction: bool
    at_us: int
    id: str

    def text(self) -> str:
        """For `cursor_of`."""
        return f"{int(self.is_correction)}.{self.at_us}.{self.id}"


def cursor_of(text: str) -> Cursor:
    """A cursor from its text. Raises `ReportInvalid`."""
    kind, _, rest = text.partition(".")
    at, _, id_ = rest.partition(".")
    if kind not in ("0", "1") or not at.isdecimal() or not at.isascii() or len(at) > len("9" * 18) or not id_:
        raise ReportInvalid(text[:100], "no place to go on from; it is what an earlier page gave as its next")
    return Cursor(kind == "1", int(at), id_)


def usage_columns(*, internal: bool = False) -> tuple[str, ...]:
    """Names of the columns, in order."""
    who = ("tenant", "key", "model", "route", "tags", "job_id", "end_user")
    how = ("state", "http_status", "flags", "verdict", "miss_reason", "convention", "usage_json")
    rates = (*(f"{name}_per_mtok" for name in _RATES), "price_id", "currency")
    amounts = tuple(f"amount_{name}" for name in _AMOUNTS)
    seen = _OPERATOR if internal else ()
    times = ("opened_at", "settled_at")
    return ("line", "id", "request_id", *times, *who, *how, *_COUNTS, *rates, *amounts, "reason", *_CHANGES, *seen)


def usage_rows(
    connection: Connection, query: Query, after: Cursor | None = None, *, internal: bool = False
) -> Generator[tuple[Cursor, dict[str, object]], None, None]:
    """The rows of a period that come after a cursor, in order; corrections last. Lazy; to be closed where it is cut."""
    if after is None or not after.is_correction:
        for row in settled_rows(connection, query, after):
            yield Cursor(False, row["opened_at_us"], row["request_id"]), _usage(row, internal=internal)
        after = None
    for row in correction_rows(connection, query, after):
        yield Cursor(True, row["made_at_us"], row["correction_id"]), _correction(row)


def settled_rows(connection: Connection, query: Query, after: Cursor | None = None) -> Iterator[RowMapping]:
    """Requests opened in the period with how they ended, where they have, in order of opening. Lazy.

    Raises `PeriodInvalid` where rows of the period are archived.
    """
    need_rows(connection, query.start_us, query.end_us)
    chosen = [_r.opened_at_us >= query.start_us, _r.opened_at_us < query.end_us, *FROM_ROWS.about(query)]
    if after is not None:
        chosen.append(tuple_(_r.opened_at_us, _r.request_id) > (after.at_us, after.id))
        chosen.append(_r.opened_at_us >= after.at_us)
    wanted = groups(connection, _unsplit(query), FROM_ROWS, [])
    assert wanted is not None, "it is not split by time"
    of_settlement = (column for column in columns_in(connection, settlements) if column.name != _s.request_id.name)
    columns = [*columns_in(connection, requests), *of_settlement]
    asked = select(*columns).select_from(ROWS).where(*chosen).order_by(_r.opened_at_us, _r.request_id)
    return (row for row in _streamed(connection, asked) if wanted.key_of(row) is not None)


def correction_rows(connection: Connection, query: Query, after: Cursor | None = None) -> Iterator[RowMapping]:
    """Corrections made in the period, in order. None where only certain tags are asked for: they have none. Lazy."""
    if query.about.tags:
        return iter(())
    chosen = [_c.made_at_us >= query.start_us, _c.made_at_us < query.end_us, *FROM_CORRECTIONS.about(query)]
    if after is not None:
        chosen.append(tuple_(_c.made_at_us, _c.correction_id) > (after.at_us, after.id))
    asked = select(*corrections.columns).where(*chosen).order_by(_c.made_at_us, _c.correction_id)
    return _streamed(connection, asked)


def pico_of(row: RowMapping | Mapping[str, Any], name: str) -> int | None:
    """An amount of a row; None where it is unknown."""
    units = row[f"{name}_units"]
    return None if units is None else joined_pico(units, row[f"{name}_pico"])


def amount_fields(row: RowMapping, names: tuple[str, ...]) -> dict[str, object]:
    """Amounts of a row as decimals, by the names of their columns in files; None where unknown."""
    amounts = ((name, pico_of(row, name)) for name in names)
    return {f"amount_{name}": None if pico is None else amount_text(pico) for name, pico in amounts}


def rate_text(pico: int | None) -> str | None:
    """A rate per million tokens, with all its digits."""
    return None if pico is None else amount_text(pico * TOKENS_PER_PRICE)


def _usage(row: RowMapping, *, internal: bool) -> dict[str, object]:
    found: dict[str, object] = {
        "line": USAGE,
        "id": row["request_id"],
        "request_id": row["request_id"],
        "opened_at": from_us(row["opened_at_us"]).isoformat(),
        "settled_at": None if row["settled_at_us"] is None else from_us(row["settled_at_us"]).isoformat(),
        "tenant": row["tenant_id"],
        "key": row["key_id"],
        "state": row["state"] or IN_FLIGHT,
    }
    same = ("model", "route", "tags", "job_id", "end_user", "http_status", "flags", "verdict", "miss_reason")
    found |= {
        name: row[name] for name in (*same, "convention", "usage_json", *_COUNTS, "price_id", "currency", *_CHANGES)
    }
    found |= {f"{name}_per_mtok": rate_text(row[f"{name}_pico"]) for name in _RATES}
    found |= amount_fields(row, _AMOUNTS)
    return found | {name: row[name] for name in _OPERATOR} if internal else found


def _correction(row: RowMapping) -> dict[str, object]:
    found: dict[str, object] = {
        "line": row["kind"],
        "id": row["correction_id"],
        "request_id": row["request_id"],
        "opened_at": from_us(row["made_at_us"]).isoformat(),
        "tenant": row["tenant_id"],
        "key": row["key_id"],
        "model": row["model"],
        "reason": row["reason"],
        "currency": row["currency"],
    }
    return found | amount_fields(row, ("full", "charged"))


def _unsplit(query: Query) -> Query:
    return Query(query.start, query.end, (), query.zone, query.about)


def _streamed(connection: Connection, asked: Select[Any]) -> Iterator[RowMapping]:
    with connection.execution_options(yield_per=_PAGE_ROWS).execute(asked) as found:  # a cursor in the server
        yield from found.mappings()
