"""`prefixgate cost`, `prefixgate jobs`: what tokens cost the operator, and what is left. Not for tenants."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from enum import StrEnum
from fractions import Fraction
from pathlib import Path
from typing import Annotated

import typer

from billing import BillingError
from billing.economics import (
    ComparedPrice,
    CostBook,
    cost_json,
    cost_report,
    cost_sheets,
    csv_of,
    job_report,
    jobs_sheet,
    json_text,
    ledgers,
    plain,
    tables,
)
from billing.economics.sheet import Sheet
from billing.money import pico_per_token
from billing.reports.zones import asked_period
from billing.when import to_us, zone_named
from gateway.command_line.completing import tenants
from gateway.command_line.refusals import remark
from gateway.config import ledger_place
from gateway.cost_terms import assumptions, total_line
from gateway.terminal import AsJson, ConfigFile, From, Month, TimeZone, To, read_config, refused
from gateway.terminal_tables import show_tables

DEFAULT_SHEET = "tenants"
_SPARE = (
    *("Token tax, busy", "Token tax, loaded", "Gross, busy", "Margin, busy", "No rate, s", "Calls not measured"),
    *("Calls failed", "Measured", "First call", "To the last, s", "GPUs", "Cost, busy", "Gross, loaded", "Calls"),
    *("Not measured", "Failed calls", "Busy, s", "Idle, s", "Own, busy", "Even at busy", "Avoided, loaded"),
    *(
        "Per hour",
        "API, per million",
        "Own, per million",
        "Prices of",
        "Prefill avoided, s",
        "Output",
        "Requests",
        "Cached input",
    ),
)
"""Headings of all sheets that a narrow terminal does without, the first to go first."""


class CostFormat(StrEnum):
    """How figures are printed."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"


Costs = Annotated[Path | None, typer.Option("--costs", help="What endpoints cost, YAML; default: the configured file.")]
LedgerPlaces = Annotated[
    list[str] | None,
    typer.Option(
        "--ledger", help="SQLite file or PostgreSQL URL of a ledger; repeat for each; default: the configured."
    ),
]
Format = Annotated[CostFormat, typer.Option("--format", help="How to print it.")]


def cost(
    from_: From = None,
    to: To = None,
    month: Month = None,
    time_zone: TimeZone = "UTC",
    costs: Costs = None,
    api: Annotated[
        list[str] | None,
        typer.Option(
            help="Prices per million tokens to compare with, as NAME=INPUT:CACHED:OUTPUT; repeat for each; default: "
            "those of public APIs that come with us."
        ),
    ] = None,
    sheet: Annotated[
        list[str] | None,
        typer.Option(
            help="Only this sheet; repeat for each: endpoints, tokens, tenants, plans, users, heaviest, discounts, "
            "fills, api. CSV has one, tenants by default."
        ),
    ] = None,
    format_: Format = CostFormat.TABLE,
    as_json: AsJson = False,
    ledger: LedgerPlaces = None,
    config: ConfigFile = None,
) -> None:
    """What tokens cost, busy and with idle time, and what is left of the revenue. Internal: never for a tenant.

    Time that has not been yet costs nothing: a period that is not over is read up to now. Exit 2 where the costs file
    or a ledger cannot be read.
    """
    settings = read_config(config, {} if costs is None else {"costs_file": costs})
    if settings.costs_file is None:
        raise refused("no costs file: give --costs FILE, or costs_file in the configuration", code="costs_file_missing")
    places = ledger or [str(ledger_place(settings))]
    try:
        book = CostBook.load(settings.costs_file)
        start_us, end_us = _period(from_, to, month, time_zone)
        given = [api_price(text, book.currency) for text in api or ()]
        with ledgers(places) as opened:
            assumed = assumptions(opened, settings, book.currency, (start_us, end_us))
            assumed = replace(assumed, api_prices=given or assumed.api_prices)
            found = cost_report(opened, book, start_us, end_us, assumed)
    except BillingError as error:
        raise refused(error) from None
    sheets = _chosen(cost_sheets(found), sheet)
    match CostFormat.JSON if as_json else format_:
        case CostFormat.TABLE:
            _print(sheets, book.currency, total_line(found))
        case CostFormat.CSV:
            typer.echo(csv_of(_only(sheets, sheet)), nl=False)
        case CostFormat.JSON:
            typer.echo(json_text(cost_json(found, sheets)))


