"""`prefixgate verify`: whether the engines' reports, on which the bills of a period rest, can be true."""

from enum import StrEnum
from typing import Annotated

import typer

from billing import BillingError, parse_when
from billing.verification.report import verify as verified
from billing.verification.text import render_verification, render_verification_json, verification_lines
from gateway.config import ledger_place
from gateway.terminal import ConfigFile, read_config, refused, wide_console


class VerificationFormat(StrEnum):
    """How a verification is printed."""

    TABLE = "table"
    JSON = "json"


def verify(
    from_: Annotated[str, typer.Option("--from", help="First instant of the period: a date or ISO time, UTC.")],
    to: Annotated[str, typer.Option(help="First instant after the period.")],
    format_: Annotated[
        VerificationFormat, typer.Option("--format", help="How to print it.")
    ] = VerificationFormat.TABLE,
    ledger: Annotated[
        str | None, typer.Option(help="SQLite file or PostgreSQL URL of the ledger; default: the configured one.")
    ] = None,
    config: ConfigFile = None,
) -> None:
    """The engines' reports against the index and against the engines' own counters: verdicts, coverage, misses.

    Exit 1 where something speaks against the reports, 2 where the ledger cannot be read.
    """
    try:
        found = verified(ledger or ledger_place(read_config(config, {})), parse_when(from_), parse_when(to))
    except BillingError as error:
        raise refused(str(error)) from None
    if format_ is VerificationFormat.JSON:
        typer.echo(render_verification_json(found))
    else:
        tables = render_verification(found)
        console = wide_console(*tables)
        for table in tables:
            console.print(table)
        for line in verification_lines(found):
            console.print(line, markup=False, highlight=False)
    if not found.is_sound:
        raise typer.Exit(1)
