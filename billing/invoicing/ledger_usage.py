"""What a tenant's period was, read from the rows of the ledger: entries to bill, and facts to print beside them.

    settled rows -- by model, currency, price and rates --> UsageEntry: disjoint tokens, which times rates is the amount
    the same     -- by model --------------------------> CacheLine
                 -- by state --------------------------> RequestCount
    corrections  -- one by one ------------------------> Correction

The rates stand in each row, so a later edit of the price file changes nothing here. Cached tokens that a price does not
discount (a minimum length, a policy) or has no rate for are among the fresh: they cost the input price.
O(requests of the period).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Column, ColumnElement, Connection, RowMapping, and_, case, func, or_, select

from billing.amount_sums import amount_sums, summed_pico
from billing.invoicing.documents import CacheLine, RequestCount, UsageEntry
from billing.invoicing.minor_units import exact_text, pico_of
from billing.money import joined_pico
from billing.rollup import QUARTER_US
from billing.schema import corrections, requests, settlements, usage_quarters
from billing.types import BILLABLE_STATES, SettlementState, UsageFlag
from billing.verification.columns import miss_kind

IN_FLIGHT = "in_flight"
_s, _q = settlements.c, usage_quarters.c
_CACHED = case((_s.cached_input_pico.is_(None), 0), else_=func.coalesce(_s.discounted_tokens, _s.cached_tokens, 0))
_WRITTEN = case((_s.cache_write_pico.is_(None), 0), else_=func.coalesce(_s.cache_write_tokens, 0))


@dataclass(frozen=True, slots=True)
class Correction:
    """A signed change of a bill, with the request that it is of, if of one."""

    id: str
    made_at_us: int
    request_id: str
    model: str
    kind: str
    reason: str
    pico: int


@dataclass(frozen=True, slots=True)
class PeriodUsage:
    """A tenant's period in one currency."""

    entries: tuple[UsageEntry, ...] = ()
    cache: tuple[CacheLine, ...] = ()
    requests: tuple[RequestCount, ...] = ()
    misses: tuple[RequestCount, ...] = ()

    @property
    def in_flight(self) -> int:
        """Requests that are not settled."""
        return sum(count.requests for count in self.requests if count.state == IN_FLIGHT)


def tenants_of(connection: Connection, start_us: int, end_us: int) -> Sequence[str]:
    """Who had requests or corrections in a period, or in the quarters of an hour that it cuts. O(quarters)."""
    asked = select(_q.tenant_id).where(_quarters(start_us, end_us))
    corrected = select(corrections.c.tenant_id).where(_within(corrections.c.made_at_us, start_us, end_us))
    return sorted(set(connection.scalars(asked.distinct())) | set(connection.scalars(corrected.distinct())))


def currencies_of(connection: Connection, tenant_id: str, start_us: int, end_us: int) -> Sequence[str]:
    """Currencies in which a tenant may have amounts in a period. O(quarters)."""
    used = select(_q.currency).where(
        _q.tenant_id == tenant_id,
        _q.state.in_(BILLABLE_STATES),
        _q.requests > _q.unknown_amounts,
        _quarters(start_us, end_us),
    )
    corrected = select(corrections.c.currency).where(
        corrections.c.tenant_id == tenant_id, _within(corrections.c.made_at_us, start_us, end_us)
    )
    found = {*connection.scalars(used.distinct()), *connection.scalars(corrected.distinct())}
    return sorted(one for one in found if one)


def is_all_billed(
    connection: Connection, tenant_id: str, currency: str, span: tuple[int, int], billed: Iterable[UsageEntry]
) -> bool:
    """Whether the sums by quarter know no billable request of a span beyond those billed, so that its rows need not be
    read. False also where a span cuts a quarter. O(quarters)."""
    start_us, end_us = span
    if start_us % QUARTER_US or end_us % QUARTER_US:
        return False
    known = connection.scalar(
        select(func.coalesce(func.sum(_q.requests), 0)).where(
            _q.tenant_id == tenant_id,
            _q.currency.in_((currency, "")),
            _q.state.in_(BILLABLE_STATES),
            _quarters(start_us, end_us),
        )
    )
    return int(known or 0) == sum(entry.requests + entry.unknown_amounts for entry in billed)


