"""What the ledger knows for an account: calls by endpoint, and what was charged, by whom it was for.

    attempts -- settlements -- requests --> Call, Call, ...  of an endpoint, by start           [ended or open in it]
                settlements -- requests --> Earned by Who and currency                          [opened in it]
                corrections -- requests --> the same                                            [made in it]

The call that answered is the attempt at the endpoint that the settlement names; a request never goes to one endpoint
twice. Where another one computed the prompt, its call has the seconds of that, and the one that answered the rest.
Several ledgers (one for each gateway process) are merged: they share endpoints, so their calls share hours.
The ledgers are only read. Costs: a sort of the calls of the period, in the database; nothing is kept here.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from heapq import merge
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection, case, func, select

from billing.amount_sums import amount_sums, summed_pico
from billing.economics.fills import Fills, Prompt, fills
from billing.economics.rates import HOUR_US
from billing.economics.types import Call, Measured, Who
from billing.money import joined_pico
from billing.older import column_in
from billing.reading import reading
from billing.reports.reading import need_rows
from billing.schema import attempts, chains, corrections, requests, settlements
from billing.types import BILLABLE_STATES, PREFILLED, SettlementState

LONGEST_US: Final = 24 * HOUR_US
"""A call that began longer before a period than this is not looked for in it."""

_PAGE_ROWS = 2000
_S_US = 10**6
_a, _s, _r, _c = attempts.c, settlements.c, requests.c, corrections.c

Where = Path | str
"""A path, or the URL of a database."""


@dataclass(slots=True)
class Earned:
    """What requests were and what was charged for them, in one currency; sums of known amounts.

    Tokens and money are of billable ones. `credited_pico` is what corrections made in the period changed, signed.
    """

    requests: int = 0
    billable: int = 0
    interrupted: int = 0
    """Of them nothing is known, so neither what they cost."""
    unknown_amounts: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    reported_prompt_tokens: int = 0
    reported_cached_tokens: int = 0
    full_pico: int = 0
    charged_pico: int = 0
    credited_pico: int = 0
    first_us: int | None = None
    last_us: int | None = None
    """When the first and the last of them were opened."""

    @property
    def revenue_pico(self) -> int:
        """Charged, with what corrections changed."""
        return self.charged_pico + self.credited_pico

    @property
    def hit_share(self) -> float | None:
        """Cached over prompt tokens where the engine reported both."""
        return self.reported_cached_tokens / self.reported_prompt_tokens if self.reported_prompt_tokens else None

    def without_money(self) -> "Earned":
        """The counts alone."""
        return replace(self, full_pico=0, charged_pico=0, credited_pico=0)

    def add(self, other: "Earned") -> "Earned":
        """Take another's sums into this one; returns itself."""
        self.requests += other.requests
        self.billable += other.billable
        self.interrupted += other.interrupted
        self.unknown_amounts += other.unknown_amounts
        self.prompt_tokens += other.prompt_tokens
        self.cached_tokens += other.cached_tokens
        self.output_tokens += other.output_tokens
        self.reported_prompt_tokens += other.reported_prompt_tokens
        self.reported_cached_tokens += other.reported_cached_tokens
        self.full_pico += other.full_pico
        self.charged_pico += other.charged_pico
        self.credited_pico += other.credited_pico
        if other.first_us is not None and other.last_us is not None:
            self.first_us = other.first_us if self.first_us is None else min(self.first_us, other.first_us)
            self.last_us = other.last_us if self.last_us is None else max(self.last_us, other.last_us)
        return self


EarnedBy = dict[tuple[Who, str | None], Earned]
"""By whom it was for and currency; None where nothing was priced."""


