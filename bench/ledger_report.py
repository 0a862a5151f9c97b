"""Millions of requests in a ledger, made by the database itself, and how long reports over them take.

A month of requests, evenly: tenants with two keys each, three models; of a hundred requests four are cut and one fails.
Rows are made by one statement a table; the sums are made from the rows (`rebuild`) and then held against them.
"""

import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy import Connection, create_engine
from sqlalchemy.pool import NullPool

from billing import reading
from billing.migrations import bring_up
from billing.postgres import postgres_engine
from billing.postgres_address import postgres_url
from billing.reports.query import Query, Source
from billing.reports.report import report_of
from billing.rollup_sql import differences, rebuild
from billing.when import to_us, zone_named

START = datetime(2026, 11, 1, tzinfo=UTC)
END = datetime(2026, 12, 1, tzinfo=UTC)
ROWS_HAVE_NO_GOAL = "from rows"

_SERIES = {
    "sqlite": "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < {rows})",
    "postgresql": "WITH n(i) AS (SELECT generate_series(0, {rows} - 1))",
}
_ID = {"sqlite": "printf('%012d', i)", "postgresql": "lpad(i::text, 12, '0')"}

_REQUESTS = """
INSERT INTO requests (request_id, opened_at_us, owner_id, tenant_id, key_id, share_group, model, route, stream,
    prompt_tokens_expected)
{series} SELECT {id}, {start} + CAST(i AS BIGINT) * {gap}, 'bench', 'tenant-' || (i * 7 % {tenants}),
    'key-' || (i * 7 % {tenants}) || '-' || (i % 2), 'tenant-' || (i * 7 % {tenants}), 'model-' || (i % 3),
    '/v1/chat/completions', {true}, 8000 FROM n
"""
_SETTLEMENTS = """
INSERT INTO settlements (request_id, settled_at_us, state, http_status, endpoint_id, prompt_tokens, cached_tokens,
    output_tokens, expected_cached_tokens, flags, convention, ttft_s, duration_s, prefill_s, decode_s, currency,
    price_id, input_pico, cached_input_pico, output_pico, full_units, full_pico, charged_units, charged_pico,
    discounted_tokens, list_units, list_pico, verdict)
{series} SELECT {id}, {start} + CAST(i AS BIGINT) * {gap} + 3000000,
    CASE WHEN i % 100 < 4 THEN 'partial' WHEN i % 100 = 4 THEN 'failed' ELSE 'complete' END, 200,
    'gpu-' || (i % 8), 8000, i % 8000, 300, i % 8000,
    CASE WHEN i % 100 < 4 THEN 'estimated' WHEN i % 100 = 4 THEN 'not_billable' ELSE '' END, 'openai', 0.1, 3.0, 0.05,
    2.9, 'USD', 'p-' || (i % 3), 600000, 60000, 2400000, 0,
    CASE WHEN i % 100 = 4 THEN 0 ELSE CAST(5520000000 AS BIGINT) END, 0,
    CASE WHEN i % 100 = 4 THEN 0 ELSE 5520000000 - CAST(i % 8000 AS BIGINT) * 540000 END,
    i % 8000, 0, CASE WHEN i % 100 = 4 THEN 0 ELSE 5520000000 - CAST(i % 8000 AS BIGINT) * 540000 END, 'verified' FROM n
"""


@dataclass(frozen=True, slots=True)
class ReportTime:
    """How long one reading took over so many requests, and how many sums by quarter they are."""

    database: str
    what: str
    rows: int
    quarters: int
    took_s: float

    @property
    def has_goal(self) -> bool:
        """Whether it is a report from sums."""
        return self.what.startswith("report")


def report_times(database: str, place: Path | str, rows: int, tenants: int = 20) -> list[ReportTime]:
    """Fill an empty ledger, and read it. Raises `AssertionError` where the sums are not those of the rows."""
    quarters = _filled(place, rows, tenants)
    found = []

    def timed(what: str, read: Callable[[], object]) -> object:
        began_s = time.perf_counter()
        answer = read()
        found.append(ReportTime(database, what, rows, quarters, round(time.perf_counter() - began_s, 3)))
        return answer

    tokyo = zone_named("Asia/Tokyo")
    timed("report of the month by tenant and model", lambda: report_of(place, Query(START, END)))
    by_day = Query(START, END, by=("tenant", "day"), zone=tokyo)
    timed("report of the month by tenant and day in Tokyo", lambda: report_of(place, by_day))
    timed("from rows, by tenant and model", lambda: report_of(place, Query(START, END, source=Source.ROWS)))
    with reading(place) as connection:
        assert timed("sums held against rows", lambda: list(differences(connection))) == []
    return found


def _filled(place: Path | str, rows: int, tenants: int) -> int:
    if isinstance(place, str):
        engine = postgres_engine(postgres_url(place))
    else:
        engine = create_engine(f"sqlite+pysqlite:///{place}", poolclass=NullPool)
    with closing(engine.connect()) as connection:
        with connection.begin():
            bring_up(connection)
        with connection.begin():
            _insert(connection, rows, tenants)
            quarters = rebuild(connection)
        connection.exec_driver_sql("ANALYZE")
        connection.commit()
    return quarters


def _insert(connection: Connection, rows: int, tenants: int) -> None:
    name = connection.dialect.name
    gap_us = max(1, (to_us(END) - to_us(START)) // rows)
    for statement in (_REQUESTS, _SETTLEMENTS):
        sql = statement.format(
            series=_SERIES[name].format(rows=rows),
            id=_ID[name],
            start=to_us(START),
            gap=gap_us,
            tenants=tenants,
            true="1" if name == "sqlite" else "true",
        )
        driver = connection.connection.driver_connection
        assert driver is not None
        driver.execute(sql)
