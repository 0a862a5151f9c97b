"""Reports over HTTP: a tenant's own usage, with its own key; and everyone's, under `/admin/reports`.

    GET /prefixgate/v1/usage         lines and totals       tenant = whose key it is, never a parameter
    GET /prefixgate/v1/usage/rows    the rows behind them, a page at a time
    GET /admin/reports               as the first, of one tenant or all
    GET /admin/reports/rows          as the second

The ledger is read in threads of their own, of which there are few, each statement with a deadline; so no request waits
for a report. A tenant has one reading at a time and so many a minute; what is beyond is refused, not queued.
"""

import asyncio
import json
import time
from collections.abc import Callable, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import parse_qs

from fastapi import APIRouter, HTTPException, Request, Response

from billing import (
    About,
    LedgerUnavailable,
    PeriodInvalid,
    Query,
    ReportInvalid,
    ReportTooSlow,
    Source,
    render_csv,
    report_of,
)
from billing.reports.csv_text import csv_lines
from billing.reports.query import USUAL, USUAL_SOURCE, split_names, tag_filter
from billing.reports.reading import one_view
from billing.reports.rows import NUMBERS, cursor_of, usage_columns, usage_rows
from billing.reports.text import json_of
from billing.reports.zones import asked_period
from billing.when import zone_named
from gateway.errors import BadRequest, GatewayError, NotFound, RateLimited, Unavailable
from gateway.report_rates import Rates
from gateway.status import Answer

USAGE_PATH: Final = "/prefixgate/v1/usage"
ROWS_PATH: Final = f"{USAGE_PATH}/rows"
MOST_ROWS: Final = 10_000
"""Of a page."""
MOST_DAYS: Final = 400
"""Of a tenant's report."""
DEADLINE_S: Final = 10.0
_USUAL_ROWS: Final = 1_000
_THREADS: Final = 2
_TENANTS_SPLIT: Final = tuple(name for name in USUAL if name != "tenant")
_SINGLE: Final = frozenset({"from", "to", "month", "time_zone", "key", "model", "format", "misses", "limit", "after"})
_OF_ROWS: Final = frozenset({"limit", "after"})
_MANY: Final = frozenset({"by", "tag"})
_OPERATORS: Final = frozenset({"tenant", "source"})
_JSON: Final = (b"content-type", b"application/json")
_CSV: Final = (b"content-type", b"text/csv; charset=utf-8")

Choice = TypeVar("Choice", bound=StrEnum)
Parameters = Mapping[str, Sequence[str]]


class Written(StrEnum):
    """How an answer is written."""

    JSON = "json"
    CSV = "csv"


@dataclass(frozen=True, slots=True)
class Asked:
    """A report, or a page of rows, as it was asked for."""

    query: Query
    written: Written
    limit: int
    after: str | None
    internal: bool


