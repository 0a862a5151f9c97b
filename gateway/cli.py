"""The commands. No logic here: each reads its arguments and calls what does the work."""

import asyncio
import importlib.metadata
import signal
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from billing.counting import counted
from gateway.app import STARTUP_ERRORS
from gateway.checking import Finding, ask_backends, check_currencies, check_files, check_index, effective_yaml
from gateway.commands.cost import cost, jobs
from gateway.commands.explain import explain
from gateway.commands.fixes import fixes
from gateway.commands.index import index
from gateway.commands.invoice import invoice
from gateway.commands.keys import keys
from gateway.commands.ledger import ledger
from gateway.commands.linting import lint
from gateway.commands.prices import prices
from gateway.commands.report import report
from gateway.commands.simulate import simulate
from gateway.commands.templates import templates
from gateway.commands.verify import verify
from gateway.config import Config, ConfigInvalid, load_config, process_environment
from gateway.log_lines import LOGGER, set_up_logging
from gateway.options import endpoint_of
from gateway.proof import Proof, Verdict, summary
from gateway.serving import AnnouncingServer, run_until_stopped, server_config
from gateway.terminal import ConfigFile, read_config, refused
from gateway.terminal_tables import wide_console
from gateway.workers.supervisor import supervise
from prefix_index import IndexUnavailable

_MOST_BROKEN_SHOWN = 100

cli = typer.Typer(
    name="prefixgate",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
cli.add_typer(keys, name="keys")
cli.add_typer(index, name="index")
cli.add_typer(invoice, name="invoice")
cli.add_typer(ledger, name="ledger")
cli.add_typer(prices, name="prices")
cli.add_typer(templates, name="templates")
cli.command("explain")(explain)
cli.command("verify")(verify)
cli.command("fixes")(fixes)
cli.command("lint")(lint)
cli.command("simulate")(simulate)
cli.command("report")(report)
cli.command("cost")(cost)
cli.command("jobs")(jobs)


def main() -> None:
    """Entry point of the console script."""
    cli()


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"prefixgate {importlib.metadata.version('prefixgate')}")
        raise typer.Exit


