"""`prefixgate index`: what `/admin/index` of a running gateway says, as tables.

Exit codes: 1 where the gateway does not do it (it is away, Redis is, nobody of that name is known), 2 where it cannot
be asked (no token, or another one than its own).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from billing.counting import counted
from gateway.admin_client import Gateway, TokenFile, as_gateways_say, ask, asked
from gateway.command_line.answers import print_json
from gateway.command_line.completing import endpoints
from gateway.command_line.words import age, number, percent, size
from gateway.terminal import AsJson, ConfigFile, refused
from gateway.terminal_tables import wide_console

_MOST_NAMES = 4
_SHOWN = ": --json shows it"

index = typer.Typer(help="What the prefix index of a running gateway holds.", no_args_is_help=True)

Rows = Sequence[Mapping[str, Any]]


@index.command()
def show(
    as_json: AsJson = False, gateway: Gateway = None, token_file: TokenFile = None, config: ConfigFile = None
) -> None:
    """Who holds how much, how old it is, how far expectations can be relied on, and how KV events stand."""
    of = asked(gateway, token_file, config)
    report = ask("GET", "/admin/index", {}, of)
    if as_json:
        print_json(report)
    else:
        with as_gateways_say(of, _SHOWN):
            rows = (_holders(report["holders"]), _shares(report["reliability"]), _feeds(report["feeds"]))
            tables = (_totals(report), *rows)
        _print_tables(*tables)
    if report.get("store") is None:
        raise refused(f"the index could not be read: {report.get('unreadable')}", 1)


@index.command()
def top(
    top: Annotated[int, typer.Option("--top", "--most", min=1, max=1000, help="Prefixes to show.")] = 20,
    max_nodes: Annotated[int, typer.Option(min=1, max=200_000, help="Nodes to read of each shard.")] = 100_000,
    as_json: AsJson = False,
    gateway: Gateway = None,
    token_file: TokenFile = None,
    config: ConfigFile = None,
) -> None:
    """The prefixes that weigh most: their tokens times the stored prompts that begin with them. Hashes, no text."""
    query = {"top": str(top), "max_nodes": str(max_nodes)}
    of = asked(gateway, token_file, config)
    report = ask("GET", "/admin/index/top", query, of)
    if as_json:
        print_json(report)
        return
    table = Table("prefix", "weight, tokens", "tokens", "ends at", "prompts", "ways on", "last use", "holders")
    with as_gateways_say(of, _SHOWN):
        for row in report["prefixes"]:
            sizes = (row["weight_tokens"], row["tokens"], row["depth_tokens"], row["prompts"], row["fan_out"])
            _add(table, row["hash"], *map(number, sizes), age(row["last_use_s"]), _names(row))
        cut = ", not all: prompts are at least these" if report["is_cut"] else ""
        read = f"{counted(report['nodes_read'], 'node')} read{cut}"
    _print_tables(table)
    typer.echo(read)


@index.command()
def clear(
    endpoint: Annotated[
        str | None, typer.Option(help="An endpoint: all its caches, as it is now.", autocompletion=endpoints)
    ] = None,
    holder: Annotated[str | None, typer.Option(help="One holder as `show` names it, present or past.")] = None,
    as_json: AsJson = False,
    gateway: Gateway = None,
    token_file: TokenFile = None,
    config: ConfigFile = None,
) -> None:
    """End what the index says of an endpoint, as if it had been restarted. Nothing is sent to the engine."""
    if (endpoint is None) == (holder is None):
        raise refused("give either --endpoint or --holder")
    query = {"endpoint": endpoint} if endpoint is not None else {"holder": holder or ""}
    of = asked(gateway, token_file, config)
    report = ask("POST", "/admin/index/clear", query, of)
    if as_json:
        print_json(report)
        return
    table = Table("cleared", "claim", "blocks")
    with as_gateways_say(of, _SHOWN):
        for row in report["cleared"]:
            _add(table, row["holder"], row["claim"], number(row["blocks"]))
        for name in {*report["holders"]} - {row["holder"] for row in report["cleared"]}:
            _add(table, name, "-", "0")
    _print_tables(table)


def _print_tables(*tables: Table) -> None:
    shown = [table for table in tables if table.row_count]
    console = wide_console(*tables)
    for table in shown or tables[:1]:
        console.print(table)


def _totals(report: Mapping[str, Any]) -> Table:
    table = Table("", "nodes", "blocks", "bytes, about", "of at most", "claims", "free", "to be freed")
    shards: Rows = report["shards"]
    named = [(f"shard {at}", shard) for at, shard in enumerate(shards)] if len(shards) > 1 else []
    total = report["total"]
    if total is None:
        _add(table, "not read", *"-------")
    for name, sizes in [(f"in {report['store']}", total), *named] if total is not None else []:
        limit = size(report["max_bytes"] // (len(shards) if name.startswith("shard") else 1))
        counts = (sizes["seats_used"], sizes["seats_free"], sizes["seats_ending"])
        sums = (number(sizes["nodes"]), number(sizes["blocks"]), size(sizes["estimated_bytes"]), limit)
        _add(table, name, *sums, *map(number, counts))
    writes = f"{report['queued_writes']} writes wait, {report['dropped_writes']} were dropped; "
    table.caption = (
        writes
        + f"{report['stand_in_matches']} matches were answered by this gateway alone"
        + (f"; Redis is not in use now: {report['degraded']}" if report["degraded"] else "")
    )
    return table


def _holders(rows: Rows) -> Table:
    table = Table("holder", "claim", "now", "blocks", "of", "nodes", "newest use", "oldest use")
    for row in rows:
        counts = map(number, (row["blocks"], row["capacity_blocks"], row["nodes"]))
        ages = (age(row["newest_use_s"]), age(row["oldest_use_s"]))
        _add(table, row["holder"], row["claim"], "yes" if row["is_present"] else "no", *counts, *ages)
    return table


def _shares(reliability: Mapping[str, Any]) -> Table:
    table = Table(
        "endpoint", "told by", "answers", "cached, reported", "cached, expected", "error", "emptied, by answers"
    )
    for row in reliability["endpoints"]:
        window = row["window"]
        shares = (window["reported_share"], window["expected_share"])
        error = window["mean_absolute_error_percent"]
        _add(
            table,
            *(row["endpoint"], row["mode"], number(window["answers"]), *(percent(share, 1) for share in shares)),
            *("-" if error is None else f"{error:.1f} %", number(row["inferred_restarts"])),
        )
    return table


def _feeds(rows: Rows) -> Table:
    table = Table("KV events of", "rank", "source", "state", "blocks", "batches", "gaps", "lag", "why")
    for row in rows:
        counts = map(number, (row["blocks"], row["counts"]["batches"], row["counts"]["gaps"]))
        place = (row["endpoint_id"], str(row["rank"]), row["source"], row["state"])
        _add(table, *place, *counts, age(row["lag_s"]), row["why"] or "")
    return table


def _names(row: Mapping[str, Any]) -> str:
    """A few of the holders of a prefix, and how many more there are."""
    shown, count = row["holders"][:_MOST_NAMES], row["holder_count"]
    return " ".join(shown) + (f" and {count - len(shown)} more" if count > len(shown) else "")


def _add(table: Table, *cells: str) -> None:
    table.add_row(*_escaped(cells))


def _escaped(cells: Iterable[str]) -> Iterable[str]:
    return map(escape, cells)