def usage_of(connection: Connection, tenant_id: str, currency: str, start_us: int, end_us: int) -> PeriodUsage:
    """The requests that a tenant opened in [start, end), priced in `currency` or not at all."""
    is_known = _s.charged_units.is_not(None)
    keys = (
        *(requests.c.model, _s.price_id, _s.state, _s.flags, _s.verdict, miss_kind().label("miss_reason")),
        *(_s.input_pico, _s.cached_input_pico, _s.cache_write_pico, _s.output_pico),
        is_known.label("is_known"),
    )
    sums: Iterable[tuple[str, ColumnElement[int]]] = (
        ("prompt", _s.prompt_tokens),
        ("hit", _s.cached_tokens),
        ("fresh", _s.prompt_tokens - _CACHED - _WRITTEN),
        ("cached", _CACHED),
        ("written", _WRITTEN),
        ("output", _s.output_tokens),
    )
    found = connection.execute(
        select(
            *keys,
            func.count().label("requests"),
            *(func.coalesce(func.sum(column), 0).label(f"{name}_tokens") for name, column in sums),
            func.sum(_s.prompt_tokens).filter(_s.cached_tokens.is_not(None)).label("reported_tokens"),
            *amount_sums("full", _s.full_units, _s.full_pico),
            *amount_sums("charged", _s.charged_units, _s.charged_pico),
        )
        .select_from(requests.outerjoin(settlements, _s.request_id == requests.c.request_id))
        .where(requests.c.tenant_id == tenant_id, _within(requests.c.opened_at_us, start_us, end_us))
        .where(or_(_s.currency == currency, _s.currency.is_(None)))
        .group_by(*keys)
    ).mappings()
    rows = [_Sums.of(row) for row in found]
    return PeriodUsage(_entries(rows, start_us, end_us), _cache(rows), _counts(rows), _misses(rows))


def corrections_of(
    connection: Connection, tenant_id: str, currency: str, start_us: int, end_us: int
) -> Sequence[Correction]:
    """Corrections made in [start, end), in their order."""
    c = corrections.c
    found = connection.execute(
        select(corrections)
        .where(c.tenant_id == tenant_id, c.currency == currency, _within(c.made_at_us, start_us, end_us))
        .order_by(c.made_at_us, c.correction_id)
    ).mappings()
    return [
        Correction(
            id=row["correction_id"],
            made_at_us=row["made_at_us"],
            request_id=row["request_id"] or "",
            model=row["model"] or "",
            kind=row["kind"],
            reason=row["reason"],
            pico=joined_pico(row["charged_units"], row["charged_pico"]),
        )
        for row in found
    ]


def not_billed_yet(now: Iterable[UsageEntry], billed: Iterable[UsageEntry]) -> tuple[UsageEntry, ...]:
    """What the ledger has of a period beyond what invoices have billed of it. Rows only come, so it is never less;
    where rows were archived since, there is nothing to add."""
    before: dict[object, UsageEntry] = {}
    for entry in billed:
        before[entry.key] = _plus(before[entry.key], entry, 1) if entry.key in before else entry
    new = []
    for entry in now:
        rest = _plus(entry, before[entry.key], -1) if entry.key in before else entry
        if rest.requests > 0 or rest.unknown_amounts > 0:
            new.append(rest)
    return tuple(new)


def _plus(one: UsageEntry, other: UsageEntry, sign: int) -> UsageEntry:
    return replace(
        one,
        requests=one.requests + sign * other.requests,
        fresh_tokens=one.fresh_tokens + sign * other.fresh_tokens,
        cached_tokens=one.cached_tokens + sign * other.cached_tokens,
        written_tokens=one.written_tokens + sign * other.written_tokens,
        output_tokens=one.output_tokens + sign * other.output_tokens,
        full=exact_text(pico_of(one.full) + sign * pico_of(other.full)),
        charged=exact_text(pico_of(one.charged) + sign * pico_of(other.charged)),
        unknown_amounts=one.unknown_amounts + sign * other.unknown_amounts,
    )


