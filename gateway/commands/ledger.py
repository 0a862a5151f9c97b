"""`prefixgate ledger`: what is in it, whether its sums are those of its rows, and moving old months out of it."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from billing import BillingError
from billing.archive import Archived, archive_month, months_before, restore_month
from billing.counting import counted
from billing.invoicing.uninvoiced import must_be_invoiced
from billing.maintenance import check, contents, migrate, rebuild_sums
from billing.reports.reading import place_of
from billing.rollup import AMOUNTS, KEYS, SECONDS, TOKENS
from billing.rollup_sql import Difference, Sums
from billing.schema import REVISION
from billing.when import from_us
from gateway.command_line.answers import print_json
from gateway.command_line.progress import progress
from gateway.config import ledger_place
from gateway.terminal import AsJson, ConfigFile, LedgerPlace, Quiet, read_config, refused

ledger = typer.Typer(no_args_is_help=True, help="What is in the ledger, its sums, and moving old months out of it.")

_SHOWN = 20


@ledger.command()
def show(as_json: AsJson = False, quiet: Quiet = False, place: LedgerPlace = None, config: ConfigFile = None) -> None:
    """How many rows each table has, of which time, and which months are archived. Reads all of it."""
    where = place or ledger_place(read_config(config, {}))
    try:
        with progress("reading the ledger", quiet=quiet or as_json) as told:
            told(0, None)
            found = contents(where)
    except BillingError as error:
        raise refused(error) from None
    if as_json:
        span = [None if at is None else from_us(at).isoformat() for at in (found.first_us, found.last_us)]
        said = {"rows": found.rows, "first_opened_at": span[0], "last_opened_at": span[1]}
        print_json({"ledger": place_of(where), **said, "archived": list(found.archived)})
        return
    typer.echo(f"ledger    {place_of(where)}")
    for table, rows in found.rows.items():
        typer.echo(f"{table:<16}{rows:>14,}")
    if found.first_us is not None and found.last_us is not None:
        typer.echo(f"opened    {from_us(found.first_us):%Y-%m-%d %H:%M} to {from_us(found.last_us):%Y-%m-%d %H:%M} UTC")
    typer.echo(f"archived  {' '.join(found.archived) or 'none'}")


@ledger.command()
def verify(as_json: AsJson = False, quiet: Quiet = False, place: LedgerPlace = None, config: ConfigFile = None) -> None:
    """Hold the sums by quarter of an hour against the rows, of all months that are not archived.

    Exit 1 where they differ, 2 where the ledger cannot be read.
    """
    where = place or ledger_place(read_config(config, {}))
    try:
        with progress("comparing sums and rows", quiet=quiet or as_json) as told:
            told(0, None)
            found = check(where)
    except BillingError as error:
        raise refused(error) from None
    if as_json:
        print_json({"sound": not found, "differences": [_difference(one) for one in found]})
        raise typer.Exit(int(bool(found)))
    for one in found[:_SHOWN]:
        quarter_us, *keys = one.key
        named = " ".join(f"{name}={value}" for name, value in zip(KEYS, keys, strict=True) if value)
        typer.echo(f"{from_us(quarter_us):%Y-%m-%d %H:%M} {named}: rows {one.of_rows}, sums {one.of_quarters}")
    if found:
        typer.echo(f"{len(found):,} sums are not those of the rows; `prefixgate ledger rebuild` makes them anew")
        raise typer.Exit(1)
    typer.echo("the sums are those of the rows")


@ledger.command()
def rebuild(
    as_json: AsJson = False, quiet: Quiet = False, place: LedgerPlace = None, config: ConfigFile = None
) -> None:
    """Make the sums anew from the rows. Nothing can be settled meanwhile. Exit 2 where the ledger cannot be written."""
    where = place or ledger_place(read_config(config, {}))
    try:
        with progress("making sums", quiet=quiet or as_json) as told:
            told(0, None)
            made = rebuild_sums(where)
    except BillingError as error:
        raise refused(error) from None
    if as_json:
        print_json({"sums": made})
    else:
        typer.echo(f"{made:,} sums were made from the rows")


@ledger.command("migrate")
def bring_up(
    as_json: AsJson = False, quiet: Quiet = False, place: LedgerPlace = None, config: ConfigFile = None
) -> None:
    """Make the tables those of this version, before gateways of it start; each would do so itself when it starts.

    Nothing can be settled meanwhile. Exit 2 where the ledger cannot be written, or is of a newer version.
    """
    where = place or ledger_place(read_config(config, {}))
    try:
        with progress("changing tables", quiet=quiet or as_json) as told:
            told(0, None)
            before = migrate(where)
    except BillingError as error:
        raise refused(error) from None
    if as_json:
        print_json({"ledger": place_of(where), "before": None if before is None else int(before), "now": int(REVISION)})
    elif before == REVISION:
        typer.echo(f"the tables are of version {int(REVISION)} already")
    else:
        was = "there were none" if before is None else f"they were of {int(before)}"
        typer.echo(f"the tables are of version {int(REVISION)}; {was}")


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
    as_json: AsJson = False,
    quiet: Quiet = False,
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
    moved: list[tuple[str, Archived]] = []
    try:
        months = month or months_before(where, keep_months or 0, datetime.now(UTC))
        with progress("months archived", quiet=quiet or as_json) as told:
            for number, one in enumerate(months):
                told(number, len(months))
                if not not_invoiced:
                    must_be_invoiced(where, one, is_configured=settings.invoicing_file is not None)
                moved.append((one, archive_month(where, one, to, lambda: datetime.now(UTC))))
    except BillingError as error:
        if moved:
            _say_moved(moved, as_json=as_json)
        raise refused(error) from None
    _say_moved(moved, as_json=as_json)


@ledger.command()
def restore(
    month: Annotated[str, typer.Option(help="A month that was archived, 2026-10.")],
    from_: Annotated[Path, typer.Option("--from", help="Folder that has its file.")],
    as_json: AsJson = False,
    quiet: Quiet = False,
    place: LedgerPlace = None,
    config: ConfigFile = None,
) -> None:
    """Bring the rows of an archived month back, such as to invoice it; the file stays as it is.

    The gateway may run. Cut off, it goes on when it is called again. Exit 2 where the file is another one.
    """
    where = place or ledger_place(read_config(config, {}))
    try:
        with progress(f"bringing back {month}", quiet=quiet or as_json) as told:
            told(0, None)
            brought = restore_month(where, month, from_)
    except BillingError as error:
        raise refused(error) from None
    if as_json:
        print_json({"month": month, "requests": brought})
    else:
        typer.echo(f"{month}: in the ledger again: {counted(brought, 'request')}")


def _say_moved(moved: Sequence[tuple[str, Archived]], *, as_json: bool) -> None:
    """What is done, also where a later month could not be moved."""
    if as_json:
        rows = [(month, done.requests, str(done.file), done.deleted) for month, done in moved]
        print_json([dict(zip(("month", "requests", "file", "deleted"), row, strict=True)) for row in rows])
        return
    for month, done in moved:
        kept = f"{counted(done.requests, 'request')} in {done.file}"
        typer.echo(f"{month}: {kept}, {done.deleted:,} removed from the ledger")
    if not moved:
        typer.echo("there is no month to move")


def _difference(one: Difference) -> dict[str, object]:
    """A sum that is not that of its rows; names that are empty are null."""
    quarter_us, *names = one.key
    named = dict(zip(KEYS, (name or None for name in names), strict=True))
    return {
        "from": from_us(quarter_us).isoformat(),
        **named,
        "of_rows": _sums(one.of_rows),
        "of_sums": _sums(one.of_quarters),
    }


def _sums(found: Sums | None) -> dict[str, object] | None:
    if found is None:
        return None
    tokens = dict(zip(TOKENS, found.counts[1:], strict=False))
    amounts = {f"{name}_pico": str(pico) for name, pico in zip(AMOUNTS, found.amounts, strict=True)}
    return {"requests": found.counts[0], **tokens, **amounts, **dict(zip(SECONDS, found.seconds, strict=True))}
