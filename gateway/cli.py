"""The commands. No logic here: each reads its arguments and calls what does the work."""

from pathlib import Path
from typing import Annotated

import typer

from gateway.config import Config, ConfigInvalid, load_config, process_environment
from gateway.edge.auth import new_key
from gateway.serving import AnnouncingServer, server_config
from gateway.telemetry import set_up_logging

cli = typer.Typer(
    name="prefixgate",
    help="Sends each LLM request to the GPU that already holds its prefix, and bills what was really computed.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
keys = typer.Typer(help="API keys.", no_args_is_help=True)
cli.add_typer(keys, name="keys")

ConfigFile = Annotated[
    Path | None, typer.Option("--config", "-c", envvar="PREFIXGATE_CONFIG", help="YAML file; see docs/config.md.")
]


def main() -> None:
    """Entry point of the console script."""
    cli()


@cli.command()
def serve(
    backend: Annotated[list[str] | None, typer.Option(help="Base URL of a model server; repeat for each.")] = None,
    config: ConfigFile = None,
    host: Annotated[str | None, typer.Option(help="Address to bind.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to bind; 0 takes a free one.")] = None,
    redis_url: Annotated[str | None, typer.Option(help="Redis or Valkey to share the index on.")] = None,
    ledger: Annotated[Path | None, typer.Option(help="SQLite file of the ledger.")] = None,
    prices: Annotated[Path | None, typer.Option(help="Price book, YAML.")] = None,
    keys_file: Annotated[Path | None, typer.Option("--keys", help="Tenants and their keys, YAML.")] = None,
    policy: Annotated[str | None, typer.Option(help="prefix or round_robin.")] = None,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error.")] = None,
) -> None:
    """Run the gateway."""
    settings = _config(
        config,
        {
            "backends": [{"url": url} for url in backend] if backend else None,
            "listen.host": host,
            "listen.port": port,
            "index.redis_url": redis_url,
            "ledger.path": ledger,
            "prices_file": prices,
            "keys_file": keys_file,
            "scheduling.policy": policy,
            "log_level": log_level,
        },
    )
    if not settings.backends:
        raise _refused("no backend: give --backend URL, or backends in the config file")
    set_up_logging(settings.log_level)
    server = AnnouncingServer(server_config(settings, process_environment()))
    server.run()
    if not server.started:
        raise typer.Exit(3)


@keys.command("new")
def keys_new(
    tenant: Annotated[str, typer.Argument(help="Tenant the key is for.")],
    key_id: Annotated[str, typer.Option("--id", help="Name of the key in the ledger.")] = "",
) -> None:
    """Make an API key: shown once here, kept as a hash in the keys file."""
    key, digest = new_key()
    typer.echo(f"key, shown only now:  {key}\n\nentry for the keys file:\n")
    typer.echo(f"tenants:\n  - id: {tenant}\n    keys:\n      - {{id: {key_id or tenant + '-1'}, sha256: {digest}}}")


def _config(path: Path | None, flags: dict[str, object]) -> Config:
    try:
        return load_config(path, process_environment(), flags)
    except ConfigInvalid as error:
        raise _refused(str(error)) from None


def _refused(why: str) -> typer.Exit:
    typer.echo(f"prefixgate: {why}", err=True)
    return typer.Exit(2)
