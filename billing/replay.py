"""What the requests of a period were, to be sent once more elsewhere; and what was measured of them.

    requests -- settlements -- chains --> sums by model, state and what is known  --> Group, Group, ...
                   |                                                                       |  which of them are replayed
                   `--> PastRequest, PastRequest, ... in order of opening  <---------------+
                   `--> times to first token                               <---------------'--> Recorded

Only requests that a tenant pays for (complete and partial), whose chain was kept and whose tokens are known, can be
replayed; the groups count the others. The file is only read. What was settled after `as_of` is in flight for every
reading, so that each sees the same, though a gateway writes meanwhile: of the instant of `as_of` itself alone, rows may
still be missing that are on their way to the disk.

Each gateway process has a ledger of its own, so a period is read from any number of files, merged by time.

Costs: O(requests in the period) a reading, in SQLite; `past_requests` holds one page of each file, `recorded` 8 bytes a
request.
"""

from array import array
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import reduce
from heapq import merge
from itertools import chain
from math import ceil
from operator import attrgetter
from pathlib import Path
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, false, func, inspect, null, select

from billing.reading import reading
from billing.reports.reading import need_rows
from billing.reports.report import opened_in
from billing.reports.sums import sums, tally_of
from billing.reports.tally import IN_FLIGHT, Tally
from billing.schema import chains, requests, settlements
from billing.types import BILLABLE_STATES, KeptChain
from billing.when import to_us

_PAGE_ROWS = 2000
_s = settlements.c
_prompt_tokens = func.coalesce(_s.prompt_tokens, requests.c.prompt_tokens_expected)
_measured = _prompt_tokens.is_not(None) & _s.output_tokens.is_not(None)


@dataclass(frozen=True, slots=True)
class LedgerPeriod:
    """Requests opened in [start, end) as the ledgers (paths or URLs) knew them at `as_of`, of one tenant or all."""

    paths: tuple[Path | str, ...]
    start: datetime
    end: datetime
    as_of: datetime
    tenant: str | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """Requests of one model that ended in one way and of which the same is known.

    `block_tokens` is None where no chain was kept. `measured`: the number of tokens of prompt and answer is known.
    `first_us` is when the first of them was opened.
    """

    model: str
    state: str
    block_tokens: int | None
    measured: bool
    currency: str | None
    first_us: int
    tally: Tally

    @property
    def billable(self) -> bool:
        """Whether they are requests that a tenant pays for."""
        return self.state in BILLABLE_STATES

    def plus(self, other: "Group") -> "Group":
        """Both together; they differ in flags alone."""
        return replace(self, first_us=min(self.first_us, other.first_us), tally=self.tally.plus(other.tally))


@dataclass(frozen=True, slots=True)
class PastRequest:
    """One request that can be replayed. Its prompt's tokens are counted by the engine, else by the gateway."""

    opened_at_us: int
    tenant_id: str
    prompt_tokens: int
    output_tokens: int
    chain: KeptChain


@dataclass(frozen=True, slots=True)
class Recorded:
    """What was measured of requests when they were served; None where the ledger does not know it.

    `hit_share` is reported cached tokens over prompt tokens, where an engine reported both. Times to the first token
    are those of `streamed` requests alone, nearest rank: of an answer in one piece only its end is known. Amounts are
    as billed then, sums over the requests that had a price; None where they are of several currencies.
    """

    requests: int
    prompt_tokens: int
    output_tokens: int
    hit_share: float | None
    streamed: int
    ttft_p50_s: float | None
    ttft_p90_s: float | None
    ttft_p99_s: float | None
    currency: str | None
    full_pico: int | None
    charged_pico: int | None


def groups_of(period: LedgerPeriod) -> tuple[Group, ...]:
    """All requests of a period, counted by what can be done with them. Raises `LedgerUnavailable`, `PeriodInvalid`."""
    found: dict[tuple[object, ...], Group] = {}
    for group in (group for path in period.paths for group in _groups_in(path, period)):
        key = (group.model, group.state, group.block_tokens, group.measured, group.currency)
        found[key] = found[key].plus(group) if key in found else group
    return tuple(found.values())


def _groups_in(path: Path | str, period: LedgerPeriod) -> list[Group]:
    """Several may differ in flags alone."""
    chosen = opened_in(period.start, period.end, period.tenant)
    with reading(path) as connection:
        source, block_tokens, _ = _source(connection, period)
        keys = (
            requests.c.model,
            _s.currency,
            _s.state,
            _s.flags,
            block_tokens.label("block_tokens"),
            _measured.label("measured"),
        )
        first = func.min(requests.c.opened_at_us).label("first_us")
        rows = connection.execute(sums(keys, source, chosen).add_columns(first)).mappings().all()
    return [
        Group(
            model=row["model"],
            state=row["state"] or IN_FLIGHT,
            block_tokens=row["block_tokens"],
            measured=bool(row["measured"]),
            currency=row["currency"],
            first_us=row["first_us"],
            tally=tally_of(row),
        )
        for row in rows
    ]


