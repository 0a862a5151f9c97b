"""`prefixgate ledger`: what is in it, whether its sums are those of its rows, and moving old months out of it."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from billing import BillingError
from billing.archive import archive_month, months_before, restore_month
from billing.counting import counted
from billing.invoicing.uninvoiced import must_be_invoiced
from billing.maintenance import check, contents, rebuild_sums
from billing.reports.reading import place_of
from billing.rollup import KEYS
from billing.when import from_us
from gateway.config import ledger_place
from gateway.terminal import ConfigFile, LedgerPlace, read_config, refused

ledger = typer.Typer(no_args_is_help=True, help="What is in the ledger, its sums, and moving old months out of it.")

_SHOWN = 20


@ledger.command()
def show(place: LedgerPlace = None, config: ConfigFile = None) -> None:
    """How many rows each table has, of which time, and which months are archived. Reads all of it."""
    where = place or ledger_place(read_config(config, {}))
    try:
        found = contents(where)
    except BillingError as error:
        raise refused(error) from None
    typer.echo(f"ledger    {place_of(where)}")
    for table, rows in found.rows.items():
        typer.echo(f"{table:<16}{rows:>14,}")
    if found.first_us is not None and found.last_us is not None:
        typer.echo(f"opened    {from_us(found.first_us):%Y-%m-%d %H:%M} to {from_us(found.last_us):%Y-%m-%d %H:%M} UTC")
    typer.echo(f"archived  {' '.join(found.archived) or 'none'}")


@ledger.command()
def verify(place: LedgerPlace = None, config: ConfigFile = None) -> None:
    """Hold the sums by quarter of an hour against the rows, of all months that are not archived.

    Exit 1 where they differ, 2 where the ledger cannot be read.
    """
    where = place or ledger_place(read_config(config, {}))
    try:
        found = check(where)
    except BillingError as error:
        raise refused(error) from None
    for one in found[:_SHOWN]:
        quarter_us, *keys = one.key
        named = " ".join(f"{name}={value}" for name, value in zip(KEYS, keys, strict=True) if value)
        typer.echo(f"{from_us(quarter_us):%Y-%m-%d %H:%M} {named}: rows {one.of_rows}, sums {one.of_quarters}")
    if found:
        typer.echo(f"{len(found):,} sums are not those of the rows; `prefixgate ledger rebuild` makes them anew")
        raise typer.Exit(1)
    typer.echo("the sums are those of the rows")


@ledger.command()
def rebuild(place: LedgerPlace = None, config: ConfigFile = None) -> None:
    """Make the sums anew from the rows. Nothing can be settled meanwhile. Exit 2 where the ledger cannot be written."""
    try:
        made = rebuild_sums(place or ledger_place(read_config(config, {})))
    except BillingError as error:
        raise refused(error) from None
    typer.echo(f"{made:,} sums were made from the rows")


@ledger.command()
def archive(
    to: Annotated[Path, typer.Option(help="Folder of the files, one a month.")],
    month: Annotated[list[str] | None, typer.Option(help="A month that is over, 2026-10, in UTC; repeat.")] = None,
    keep_months: Annotated[
        int | None, typer.Option(min=0, help="Every month before so many whole ones and the running one.")
    ] = None,
    not_invoiced: Annotated[
        bool, typer.Option("--not-invoiced", help="Also a month with usage that is on no invoice.")
    ] = False,
    place: LedgerPlace = None,
    config: ConfigFile = None,
) -> None:
    """Move months that are over into files of their own; their sums stay, so reports and issued invoices stay too.

    The gateway may run. Cut off, it goes on where it was when it is called again. Exit 2 where a month cannot be moved,
    also where it is not invoiced though there are invoices, or invoicing_file is configured.
    """
    if (month is None) == (keep_months is None):
        raise refused("say either --month or --keep-months")
    settings = read_config(config, {})
    where = place or ledger_place(settings)
    try:
        months = month or months_before(where, keep_months or 0, datetime.now(UTC))
        for one in months:
            if not not_invoiced:
                must_be_invoiced(where, one, is_configured=settings.invoicing_file is not None)
            done = archive_month(where, one, to, lambda: datetime.now(UTC))
            typer.echo(
                f"{one}: {counted(done.requests, 'request')} in {done.file}, {done.deleted:,} removed from the ledger"
            )
    except BillingError as error:
        raise refused(error) from None
    if not months:
        typer.echo("there is no month to move")


@ledger.command()
def restore(
    month: Annotated[str, typer.Option(help="A month that was archived, 2026-10.")],
    from_: Annotated[Path, typer.Option("--from", help="Folder that has its file.")],
    place: LedgerPlace = None,
    config: ConfigFile = None,
) -> None:
    """Bring the rows of an archived month back, such as to invoice it; the file stays as it is.

    The gateway may run. Cut off, it goes on when it is called again. Exit 2 where the file is another one.
    """
    try:
        brought = restore_month(place or ledger_place(read_config(config, {})), month, from_)
    except BillingError as error:
        raise refused(error) from None
    typer.echo(f"{month}: in the ledger again: {counted(brought, 'request')}")
