"""`prefixgate report`: the bill of a period, its rows, and both in the forms that other systems read."""

import sys
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, TextIO, TypeVar

import typer

from billing import BillingError, render_csv, render_json, render_table
from billing.counting import counted
from billing.errors import ReportInvalid
from billing.invoicing import Document
from billing.reports.columns import columns_of, kinds_of, lines_of
from billing.reports.csv_text import csv_lines
from billing.reports.events import cloud_events, lago_events
from billing.reports.focus import Unknown, Version, focus_lines
from billing.reports.focus_invoice import invoice_lines, invoice_named
from billing.reports.focus_lines import DECIMALS, Seller, columns_for
from billing.reports.parquet import write_parquet
from billing.reports.query import USUAL, USUAL_SOURCE, About, Query, Source, split_names, tag_filter
from billing.reports.reading import one_view, place_of
from billing.reports.report import report_of
from billing.reports.rows import KINDS, NUMBERS, usage_columns, usage_rows
from billing.reports.text import render_misses
from billing.reports.zones import asked_period
from billing.when import from_us, zone_named
from gateway.command_line.completing import models, tenants
from gateway.command_line.progress import Said, nobody, progress
from gateway.command_line.refusals import CANNOT_BE_USED, FULL, NOT_DONE, remark
from gateway.config import ledger_place
from gateway.terminal import (
    AsJson,
    ConfigFile,
    From,
    LedgerPlace,
    Month,
    Quiet,
    TimeZone,
    To,
    read_config,
    refused,
)
from gateway.terminal_tables import show_tables

Row = TypeVar("Row")


class ReportFormat(StrEnum):
    """How a report is written."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"
    ROWS_CSV = "rows-csv"
    ROWS_PARQUET = "rows-parquet"
    FOCUS_1_2 = "focus-1.2"
    FOCUS_1_4 = "focus-1.4"
    CLOUDEVENTS = "cloudevents"
    LAGO = "lago"


_FOCUS = (ReportFormat.FOCUS_1_2, ReportFormat.FOCUS_1_4)
_SPARE = ("Written", "Saved", "Share", "Output", "At full price", "Requests")
_TOLD_EVERY = 1000
_BINARY = (ReportFormat.PARQUET, ReportFormat.ROWS_PARQUET)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A report to be written, and where to."""

    where: Path | str
    query: Query
    output: Path | None
    internal: bool
    seller: Seller
    document: Document | None = None
    """Of the invoice that was named, where this ledger has it."""
    told: Said = nobody
    """Hears how many rows are written."""


def report(
    from_: From = None,
    to: To = None,
    month: Month = None,
    time_zone: TimeZone = "UTC",
    by: Annotated[
        list[str] | None,
        typer.Option(help="Split by tenant, key, model, price, tags, tag:NAME, hour, day, month; with commas."),
    ] = None,
    tenant: Annotated[str | None, typer.Option(help="Only this tenant.", autocompletion=tenants)] = None,
    key: Annotated[str | None, typer.Option(help="Only this key, by its name.")] = None,
    model: Annotated[str | None, typer.Option(help="Only this model.", autocompletion=models)] = None,
    tag: Annotated[list[str] | None, typer.Option(help="Only with this tag, as team=search; repeat for each.")] = None,
    format_: Annotated[ReportFormat, typer.Option("--format", help="How to write it.")] = ReportFormat.TABLE,
    as_json: AsJson = False,
    quiet: Quiet = False,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="File to write; default: print it.")] = None,
    from_rows: Annotated[
        bool, typer.Option("--from-rows", help="Read each request, not sums by quarter hour.")
    ] = False,
    misses: Annotated[bool, typer.Option("--misses", help="Also count misses by reason; reads each request.")] = False,
    internal: Annotated[
        bool, typer.Option("--internal", help="With what only the operator is to know; never for a tenant.")
    ] = False,
    seller: Annotated[str, typer.Option(help="Name of who bills, in FOCUS.")] = "prefixgate",
    account: Annotated[str, typer.Option(help="Billing account, in FOCUS.")] = "prefixgate",
    invoice: Annotated[str | None, typer.Option(help="Number of an invoice, in FOCUS: all its rows.")] = None,
    ledger: LedgerPlace = None,
    config: ConfigFile = None,
) -> None:
    """The bill of a period: tokens and money by tenant and model, or as asked; totals are the sums of the lines.

    Exit 2 where it cannot be made as it was asked for, or the ledger cannot be read.
    """
    format_ = ReportFormat.JSON if as_json else format_
    where = ledger or ledger_place(read_config(config, {}))
    try:
        zone = zone_named(time_zone)
        document = None if invoice is None or format_ not in _FOCUS else _document(where, invoice)
        if document is not None:
            _must_be_whole(document, tenant, [key, model, *(tag or ())])
        if document is not None and (from_, to, month) == (None, None, None):
            start, end = from_us(document.period.start_us), from_us(document.period.end_us)
        else:
            start, end = asked_period(from_, to, month, zone)
        query = Query(
            start=start,
            end=end,
            by=split_names(by) if by else USUAL,
            zone=zone,
            about=About(tenant, key, model, tag_filter(tag or ())),
            source=Source.ROWS if from_rows else USUAL_SOURCE,
            with_misses=misses,
        )
        if format_ in _BINARY and output is None:
            raise refused(f"--format {format_.value} needs --output FILE")
        named = Seller(account, seller, invoice_id=invoice)
        with progress("rows written", quiet=quiet or output is None) as told:
            told(0, None)
            _write(format_, _Wanted(where, query, output, internal, named, document, told))
    except BrokenPipeError:
        raise  # who read it has seen enough, as `head` does: typer ends in silence
    except OSError as error:
        if output is None:
            raise  # of a disk that is full, say, everybody is told in one way
        raise refused(f"{output}: {error.strerror}", NOT_DONE if error.errno in FULL else CANNOT_BE_USED) from None
    except BillingError as error:
        raise refused(error) from None