def jobs(
    from_: From = None,
    to: To = None,
    month: Month = None,
    time_zone: TimeZone = "UTC",
    tenant: Annotated[str | None, typer.Option(help="Only this tenant.", autocompletion=tenants)] = None,
    job: Annotated[str | None, typer.Option(help="Only this job.")] = None,
    most: Annotated[int, typer.Option(min=1, help="So many, dearest first.")] = 100,
    costs: Costs = None,
    format_: Format = CostFormat.TABLE,
    as_json: AsJson = False,
    ledger: LedgerPlaces = None,
    config: ConfigFile = None,
) -> None:
    """The runs of agents, by the x-prefixgate-job-id of their calls: calls, tokens, hit share, price and cost.

    Without a costs file there is no cost. Internal: never for a tenant. Exit 2 where a file cannot be read.
    """
    settings = read_config(config, {} if costs is None else {"costs_file": costs})
    places = ledger or [str(ledger_place(settings))]
    try:
        book = None if settings.costs_file is None else CostBook.load(settings.costs_file)
        start_us, end_us = _period(from_, to, month, time_zone)
        with ledgers(places) as opened:
            found = job_report(opened, book, start_us, end_us)
    except BillingError as error:
        raise refused(error) from None
    wanted = {key: one for key, one in found.jobs.items() if tenant in (None, key[0]) and job in (None, key[1])}
    shown = jobs_sheet(wanted, with_cost=book is not None, most=most)
    match CostFormat.JSON if as_json else format_:
        case CostFormat.TABLE:
            _print([shown], found.currency)
            if not wanted:
                remark("no call of that period has a job id, or none is of that tenant and job")
        case CostFormat.CSV:
            typer.echo(csv_of(shown), nl=False)
        case CostFormat.JSON:
            typer.echo(json_text({"internal": True, "currency": found.currency, **plain([shown])}))


def api_price(text: str, currency: str) -> ComparedPrice:
    """Prices as `NAME=INPUT:CACHED:OUTPUT` per million tokens, or without CACHED. Raises what `refused` makes."""
    name, _, prices = text.rpartition("=")
    try:
        rates = [pico_per_token(Fraction(one)) for one in prices.split(":")]
        if not name or len(rates) not in (2, 3):
            raise ValueError("an API's prices are NAME=INPUT:CACHED:OUTPUT")  # noqa: TRY301 - one way to refuse
    except (ValueError, ZeroDivisionError) as error:
        raise refused(f"--api {text!r}: {error}") from None
    return ComparedPrice(name, currency, rates[0], rates[-1], rates[1] if len(rates) == 3 else None)


def _period(from_: str | None, to: str | None, month: str | None, time_zone: str) -> tuple[int, int]:
    start, end = asked_period(from_, to, month, zone_named(time_zone))
    return to_us(start), min(to_us(end), to_us(datetime.now(UTC)))


def _chosen(sheets: Sequence[Sheet], names: Sequence[str] | None) -> list[Sheet]:
    known = [one.name for one in sheets]
    unknown = [name for name in names or () if name not in known]
    if unknown:
        raise refused(f"there is no sheet {unknown[0]!r}: {', '.join(known)}")
    return [one for one in sheets if not names or one.name in names]


def _only(sheets: Sequence[Sheet], names: Sequence[str] | None) -> Sheet:
    if names is None or len(names) != 1:
        return next((one for one in sheets if one.name == DEFAULT_SHEET), sheets[0])
    return sheets[0]


def _print(sheets: Iterable[Sheet], currency: str, last_line: str | None = None) -> None:
    console = show_tables(*tables(sheets, currency), spare=_SPARE, whole="--format json")
    if last_line is not None:
        console.print(last_line, markup=False, highlight=False, soft_wrap=True)
