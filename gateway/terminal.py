"""What all commands share: the configuration they read, options that name a ledger and a period, how they refuse."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from gateway.config import Config, ConfigInvalid, load_config, process_environment

ConfigFile = Annotated[
    Path | None, typer.Option("--config", "-c", envvar="PREFIXGATE_CONFIG", help="YAML file; see docs/config.md.")
]
LedgerPlace = Annotated[
    str | None,
    typer.Option("--ledger", help="SQLite file or PostgreSQL URL of the ledger; default: the configured one."),
]
From = Annotated[
    str | None, typer.Option("--from", help="First instant of the period: a date or ISO time in --time-zone.")
]
To = Annotated[str | None, typer.Option(help="First instant after the period.")]
Month = Annotated[str | None, typer.Option(help="Instead of both: a month, as 2026-11.")]
TimeZone = Annotated[str, typer.Option(help="IANA name, as Asia/Kolkata, of the period's days.")]


def read_config(path: Path | None, flags: Mapping[str, object]) -> Config:
    """The effective configuration; see `load_config`. Raises what `refused` makes where it cannot be used."""
    try:
        return load_config(path, process_environment(), flags)
    except ConfigInvalid as error:
        raise refused(str(error)) from None


def refused(why: str, exit_code: int = 2) -> typer.Exit:
    """Says why a command does not do what it was asked, and is raised to end it."""
    typer.echo(f"prefixgate: {why}", err=True)
    return typer.Exit(exit_code)
