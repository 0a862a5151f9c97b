"""What all commands share: the configuration they read, options that name a ledger and a period, how they refuse."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final

import typer

from gateway.command_line.refusals import refused
from gateway.config import Config, ConfigInvalid, load_config, process_environment

__all__ = [
    "AsJson",
    "ConfigFile",
    "From",
    "LedgerPlace",
    "Month",
    "Quiet",
    "TimeZone",
    "To",
    "need_backends",
    "read_config",
    "refused",
]

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
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON; docs/cli.md has its shape.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress on standard error.")]


USUAL_KEY: Final = "OPENAI_API_KEY"
"""Variable in which the clients' libraries look for a key."""


def read_config(path: Path | None, flags: Mapping[str, object]) -> Config:
    """The effective configuration; see `load_config`. Raises what `refused` makes where it cannot be used."""
    try:
        return load_config(path, process_environment(), flags)
    except ConfigInvalid as error:
        raise refused(error) from None


def key_in(variable: str) -> str | None:
    """The key of an address, None where the usual variable has none. Raises what `refused` makes: where another was
    named and is not there, and for what no header field can carry."""
    key = process_environment().get(variable, "").strip()
    if not key and variable != USUAL_KEY:
        raise refused(f"--api-key-env {variable}: there is no such variable, or nothing is in it")
    if not (key.isascii() and key.isprintable()):
        raise refused(f"the key in {variable} has letters that no header field can carry")
    return key or None


def need_backends(settings: Config) -> None:
    """Raises what `refused` makes where the configuration names no backend, and no place to find one."""
    if not settings.backends and not settings.discovery.finds:
        raise refused(
            "no backend: give --backend URL, or backends or discovery in the config file", code="backends_missing"
        )