def past_requests(period: LedgerPeriod, model: str, block_tokens: Collection[int]) -> Iterator[PastRequest]:
    """Those of a model that can be replayed, by time of opening, whose chain has blocks of one of these sizes.

    Lazy: the files are open, and held on one snapshot each, until the iterator ends or is closed.
    """
    readings = [_past_requests_in(path, period, model, block_tokens) for path in period.paths]
    return readings[0] if len(readings) == 1 else merge(*readings, key=attrgetter("opened_at_us"))


def _past_requests_in(
    path: Path | str, period: LedgerPeriod, model: str, block_tokens: Collection[int]
) -> Iterator[PastRequest]:
    with reading(path) as connection:
        source, sizes, hashes = _source(connection, period)
        columns = (requests.c.opened_at_us, requests.c.tenant_id, _prompt_tokens, _s.output_tokens, sizes, hashes)
        chosen = _replayable(period, model, sizes, block_tokens)
        query = select(*columns).select_from(source).where(*chosen)
        for row in _streamed(connection, query.order_by(requests.c.opened_at_us, requests.c.request_id)):
            opened_at_us, tenant_id, prompt_tokens, output_tokens, size, packed = row
            yield PastRequest(opened_at_us, tenant_id, prompt_tokens, output_tokens, KeptChain(size, packed))


def recorded(period: LedgerPeriod, model: str, groups: Iterable[Group]) -> Recorded | None:
    """What was measured of those groups of a model, all of them replayable; None where there is none."""
    groups = [group for group in groups if group.model == model]
    if not groups:
        return None
    total = reduce(Tally.plus, (group.tally for group in groups))
    currencies = {group.currency for group in groups if group.tally.charged_pico is not None}
    currency = currencies.pop() if len(currencies) == 1 else None
    sizes = {group.block_tokens for group in groups if group.block_tokens}
    times_s = array("d", chain.from_iterable(_first_token_times(path, period, model, sizes) for path in period.paths))
    times_s = array("d", sorted(times_s))
    return Recorded(
        requests=total.requests,
        prompt_tokens=total.prompt_tokens,
        output_tokens=total.output_tokens,
        hit_share=total.hit_share,
        streamed=len(times_s),
        ttft_p50_s=_ranked(times_s, 50),
        ttft_p90_s=_ranked(times_s, 90),
        ttft_p99_s=_ranked(times_s, 99),
        currency=currency,
        full_pico=None if currency is None else total.full_pico,
        charged_pico=None if currency is None else total.charged_pico,
    )


def _first_token_times(
    path: Path | str, period: LedgerPeriod, model: str, block_tokens: Collection[int]
) -> Iterator[float]:
    """In seconds, of those that were streamed."""
    with reading(path) as connection:
        source, sizes, _ = _source(connection, period)
        chosen = [*_replayable(period, model, sizes, block_tokens), requests.c.stream, _s.ttft_s.is_not(None)]
        yield from chain.from_iterable(_streamed(connection, select(_s.ttft_s).select_from(source).where(*chosen)))


def _ranked(times_s: "array[float]", percent: int) -> float | None:
    return times_s[ceil(percent * len(times_s) / 100) - 1] if times_s else None


def _source(connection: Connection, period: LedgerPeriod) -> tuple[Any, ColumnElement[Any], ColumnElement[Any]]:
    """Requests with what is known of each, the column of their blocks' size, and that of their hashes.

    A ledger that only older gateways had has no table of chains. Raises `PeriodInvalid` where rows were archived.
    """
    need_rows(connection, to_us(period.start), to_us(period.end), period.paths)
    known = requests.outerjoin(
        settlements, (_s.request_id == requests.c.request_id) & (_s.settled_at_us <= to_us(period.as_of))
    )
    if inspect(connection).has_table(chains.name):
        kept = chains.c
        return known.outerjoin(chains, kept.request_id == requests.c.request_id), kept.block_tokens, kept.hashes
    none = select(null().label("block_tokens"), null().label("hashes")).where(false()).subquery("chains")
    return known.outerjoin(none, false()), none.c.block_tokens, none.c.hashes


def _replayable(
    period: LedgerPeriod, model: str, sizes: ColumnElement[Any], block_tokens: Collection[int]
) -> list[ColumnElement[bool]]:
    return [
        *opened_in(period.start, period.end, period.tenant),
        requests.c.model == model,
        _s.state.in_(BILLABLE_STATES),
        sizes.in_(list(block_tokens)),
        _measured,
    ]


def _streamed(connection: Connection, query: Select[Any]) -> Iterator[Sequence[Any]]:
    return iter(connection.execution_options(yield_per=_PAGE_ROWS).execute(query))