class ReportPages:
    """The pages, and the threads in which they are made."""

    def __init__(
        self, where: Path | str, clock: Callable[[], float] = time.monotonic, deadline_s: float = DEADLINE_S
    ) -> None:
        self._where = where
        self._deadline_s = deadline_s
        self._rates = Rates(clock)
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="report")
        self._reading = 0

    def close(self) -> None:
        """Take no more questions. What is being read ends by its deadline."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def of_tenant(self, tenant: str, path: str, query_string: str) -> Answer:
        """What a tenant asks about itself. Raises `BadRequest`, `NotFound`, `RateLimited`, `LedgerUnavailable`."""
        if path not in (USAGE_PATH, ROWS_PATH):
            raise NotFound(f"there is nothing at {path[:200]}")
        asked = _asked(parse_qs(query_string, keep_blank_values=True, max_num_fields=100), tenant)
        if asked.query.end - asked.query.start > timedelta(days=MOST_DAYS):
            raise BadRequest(f"a report covers at most {MOST_DAYS} days")
        with self._rates.turn_of(tenant):
            return await self._answer(asked, rows=path == ROWS_PATH)

    async def of_operator(self, parameters: Parameters, *, rows: bool) -> Answer:
        """What the operator asks about one tenant or all. Raises as `of_tenant` does."""
        return await self._answer(_asked(parameters, None), rows=rows)

    async def _answer(self, asked: Asked, *, rows: bool) -> Answer:
        if self._reading >= _THREADS:
            raise RateLimited("other reports are being made; try again in a moment", "reports", 1, ())
        self._reading += 1
        try:
            make = self._rows if rows else self._report
            # Shielded: a thread that reads is counted until it has ended, also where nobody waits for it.
            future = asyncio.get_running_loop().run_in_executor(self._threads, make, asked)
            future.add_done_callback(self._ended)
            return await asyncio.shield(future)
        except ReportTooSlow as error:
            raise RateLimited(str(error), "reports", 60, ()) from None
        except (PeriodInvalid, ReportInvalid) as error:
            raise BadRequest(str(error)) from None
        except LedgerUnavailable:
            raise Unavailable("the ledger cannot be read at the moment; try again") from None

    def _ended(self, future: "asyncio.Future[Answer]") -> None:
        self._reading -= 1
        if not future.cancelled():
            future.exception()  # seen, where nobody waits any more

    def _report(self, asked: Asked) -> Answer:
        found = report_of(self._where, asked.query, self._deadline_s)
        if asked.written is Written.CSV:
            return Answer(200, (_CSV,), render_csv(found).encode())
        return Answer(200, (_JSON,), json.dumps(json_of(found)).encode())

    def _rows(self, asked: Asked) -> Answer:
        after = None if asked.after is None else cursor_of(asked.after)
        with (
            one_view(self._where, self._deadline_s) as connection,
            closing(usage_rows(connection, asked.query, after, internal=asked.internal)) as reading,
        ):
            found = list(islice(reading, asked.limit))
        rows = [row for _, row in found]
        following = found[-1][0].text() if len(found) == asked.limit else None
        if asked.written is Written.JSON:
            return Answer(200, (_JSON,), json.dumps({"rows": rows, "next": following}).encode())
        text = "".join(csv_lines(usage_columns(internal=asked.internal), rows, NUMBERS))
        more = () if following is None else ((b"x-prefixgate-next", following.encode()),)
        return Answer(200, (_CSV, *more), text.encode())


def report_router(pages: ReportPages) -> APIRouter:
    """The routes under `/admin/reports`; who uses them asks for a token."""
    router = APIRouter(prefix="/admin/reports")

    async def answer(request: Request, *, rows: bool) -> Response:
        parameters = {name: request.query_params.getlist(name) for name in request.query_params}
        try:
            found = await pages.of_operator(parameters, rows=rows)
        except GatewayError as error:
            headers = {} if error.retry_after_s is None else {"retry-after": str(error.retry_after_s)}
            raise HTTPException(error.status, error.message, headers) from None
        headers = {name.decode(): value.decode() for name, value in found.headers}
        return Response(found.body, found.status, headers)

    @router.get("", openapi_extra={"parameters": _documented(_SINGLE - _OF_ROWS | _MANY | _OPERATORS)})
    async def report(request: Request) -> Response:
        """Tokens and money of a period, split as asked, as JSON or CSV."""
        return await answer(request, rows=False)

    @router.get("/rows", openapi_extra={"parameters": _documented(_SINGLE - {"misses"} | _MANY | _OPERATORS)})
    async def rows(request: Request) -> Response:
        """The rows behind a report, a page at a time; `after` is what the page before it said as `next`."""
        return await answer(request, rows=True)

    return router


def _documented(names: Set[str]) -> list[dict[str, object]]:
    return [{"name": name, "in": "query", "required": False, "schema": {"type": "string"}} for name in sorted(names)]


def _asked(parameters: Parameters, tenant: str | None) -> Asked:
    """A question from its parameters; of a tenant they can say nothing about whose rows. Raises `BadRequest`."""
    known = _SINGLE | _MANY | (_OPERATORS if tenant is None else frozenset())
    for name, values in parameters.items():
        if name not in known:
            raise BadRequest(f"unknown parameter {name[:100]!r}", param=name[:100])
        if name not in _MANY and len(values) > 1:
            raise BadRequest(f"{name} may be given once", param=name)
        if any("\0" in value for value in values):  # which no text of PostgreSQL may have
            raise BadRequest(f"{name} has a zero byte in it", param=name)
    one = {name: values[0] for name, values in parameters.items() if name not in _MANY and values}
    try:
        zone = zone_named(one.get("time_zone", "UTC"))
        start, end = asked_period(one.get("from"), one.get("to"), one.get("month"), zone)
        by = split_names(parameters.get("by", ())) or (USUAL if tenant is None else _TENANTS_SPLIT)
        about = About(
            tenant or one.get("tenant"), one.get("key"), one.get("model"), tag_filter(parameters.get("tag", ()))
        )
        query = Query(start, end, by, zone, about, with_misses=_is_true(one.get("misses")))
    except (PeriodInvalid, ReportInvalid) as error:
        raise BadRequest(str(error)) from None
    source = _choice(one.get("source"), Source, USUAL_SOURCE, "source")
    return Asked(
        query=replace(query, source=source),
        written=_choice(one.get("format"), Written, Written.JSON, "format"),
        limit=_limit(one.get("limit")),
        after=one.get("after"),
        internal=tenant is None,
    )


def _choice(text: str | None, choices: type[Choice], usual: Choice, name: str) -> Choice:
    if text is None:
        return usual
    try:
        return choices(text)
    except ValueError:
        raise BadRequest(f"{name} is one of {', '.join(choices)}", param=name) from None


def _limit(text: str | None) -> int:
    if text is None:
        return _USUAL_ROWS
    if not (text.isascii() and text.isdecimal() and len(text) < 9 and 1 <= int(text) <= MOST_ROWS):
        raise BadRequest(f"limit is 1 to {MOST_ROWS}", param="limit")
    return int(text)


def _is_true(text: str | None) -> bool:
    if text not in (None, "true", "false"):
        raise BadRequest("misses is true or false", param="misses")
    return text == "true"