class Ledgers:
    """One or more ledgers, open to be read."""

    def __init__(self, connections: Sequence[Connection], places: Sequence[Where] = ()) -> None:
        self._connections = connections
        self._places = places

    def need_rows(self, start_us: int, end_us: int) -> None:
        """Raises `PeriodInvalid` where rows of a period were archived, and their file is not among the ledgers."""
        for connection in self._connections:
            need_rows(connection, start_us, end_us, self._places)

    def calls(self, start_us: int, end_us: int) -> Iterator[tuple[str, Iterable[Call]]]:
        """The calls of a period by endpoint, each endpoint's by start; to be used up before the next is asked for."""
        found = merge(*(_calls(one, start_us, end_us) for one in self._connections), key=_place)
        for endpoint_id, calls in groupby(found, key=itemgetter(0)):
            yield endpoint_id, (call for _, call in calls)

    def earned(self, start_us: int, end_us: int) -> EarnedBy:
        """What the requests opened in a period, and the corrections made in it, brought."""
        found: EarnedBy = defaultdict(Earned)
        for connection in self._connections:
            for key, one in _charged(connection, start_us, end_us):
                found[key].add(one)
        for key, one in self._credited(start_us, end_us):
            found[key].add(one)
        return dict(found)

    def _credited(self, start_us: int, end_us: int) -> Iterable[tuple[tuple[Who, str | None], Earned]]:
        """Corrections, each once: the file of an archived month has copies, and there their requests are known."""
        found: dict[str, tuple[tuple[Who, str | None], Earned]] = {}
        for connection in self._connections:
            for id_, is_of_known, one in _credited(connection, start_us, end_us):
                if is_of_known or id_ not in found:
                    found[id_] = one
        return found.values()

    @property
    def connections(self) -> Sequence[Connection]:
        """One to each ledger."""
        return self._connections

    def fills(self, start_us: int, end_us: int) -> Fills:
        """Who filled what others found cached, as far as chains were kept."""
        found = (_prompts(connection, start_us, end_us) for connection in self._connections)
        return fills(prompt for _, prompt in merge(*found, key=itemgetter(0)))


@contextmanager
def ledgers(places: Iterable[Where]) -> Iterator[Ledgers]:
    """Open ledgers to be read. Raises `LedgerUnavailable`."""
    with ExitStack() as stack:
        named = tuple(places)
        yield Ledgers([stack.enter_context(reading(where)) for where in named], named)


def _place(found: tuple[str, Call]) -> tuple[str, int]:
    endpoint_id, call = found
    return endpoint_id, call.start_us


def _calls(connection: Connection, start_us: int, end_us: int) -> Iterator[tuple[str, Call]]:
    """By endpoint, in the order of code points whatever the database's own is, and by start."""
    name = _a.endpoint_id.collate("C") if connection.dialect.name == "postgresql" else _a.endpoint_id
    billable, prefill_endpoint_id = _s.state.in_(BILLABLE_STATES), column_in(connection, _s.prefill_endpoint_id)
    served = (_s.endpoint_id == _a.endpoint_id) & billable
    prefilled = (prefill_endpoint_id == _a.endpoint_id) & (_a.outcome == PREFILLED) & billable
    query = (
        select(
            *(_a.endpoint_id, _a.started_at_us, _a.ended_at_us, served.label("served"), prefilled.label("prefilled")),
            prefill_endpoint_id.is_not(None).label("is_split"),
            *(_r.tenant_id, _r.model, _r.end_user, _r.job_id),
            *(_s.prefill_s, _s.decode_s, _s.prompt_tokens, _s.cached_tokens, _s.output_tokens),
            *(_s.currency, _s.full_units, _s.full_pico, _s.charged_units, _s.charged_pico),
        )
        .select_from(
            attempts.join(settlements, _s.request_id == _a.request_id).join(requests, _r.request_id == _a.request_id)
        )
        .where(
            *(_a.started_at_us < end_us, _a.ended_at_us >= start_us),
            *(_r.opened_at_us < end_us, _r.opened_at_us >= start_us - LONGEST_US),
        )
        .order_by(name, _a.started_at_us, _a.request_id)
    )
    for row in connection.execution_options(yield_per=_PAGE_ROWS).execute(query):
        yield row[0], _call(row)


def _call(row: Sequence[Any]) -> Call:
    _, started_us, ended_us, served, prefilled, is_split, tenant_id, model, end_user, job_id, *rest = row
    prefill_s, decode_s, prompt, cached, output, currency, full_units, full_pico, charged_units, charged_pico = rest
    saved_pico = None
    if charged_units is not None and full_units is not None:
        saved_pico = joined_pico(full_units, full_pico) - joined_pico(charged_units, charged_pico)
    measured = None
    if prefilled:
        measured = _measured(prefill_s, 0.0, prompt, cached, 0)
    elif served:
        measured = _measured(0.0 if is_split else prefill_s, decode_s, prompt, cached, output)
        if is_split and measured is not None:
            measured = measured._replace(is_carried=True)
    return Call(
        who=Who(tenant_id, model, end_user, job_id),
        start_us=started_us,
        end_us=max(ended_us, started_us),
        measured=measured,
        lost=not (served or prefilled),
        saved_pico=saved_pico if served or prefilled else None,
        saved_currency=currency,
    )


