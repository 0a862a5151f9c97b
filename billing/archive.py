"""A month that is over, moved out of the ledger into a file of its own, which is a ledger too.

    ledger                            ledger-2026-11.db
    requests, settlements, ...  --->  requests, settlements, ...    moved
    usage_quarters, corrections --->  usage_quarters, corrections   copied: reports and invoices go on as before

    1  copy into a file beside its final name, check its sums against its rows, flush, rename
    2  note the file and its SHA-256 in the ledger (`archives`)
    3  delete the month's rows from the ledger, some hundred requests at a time: a gateway that runs waits little

To bring a month back, its rows are inserted from the file, some hundred requests at a time, and then the note goes.

Each step can be cut off: before 2 nothing is gone, and the next try begins anew; after it the next try finds the file
as it was noted and goes on with 3. A month with a request in flight, or whose sums are not those of its rows, is
refused.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import file_digest
from pathlib import Path

from sqlalchemy import ColumnElement, Connection, RowMapping, Table, create_engine, delete, func, insert, select
from sqlalchemy.pool import NullPool

from billing.bulk import insert_rows
from billing.errors import LedgerUnavailable, PeriodInvalid
from billing.immutable import deletable
from billing.maintenance import archived_spans, writing
from billing.migrations import bring_up
from billing.older import columns_in
from billing.reading import reading
from billing.rollup_sql import Span, differences
from billing.schema import (
    archives,
    attempts,
    chains,
    corrections,
    engine_samples,
    requests,
    settlements,
    usage_quarters,
)
from billing.when import parse_period, to_us

_PAGE_ROWS = 2000
_MOVED_AT_ONCE = 500
_PRIVATE = 0o400
_OF_REQUESTS = (settlements, attempts, chains)


@dataclass(frozen=True, slots=True)
class Archived:
    """A month in a file of its own; `deleted` requests were removed from the ledger by this call."""

    month: str
    file: Path
    requests: int
    deleted: int


def months_before(where: Path | str, keep_months: int, now: datetime) -> list[str]:
    """Months from the first with rows to those before the last `keep_months` that are over and the running one.

    Raises `LedgerUnavailable`.
    """
    with reading(where) as connection:
        first_us = connection.execute(select(func.min(requests.c.opened_at_us))).scalar_one()
    if first_us is None:
        return []
    first = datetime.fromtimestamp(first_us / 1e6, UTC)
    last = now.year * 12 + now.month - 1 - keep_months
    return [f"{at // 12:04d}-{at % 12 + 1:02d}" for at in range(first.year * 12 + first.month - 1, last)]


def archive_month(where: Path | str, month: str, folder: Path, now: Callable[[], datetime]) -> Archived:
    """Move a month, in UTC, into a file of the folder. O(its rows). Raises `LedgerUnavailable`, `PeriodInvalid`."""
    start, end = parse_period(month)
    if end > now():
        raise PeriodInvalid(month, "it is not over")
    span = (to_us(start), to_us(end))
    file = folder / f"ledger-{month}.db"
    noted = _noted(where, month)
    if noted is None:
        count = _copy(where, span, file)
        with writing(where) as connection:
            values = {
                "month": month,
                "start_us": span[0],
                "end_us": span[1],
                "file": file.name,
                "sha256": _digest(file),
                "requests": count,
                "archived_at_us": to_us(now()),
            }
            connection.execute(insert(archives).values(values))
    else:
        count = noted["requests"]
        _must_be(file, noted)
    return Archived(month, file, count, _delete(where, span))


def restore_month(where: Path | str, month: str, folder: Path) -> int:
    """Bring the rows of an archived month back from its file in the folder, which stays; returns how many requests.

    Until the last of them is there the month counts as archived. O(its rows). Raises `LedgerUnavailable`.
    """
    noted = _noted(where, month)
    if noted is None:
        raise LedgerUnavailable(f"{month} is not archived")
    file = folder / noted["file"]
    _must_be(file, noted)
    with reading(file) as source:
        columns = {table: columns_in(source, table) for table in (requests, *_OF_REQUESTS)}
        ids = source.execute(select(requests.c.request_id).order_by(requests.c.request_id)).scalars().all()
        for place in range(0, len(ids), _MOVED_AT_ONCE):
            some = ids[place : place + _MOVED_AT_ONCE]
            with writing(where) as connection:
                for table, there in columns.items():
                    rows = source.execute(select(*there).where(table.c.request_id.in_(some)))
                    insert_rows(connection, table, [tuple(row) for row in rows], " ON CONFLICT DO NOTHING")
    with writing(where) as connection:
        connection.execute(delete(archives).where(archives.c.month == month))
    return len(ids)


def _noted(where: Path | str, month: str) -> RowMapping | None:
    """What the ledger knows of the file of a month."""
    with reading(where) as connection:
        return connection.execute(select(archives).where(archives.c.month == month)).mappings().first()


def _must_be(file: Path, noted: RowMapping) -> None:
    if not file.exists() or _digest(file) != noted["sha256"]:
        month = noted["month"]
        raise LedgerUnavailable(f"{file} is not the file that was written when {month} was archived; bring it back")


def _copy(where: Path | str, span: Span, file: Path) -> int:
    """Write the file; returns its requests."""
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_suffix(".draft")
    draft.unlink(missing_ok=True)
    with reading(where) as source:
        is_sqlite = source.dialect.name == "sqlite"
        source.exec_driver_sql("BEGIN" if is_sqlite else "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        _refuse_what_is_open(source, span, file.name)
        with create_engine(f"sqlite+pysqlite:///{draft}", poolclass=NullPool).connect() as target:
            bring_up(target)
            for table, chosen in _tables(span):
                for rows in _pages(source, table, chosen):
                    insert_rows(target, table, rows)
            target.commit()
            wrong = next(differences(target), None)
            count: int = target.execute(select(func.count()).select_from(requests)).scalar_one()
    if wrong is not None:
        draft.unlink()
        raise LedgerUnavailable(f"sums of {file.stem} are not those of its rows: see `prefixgate ledger verify`")
    draft.chmod(_PRIVATE)
    descriptor = os.open(draft, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    draft.rename(file)
    return count


def _refuse_what_is_open(connection: Connection, span: Span, name: str) -> None:
    source = requests.outerjoin(settlements, settlements.c.request_id == requests.c.request_id)
    is_open = select(requests.c.request_id).select_from(source).where(_opened(span), settlements.c.request_id.is_(None))
    if connection.execute(is_open.limit(1)).first() is not None:
        raise LedgerUnavailable(
            f"{name}: a request of that month is in flight, or its gateway died; start it again first"
        )
    if span in archived_spans(connection):
        raise LedgerUnavailable(f"{name}: that month is archived already")


def _tables(span: Span) -> Iterator[tuple[Table, ColumnElement[bool]]]:
    yield requests, _opened(span)
    ids = select(requests.c.request_id).where(_opened(span))
    for table in _OF_REQUESTS:
        yield table, table.c.request_id.in_(ids)
    for table, column in (
        (corrections, corrections.c.made_at_us),
        (usage_quarters, usage_quarters.c.quarter_us),
        (engine_samples, engine_samples.c.sampled_at_us),
    ):
        yield table, (column >= span[0]) & (column < span[1])


def _pages(connection: Connection, table: Table, chosen: ColumnElement[bool]) -> Iterator[list[tuple[object, ...]]]:
    result = connection.execution_options(yield_per=_PAGE_ROWS).execute(select(table).where(chosen))
    for page in result.partitions():
        yield [tuple(row) for row in page]


def _delete(where: Path | str, span: Span) -> int:
    deleted = 0
    while True:
        with writing(where) as connection:
            some = select(requests.c.request_id).where(_opened(span)).limit(_MOVED_AT_ONCE)
            ids = connection.execute(some).scalars().all()
            if ids:
                with deletable(connection, [table.name for table in (requests, settlements, attempts)]):
                    for table in (*_OF_REQUESTS, requests):
                        connection.execute(delete(table).where(table.c.request_id.in_(ids)))
        if not ids:
            return deleted
        deleted += len(ids)


def _opened(span: Span) -> ColumnElement[bool]:
    return (requests.c.opened_at_us >= span[0]) & (requests.c.opened_at_us < span[1])


def _digest(file: Path) -> str:
    with file.open("rb") as content:
        return file_digest(content, "sha256").hexdigest()