@cli.callback()
def options_of_all(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    """Sends each LLM request to the GPU that already holds its prefix, and bills what was really computed."""


@cli.command()
def serve(
    backend: Annotated[list[str] | None, typer.Option(help="Base URL of a model server; repeat for each.")] = None,
    config: ConfigFile = None,
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
    _need_backends(settings)
    _need_usable(settings)
    set_up_logging(settings.log_level)
    if settings.workers > 1 or settings.supervised:
        served = supervise(settings, process_environment(), partial(_read_again, config, flags))
    else:
        signal.signal(signal.SIGHUP, lambda *_: LOGGER.warning("SIGHUP: a reload needs --supervised, nothing changed"))
        served = run_until_stopped(AnnouncingServer(server_config(settings, process_environment())))
    if not served:
        raise typer.Exit(3)


@cli.command()
def demo(
    seed: Annotated[int, typer.Option(help="Order of the requests.")] = 1,
    keep: Annotated[bool, typer.Option(help="Leave everything running at the end, until Ctrl-C.")] = False,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write what the table shows to this file.")] = None,
    model: Annotated[str, typer.Option(help="smollm2, or tiny: two layers of random weights, in seconds.")] = "smollm2",
    quick: Annotated[bool, typer.Option(help="Three turns of each conversation and short answers.")] = False,
) -> None:
    """Two real engines, three tenants, the same work twice: round robin, then prefix-aware."""
    from gateway.demo import MODELS, demo_options, main  # noqa: PLC0415 - what it needs is not needed to serve

    if model not in MODELS:
        raise refused(f"--model must be one of {', '.join(MODELS)}, not {model!r}")
    raise typer.Exit(main(demo_options(seed, model, quick=quick, keep=keep), json_file, Console()))


@cli.command()
def check(
    backend: Annotated[list[str] | None, typer.Option(help="Base URL of a model server; repeat for each.")] = None,
    config: ConfigFile = None,
    proof: Annotated[bool, typer.Option(help="Send probes and compare the gateway's tokens with the engine's.")] = True,
    whole_index: Annotated[
        bool, typer.Option("--index", help="Instead, walk the whole index at index.redis_url for broken invariants.")
    ] = False,
) -> None:
    """Show the effective configuration, read its files, ask every backend what it is, and prove our tokens are its own.

    Exit 1 where a backend does not answer or counts other tokens, or the index is broken; 2 where the configuration
    cannot be used.
    """
    settings = read_config(config, {"backends": [{"url": url} for url in backend] if backend else None})
    if whole_index:
        _walk_index(settings)
        return
    _need_backends(settings)
    typer.echo(effective_yaml(settings))
    try:
        texts = check_files(settings, process_environment())
        findings, proofs, lost = asyncio.run(ask_backends(settings, process_environment(), texts if proof else None))
        slips = check_currencies(settings, datetime.now(UTC))
    except STARTUP_ERRORS as error:
        raise refused(str(error)) from None
    for word in slips:
        typer.echo(f"look at: {word}")
    for word in lost:
        typer.echo(f"not found: {word}")
    table = Table("endpoint", "listed by", "up", "engine", "models", "block", "capacity, tokens", "what would help")
    for one in findings:
        up = "yes" if one.healthy else "no"
        cache = (one.block_size, one.capacity_tokens)
        row = (one.endpoint_id, one.sources, up, one.engine, one.models, *cache, one.advice)
        table.add_row(*map(escape, row))
    proven, lacking = _proof_table(proofs), _feature_table(findings)
    console = wide_console(table, lacking, proven)
    console.print(table)
    if lacking.row_count:
        console.print(lacking)
    if proof:
        console.print(proven)
        console.print(summary(proofs), highlight=False)
    if lost or not all(one.healthy for one in findings) or any(one.verdict is Verdict.DIFFERENT for one in proofs):
        raise typer.Exit(1)


def _walk_index(settings: Config) -> None:
    try:
        found = asyncio.run(check_index(settings, process_environment()))
    except IndexUnavailable as error:
        raise refused(str(error), 1) from None
    except STARTUP_ERRORS as error:
        raise refused(str(error)) from None
    typer.echo(f"index, {found.stored}")
    for word in found.broken[:_MOST_BROKEN_SHOWN]:
        typer.echo(f"broken: {word}")
    typer.echo(counted(len(found.broken), "broken invariant") if found.broken else "sound: no broken invariant")
    if found.broken:
        raise typer.Exit(1)


def _feature_table(findings: Sequence[Finding]) -> Table:
    """What each engine could do for the gateway and is not known to."""
    table = Table("endpoint", "feature", "stands", Column("turned on by", overflow="fold"), "without it")
    for one in findings:
        for lacking in one.features:
            row = (one.endpoint_id, lacking.feature, lacking.standing, lacking.flag or "-", lacking.without)
            table.add_row(*map(escape, row))
    return table


def _proof_table(proofs: Sequence[Proof]) -> Table:
    table = Table("endpoint", "model", "shape", "tokenizer", "ours", "engine", "ids equal", "verdict")
    for one in proofs:
        counts = ("-" if count is None else str(count) for count in (one.ours_tokens, one.engine_tokens))
        row = (one.endpoint_id, one.model, one.shape, one.source, *counts, one.ids_equal, one.outcome)
        table.add_row(*map(escape, row), style="bold red" if one.verdict is Verdict.DIFFERENT else None)
    return table


def _need_backends(settings: Config) -> None:
    if not settings.backends and not settings.discovery.finds:
        raise refused("no backend: give --backend URL, or backends or discovery in the config file")


def _need_usable(settings: Config) -> None:
    """What `check` refuses, `serve` refuses with the same text and exit code, before anything runs.

    The files are read once more at the start itself: tenths of a second for a large tokenizer.
    """
    try:
        _look_at(settings)
    except STARTUP_ERRORS as error:
        raise refused(str(error)) from None


def _look_at(settings: Config) -> None:
    check_files(settings, process_environment())
    for one in settings.backends:
        endpoint_of(one, process_environment())


def _read_again(path: Path | None, flags: Mapping[str, object]) -> Config:
    """The configuration as it is now. Raises one of `STARTUP_ERRORS` where it cannot be used."""
    settings = load_config(path, process_environment(), flags)
    if not settings.backends and not settings.discovery.finds:
        raise ConfigInvalid("no backend in the configuration, and nowhere to find one")
    _look_at(settings)
    return settings
