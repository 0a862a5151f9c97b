"""`prefixgate fixes`: what changing prompts on their way gained, and what it would do to a request."""

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.table import Table
from rich.text import Text

from billing import BillingError
from billing.reports.query import About, Query
from billing.reports.zones import asked_period
from billing.when import zone_named
from gateway.command_line.answers import print_json
from gateway.command_line.completing import tenants
from gateway.command_line.refusals import remark
from gateway.config import ledger_place
from gateway.fixes import ALL_FIXES, Fix, How, fixed
from gateway.fixes.pages import ledger_rows
from gateway.fixes.rules import USUAL_FIXES
from gateway.terminal import AsJson, ConfigFile, From, LedgerPlace, Month, TimeZone, To, read_config, refused
from gateway.terminal_tables import show_tables
from gateway.types import Route

_ROUTES = {"chat": Route.CHAT, "messages": Route.MESSAGES, "responses": Route.RESPONSES}

Try = Annotated[
    Path | None,
    typer.Option("--try", help="A request's body, `-` for standard input: print it as the fixes would make it."),
]


def fixes(
    from_: From = None,
    to: To = None,
    month: Month = None,
    time_zone: TimeZone = "UTC",
    tenant: Annotated[str | None, typer.Option(help="Of one tenant alone.", autocompletion=tenants)] = None,
    format_: Annotated[Literal["table", "json"], typer.Option("--format", help="How to print it.")] = "table",
    as_json: AsJson = False,
    try_: Try = None,
    route: Annotated[Literal["chat", "messages", "responses"], typer.Option(help="Of that body.")] = "chat",
    only: Annotated[
        list[Fix] | None, typer.Option("--fix", help="Which fixes to try; default: tools and lines.")
    ] = None,
    ledger: LedgerPlace = None,
    config: ConfigFile = None,
) -> None:
    """Requests that were changed on their way beside those left as they came: hit share, length of answers, waiting.

    With --try: what the fixes would make of a request. Exit 2 where the ledger or the file cannot be read.
    """
    if try_ is not None:
        _try(try_, How(_ROUTES[route], tuple(fix for fix in ALL_FIXES if fix in (only or USUAL_FIXES))))
        return
    try:
        period = asked_period(from_, to, month, zone_named(time_zone))
        rows = ledger_rows(ledger or ledger_place(read_config(config, {})), Query(*period, about=About(tenant=tenant)))
    except BillingError as error:
        raise refused(error) from None
    if as_json or format_ == "json":
        print_json(rows)
    else:
        show_tables(_table(rows), spare=("Output tokens", "Cached"), whole="--format json")
        if not rows:
            remark("no request of that period was changed on its way; docs/fixes.md says how that is turned on")


def _try(file: Path, how: How) -> None:
    try:
        body = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    except OSError as error:
        raise refused(f"{file}: {error.strerror}") from None
    done = fixed(body, how)
    typer.echo(done.body, nl=False)
    typer.echo(f"changed by: {', '.join(done.fixes) or 'nothing'}", err=True)


def _table(rows: list[dict[str, object]]) -> Table:
    table = Table(title="Changed on their way (on), and left as they came (off)", title_justify="left")
    for heading in ("Tenant", "Fixes"):
        table.add_column(heading, overflow="fold")
    for heading in (
        "Side",
        "Requests",
        "Prompt tokens",
        "Cached",
        "Hit share",
        "Output tokens",
        "a request",
        "TTFT, s",
    ):
        table.add_column(heading, justify="right")
    for row in rows:
        counts = [f"{row[name]:,}" for name in ("requests", "prompt_tokens", "cached_tokens")]
        table.add_row(
            *(Text(str(row[name])) for name in ("tenant", "fixes", "arm")),
            *counts,
            _number(row["hit_share"], ".1%"),
            f"{row['output_tokens']:,}",
            _number(row["output_tokens_mean"], ".1f"),
            _number(row["ttft_s"], ".3f"),
        )
    return table


def _number(value: object, form: str) -> str:
    return "" if value is None else format(value, form)