def _document(where: Path | str, number: str) -> Document | None:
    with one_view(where) as connection:
        return invoice_named(connection, number)


def _must_be_whole(document: Document, tenant: str | None, parts: Iterable[str | None]) -> None:
    """Raises `ReportInvalid` where a part of an invoice is asked for, whose rows would not be what is to be paid."""
    if tenant not in (None, document.tenant_id) or any(parts):
        raise ReportInvalid(document.number, f"it is an invoice of {document.tenant_id}, and is written whole")


def _write(format_: ReportFormat, wanted: _Wanted) -> None:
    match format_:
        case ReportFormat.TABLE:
            _write_table(wanted)
        case ReportFormat.CSV:
            _write_text(wanted, [render_csv(report_of(wanted.where, wanted.query))])
        case ReportFormat.JSON:
            _write_text(wanted, [render_json(report_of(wanted.where, wanted.query)) + "\n"])
        case ReportFormat.PARQUET:
            found = report_of(wanted.where, wanted.query)
            with _whole(_file(wanted)) as path:
                written = write_parquet(path, columns_of(found), lines_of(found), kinds_of())
            _tell(written, wanted)
        case ReportFormat.ROWS_CSV | ReportFormat.ROWS_PARQUET:
            _write_rows(format_, wanted)
        case ReportFormat.FOCUS_1_2:
            _write_focus(Version.V1_2, wanted)
        case ReportFormat.FOCUS_1_4:
            _write_focus(Version.V1_4, wanted)
        case ReportFormat.CLOUDEVENTS | ReportFormat.LAGO:
            events = cloud_events if format_ is ReportFormat.CLOUDEVENTS else lago_events
            with one_view(wanted.where) as connection:
                _write_text(wanted, events(connection, wanted.query))


def _write_table(wanted: _Wanted) -> None:
    found = report_of(wanted.where, wanted.query)
    tables = [table for table in (render_table(found), render_misses(found)) if table is not None]
    with _opened(wanted) as out:
        console = show_tables(*tables, spare=_SPARE, whole="--format csv", file=out)
        console.print(f"ledger: {place_of(wanted.where)}", markup=False, highlight=False)
    if not found.lines:
        remark(
            "nothing was used in that period by those asked for; `prefixgate ledger show` says from when there is usage"
        )


def _write_rows(format_: ReportFormat, wanted: _Wanted) -> None:
    columns = usage_columns(internal=wanted.internal)
    with (
        one_view(wanted.where) as connection,
        closing(usage_rows(connection, wanted.query, internal=wanted.internal)) as found,
    ):
        rows = _counted((row for _, row in found), wanted.told)
        if format_ is ReportFormat.ROWS_CSV:
            _write_text(wanted, csv_lines(columns, rows, NUMBERS))
        else:
            with _whole(_file(wanted)) as path:
                written = write_parquet(path, columns, rows, KINDS)
            _tell(written, wanted)


def _write_focus(version: Version, wanted: _Wanted) -> None:
    unknown = Unknown()
    columns = columns_for(version.value, wanted.seller, internal=wanted.internal)
    document, query = wanted.document, wanted.query
    if document is not None and (query.start_us, query.end_us) != (document.period.start_us, document.period.end_us):
        period = f"{document.period.start_text} to {document.period.end_text} ({document.period.timezone})"
        raise ReportInvalid(document.number, f"it is of {period}: leave the period out")
    with one_view(wanted.where) as connection:
        if document is None:
            lines = focus_lines(connection, query, wanted.seller, unknown)
        else:
            lines = invoice_lines(connection, document, wanted.seller, unknown)
        _write_text(wanted, csv_lines(columns, lines, DECIMALS))
    if unknown.requests:
        typer.echo(f"prefixgate: in no row, having no known amount: {counted(unknown.requests, 'request')}", err=True)


def _write_text(wanted: _Wanted, pieces: Iterable[str]) -> None:
    """Writes and flushes; pieces that are read from the ledger end where they are cut off, before it is closed."""
    reading = closing(pieces) if isinstance(pieces, Generator) else nullcontext()
    with _opened(wanted) as out, reading:
        out.writelines(pieces)
        out.flush()


def _counted(rows: Iterable[Row], told: Said) -> Iterator[Row]:
    for count, row in enumerate(rows, 1):
        if not count % _TOLD_EVERY:
            told(count, None)
        yield row


@contextmanager
def _opened(wanted: _Wanted) -> Iterator[TextIO]:
    if wanted.output is None:
        yield sys.stdout
        return
    with _whole(wanted.output) as path, path.open("w", encoding="utf-8", newline="") as out:
        yield out


@contextmanager
def _whole(path: Path) -> Iterator[Path]:
    """A file to write in place of `path`, which gets its name when it is whole: half a bill must not look like one."""
    if path.exists() and not path.is_file():
        yield path  # a pipe, or a device
        return
    part = path.with_name(f"{path.name}.part")
    try:
        yield part
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _file(wanted: _Wanted) -> Path:
    assert wanted.output is not None, "looked at before"
    return wanted.output


def _tell(written: int, wanted: _Wanted) -> None:
    typer.echo(f"{counted(written, 'row')} in {wanted.output}", err=True)