def _measured(
    prefill_s: float | None, decode_s: float | None, prompt: int | None, cached: int | None, output: int | None
) -> Measured | None:
    """None unless all of it is known. The first token comes from the prefill: an answer of one had no decoding."""
    if prefill_s is None or prompt is None or cached is None or output is None:
        return None
    if decode_s is None:
        if output > 1:
            return None
        decode_s = 0.0
    return Measured(round(prefill_s * _S_US), round(decode_s * _S_US), max(prompt - cached, 0), cached, output)


def _charged(connection: Connection, start_us: int, end_us: int) -> Iterator[tuple[tuple[Who, str | None], Earned]]:
    keys = (_r.tenant_id, _r.model, _r.end_user, _r.job_id, _s.currency, _s.state)
    reported = _s.cached_tokens.is_not(None) & _s.flags.not_like("%estimated%")
    tokens = (_s.prompt_tokens, _s.cached_tokens, _s.output_tokens)
    query = (
        select(
            *keys,
            func.count().label("requests"),
            func.count(_s.charged_units).label("priced"),
            *(of(_r.opened_at_us).label(name) for of, name in ((func.min, "first_us"), (func.max, "last_us"))),
            *(func.coalesce(func.sum(one), 0).label(one.name) for one in tokens),
            func.coalesce(func.sum(case((reported, _s.prompt_tokens))), 0).label("reported_prompt"),
            func.coalesce(func.sum(case((reported, _s.cached_tokens))), 0).label("reported_cached"),
            *amount_sums("full", _s.full_units, _s.full_pico),
            *amount_sums("charged", _s.charged_units, _s.charged_pico),
        )
        .select_from(requests.outerjoin(settlements, _s.request_id == _r.request_id))
        .where(_r.opened_at_us >= start_us, _r.opened_at_us < end_us)
        .group_by(*keys)
    )
    for row in connection.execute(query).mappings():
        who = Who(row["tenant_id"], row["model"], row["end_user"], row["job_id"])
        if row["state"] not in BILLABLE_STATES:
            interrupted = row["requests"] if row["state"] == SettlementState.INTERRUPTED else 0
            times = {"first_us": row["first_us"], "last_us": row["last_us"]}
            yield (who, None), Earned(requests=row["requests"], interrupted=interrupted, **times)
            continue
        yield (
            (who, row["currency"]),
            Earned(
                requests=row["requests"],
                billable=row["requests"],
                unknown_amounts=row["requests"] - row["priced"],
                prompt_tokens=int(row["prompt_tokens"]),
                cached_tokens=int(row["cached_tokens"]),
                output_tokens=int(row["output_tokens"]),
                reported_prompt_tokens=int(row["reported_prompt"]),
                reported_cached_tokens=int(row["reported_cached"]),
                full_pico=summed_pico(row, "full"),
                charged_pico=summed_pico(row, "charged"),
                first_us=row["first_us"],
                last_us=row["last_us"],
            ),
        )


def _credited(
    connection: Connection, start_us: int, end_us: int
) -> Iterator[tuple[str, bool, tuple[tuple[Who, str | None], Earned]]]:
    """Each with its id, and whether the request that it is of is known."""
    query = (
        select(
            *(_c.correction_id, _r.request_id.is_not(None), _c.tenant_id, _c.model, _r.end_user, _r.job_id),
            *(_c.currency, _c.charged_units, _c.charged_pico),
        )
        .select_from(corrections.outerjoin(requests, _r.request_id == _c.request_id))
        .where(_c.made_at_us >= start_us, _c.made_at_us < end_us)
    )
    for id_, is_of_known, tenant_id, model, end_user, job_id, currency, units, pico in connection.execute(query):
        who = Who(tenant_id, model or "", end_user, job_id)
        yield id_, bool(is_of_known), ((who, currency), Earned(credited_pico=joined_pico(units, pico)))


def _prompts(connection: Connection, start_us: int, end_us: int) -> Iterator[tuple[int, Prompt]]:
    """The prompts of a period of which a chain was kept, each with its time of opening, and by that."""
    query = (
        select(
            _r.opened_at_us,
            _r.share_group,
            _r.tenant_id,
            _r.model,
            chains.c.block_tokens,
            chains.c.hashes,
            _s.cached_tokens,
        )
        .select_from(
            requests.join(chains, chains.c.request_id == _r.request_id).join(
                settlements, _s.request_id == _r.request_id
            )
        )
        .where(_r.opened_at_us >= start_us, _r.opened_at_us < end_us, _s.state.in_(BILLABLE_STATES))
        .order_by(_r.opened_at_us, _r.request_id)
    )
    for row in connection.execution_options(yield_per=_PAGE_ROWS).execute(query):
        yield row[0], Prompt(*row[1:])
