"""`prefixgate serve`: the gateway, in this process or as several workers under a supervisor."""

import signal
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from gateway.app import STARTUP_ERRORS
from gateway.checking import check_start
from gateway.command_line.refusals import NOT_STARTED
from gateway.config import Config, ConfigInvalid, load_config, process_environment
from gateway.log_lines import LOGGER, set_up_logging
from gateway.serving import AnnouncingServer, run_until_stopped, server_config
from gateway.terminal import ConfigFile, need_backends, read_config, refused
from gateway.workers.supervisor import supervise


def serve(
    backend: Annotated[list[str] | None, typer.Option(help="Base URL of a model server; repeat for each.")] = None,
    host: Annotated[str | None, typer.Option(help="Address to bind.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to bind; 0 takes a free one.")] = None,
    redis_url: Annotated[str | None, typer.Option(help="Redis or Valkey to share the index on.")] = None,
    ledger: Annotated[
        Path | None, typer.Option(help="SQLite file of the ledger; default: prefixgate.db in the current folder.")
    ] = None,
    prices: Annotated[Path | None, typer.Option(help="Price book, YAML.")] = None,
    keys_file: Annotated[Path | None, typer.Option("--keys", help="Tenants and their keys, YAML.")] = None,
    policy: Annotated[str | None, typer.Option(help="prefix, round_robin, least_requests or random.")] = None,
    workers: Annotated[int | None, typer.Option(help="Processes that serve, as one gateway.")] = None,
    supervised: Annotated[
        bool | None, typer.Option("--supervised", help="A supervisor for one worker too, so that SIGHUP reloads.")
    ] = None,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error.")] = None,
    config: ConfigFile = None,
) -> None:
    """Run the gateway.

    Exit 2 where the configuration cannot be used, 3 where the gateway could not start or a part of it failed.
    """
    flags: dict[str, object] = {
        "backends": [{"url": url} for url in backend] if backend else None,
        "listen.host": host,
        "listen.port": port,
        "index.redis_url": redis_url,
        "ledger.path": ledger,
        "prices_file": prices,
        "keys_file": keys_file,
        "scheduling.policy": policy,
        "workers": workers,
        "supervised": supervised,
        "log_level": log_level,
    }
    settings = read_config(config, flags)
    need_backends(settings)
    try:
        check_start(settings, process_environment())
    except STARTUP_ERRORS as error:
        raise refused(error) from None
    set_up_logging(settings.log_level)
    if settings.workers > 1 or settings.supervised:
        served = supervise(settings, process_environment(), partial(_read_again, config, flags))
    else:
        signal.signal(signal.SIGHUP, lambda *_: LOGGER.warning("SIGHUP: a reload needs --supervised, nothing changed"))
        served = run_until_stopped(AnnouncingServer(server_config(settings, process_environment())))
    if not served:
        raise typer.Exit(NOT_STARTED)


def _read_again(path: Path | None, flags: Mapping[str, object]) -> Config:
    """The configuration as it is now. Raises one of `STARTUP_ERRORS` where it cannot be used."""
    settings = load_config(path, process_environment(), flags)
    if not settings.backends and not settings.discovery.finds:
        raise ConfigInvalid("no backend in the configuration, and nowhere to find one")
    check_start(settings, process_environment())
    return settings
