"""`prefixgate verify`: whether the engines' reports, on which the bills of a period rest, can be true."""

from enum import StrEnum
from typing import Annotated

import typer

from billing import BillingError
from billing.reports.zones import asked_period
from billing.verification.report import verify as verified
from billing.verification.text import render_verification, render_verification_json, verification_lines
from billing.when import zone_named
from gateway.command_line.progress import progress
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

_SPARE = ("Not compared", "Unreported", "Across borders", "Hits counted", "Hits reported", "Spans", "Counted")


class VerificationFormat(StrEnum):
    """How a verification is printed."""

    TABLE = "table"
    JSON = "json"


def verify(
    from_: From = None,
    to: To = None,
    month: Month = None,
    time_zone: TimeZone = "UTC",
    format_: Annotated[
        VerificationFormat, typer.Option("--format", help="How to print it.")
    ] = VerificationFormat.TABLE,
    as_json: AsJson = False,
    quiet: Quiet = False,
    ledger: LedgerPlace = None,
    config: ConfigFile = None,
) -> None:
    """The engines' reports against the index and against the engines' own counters: verdicts, coverage, misses.

    Exit 1 where something speaks against the reports, 2 where the ledger cannot be read.
    """
    where = ledger or ledger_place(read_config(config, {}))
    try:
        start, end = asked_period(from_, to, month, zone_named(time_zone))
        with progress("comparing reports", quiet=quiet or as_json) as told:
            told(0, None)
            found = verified(where, start, end)
    except BillingError as error:
        raise refused(error) from None
    if as_json or format_ is VerificationFormat.JSON:
        typer.echo(render_verification_json(found))
    else:
        tables = render_verification(found)
        console = show_tables(*tables, spare=_SPARE, whole="--format json")
        for line in verification_lines(found):
            console.print(line, markup=False, highlight=False)
    if not found.is_sound:
        raise typer.Exit(1)