@dataclass(frozen=True, slots=True)
class _Sums:
    """A group of rows that differ in their sums alone."""

    model: str
    price_id: str
    rates: tuple[int, int, int, int]
    state: str
    flags: frozenset[str]
    verdict: str
    miss_reason: str
    is_known: bool
    requests: int
    tokens: dict[str, int]
    full_pico: int
    charged_pico: int

    @classmethod
    def of(cls, row: RowMapping) -> "_Sums":
        names = ("prompt", "hit", "fresh", "cached", "written", "output", "reported")
        fresh = row["input_pico"] or 0
        rates = (row["cached_input_pico"], row["cache_write_pico"])
        cached, written = (fresh if rate is None else rate for rate in rates)
        return cls(
            model=row["model"],
            price_id=row["price_id"] or "",
            rates=(fresh, cached, written, row["output_pico"] or 0),
            state=row["state"] or IN_FLIGHT,
            flags=frozenset((row["flags"] or "").split(",")),
            verdict=row["verdict"] or "",
            miss_reason=row["miss_reason"] or "",
            is_known=bool(row["is_known"]),
            requests=row["requests"],
            tokens={name: int(row[f"{name}_tokens"] or 0) for name in names},
            full_pico=summed_pico(row, "full"),
            charged_pico=summed_pico(row, "charged"),
        )

    @property
    def is_billable(self) -> bool:
        return self.state != IN_FLIGHT and SettlementState(self.state).billable


def _entries(rows: Iterable[_Sums], start_us: int, end_us: int) -> tuple[UsageEntry, ...]:
    found: dict[object, UsageEntry] = {}
    for row in rows:
        if not row.is_billable:
            continue
        counted = row.tokens if row.is_known else dict.fromkeys(row.tokens, 0)
        entry = UsageEntry(
            start_us,
            end_us,
            row.model,
            row.price_id,
            row.rates,
            requests=row.requests if row.is_known else 0,
            fresh_tokens=counted["fresh"],
            cached_tokens=counted["cached"],
            written_tokens=counted["written"],
            output_tokens=counted["output"],
            full=exact_text(row.full_pico if row.is_known else 0),
            charged=exact_text(row.charged_pico if row.is_known else 0),
            unknown_amounts=0 if row.is_known else row.requests,
        )
        found[entry.key] = _plus(found[entry.key], entry, 1) if entry.key in found else entry
    return tuple(sorted(found.values(), key=lambda entry: (entry.model, entry.price_id, entry.rates)))


def _cache(rows: Sequence[_Sums]) -> tuple[CacheLine, ...]:
    billed = [row for row in rows if row.is_billable and row.is_known]
    lines = []
    for model in sorted({row.model for row in billed}):
        own = [row for row in billed if row.model == model]
        told = [row for row in own if UsageFlag.ESTIMATED.value not in row.flags]
        full, charged = sum(row.full_pico for row in own), sum(row.charged_pico for row in own)
        lines.append(
            CacheLine(
                model=model,
                prompt_tokens=sum(row.tokens["prompt"] for row in own),
                cached_tokens=sum(row.tokens["hit"] for row in own),
                reported_prompt_tokens=sum(row.tokens["reported"] for row in told),
                reported_cached_tokens=sum(row.tokens["hit"] for row in told),
                verified_tokens=sum(row.tokens["hit"] for row in own if row.verdict == "verified"),
                disputed_tokens=sum(row.tokens["hit"] for row in own if UsageFlag.DISPUTED.value in row.flags),
                full=exact_text(full),
                charged=exact_text(charged),
                saved=exact_text(full - charged),
            )
        )
    return tuple(lines)


def _counts(rows: Sequence[_Sums]) -> tuple[RequestCount, ...]:
    order = [*(state.value for state in SettlementState), IN_FLIGHT]
    found = {(row.state, row.is_billable and row.is_known) for row in rows}
    return tuple(
        RequestCount(
            state,
            sum(row.requests for row in rows if (row.state, row.is_billable and row.is_known) == (state, is_billed)),
            is_billed,
        )
        for state, is_billed in sorted(found, key=lambda one: (order.index(one[0]), not one[1]))
    )


def _misses(rows: Sequence[_Sums]) -> tuple[RequestCount, ...]:
    reasons = sorted({row.miss_reason for row in rows if row.miss_reason})
    return tuple(
        RequestCount(reason, sum(row.requests for row in rows if row.miss_reason == reason), False)
        for reason in reasons
    )


def _quarters(start_us: int, end_us: int) -> ColumnElement[bool]:
    return and_(_q.quarter_us > start_us - QUARTER_US, _q.quarter_us < end_us)


def _within(column: Column[int], start_us: int, end_us: int) -> ColumnElement[bool]:
    return and_(column >= start_us, column < end_us)
