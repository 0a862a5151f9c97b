"""`prefixgate check`: whether a configuration works, and what to mend first."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated

import typer

from billing.counting import counted
from gateway.app import STARTUP_ERRORS
from gateway.checking import ask_backends, check_amounts, check_currencies, check_files, check_index, effective_yaml
from gateway.command_line.answers import print_json
from gateway.command_line.progress import progress
from gateway.commands.check_report import Checked, checked_json, show
from gateway.config import Config, process_environment
from gateway.log_lines import tell_nobody
from gateway.proof import Effort
from gateway.terminal import AsJson, ConfigFile, Quiet, need_backends, read_config, refused
from prefix_index import IndexUnavailable

_MOST_BROKEN_SHOWN = 100
_ALL_MODELS = 1_000_000


def check(
    backend: Annotated[list[str] | None, typer.Option(help="Base URL of a model server; repeat for each.")] = None,
    proof: Annotated[bool, typer.Option(help="Send probes and compare the gateway's tokens with the engine's.")] = True,
    most_models: Annotated[
        int, typer.Option(min=0, help="Models of each endpoint that are probed; 0: all. Adapters go with their base.")
    ] = 16,
    time_limit_s: Annotated[float, typer.Option(min=0, help="Begin no further probe after so long.")] = 300.0,
    whole_index: Annotated[
        bool, typer.Option("--index", help="Instead, walk the whole index at index.redis_url for broken invariants.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Also the configuration in force, and every probe.")
    ] = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
    config: ConfigFile = None,
) -> None:
    """Whether a configuration works, and what to mend first: its files, every backend, and that tokens are as theirs.

    Exit 1 where a backend or a source of endpoints does not answer, a backend counts other tokens, or the index is
    broken or away; 2 where the configuration cannot be used.
    """
    settings = read_config(config, {"backends": [{"url": url} for url in backend] if backend else None})
    if whole_index:
        _walk_index(settings, as_json=as_json)
        return
    need_backends(settings)
    tell_nobody()  # what it would tell in its log, the report says
    effort = Effort(most_models=most_models or _ALL_MODELS, limit_s=time_limit_s)
    try:
        texts = check_files(settings, process_environment())
        with progress("models probed", quiet=quiet or as_json) as told:
            asking = ask_backends(settings, process_environment(), texts if proof else None, replace(effort, told=told))
            findings, proofs, lost = asyncio.run(asking)
        now = datetime.now(UTC)
        slips = [*check_currencies(settings, now), *check_amounts(settings, findings, now)]
    except STARTUP_ERRORS as error:
        raise refused(error) from None
    found = Checked(findings, proofs if proof else None, lost, slips, effective_yaml(settings) if verbose else None)
    if as_json:
        print_json(checked_json(found))
    else:
        show(found)
    if not found.is_usable:
        raise typer.Exit(1)


def _walk_index(settings: Config, *, as_json: bool) -> None:
    try:
        found = asyncio.run(check_index(settings, process_environment()))
    except IndexUnavailable as error:
        raise refused(error, 1) from None
    except STARTUP_ERRORS as error:
        raise refused(error) from None
    if as_json:
        print_json({"stored": found.stored, "broken": found.broken})
    else:
        typer.echo(f"index, {found.stored}")
        for word in found.broken[:_MOST_BROKEN_SHOWN]:
            typer.echo(f"broken: {word}")
        typer.echo(counted(len(found.broken), "broken invariant") if found.broken else "sound: no broken invariant")
    if found.broken:
        raise typer.Exit(1)
