"""`prefixgate status`: how a running gateway and its endpoints stand, in one look or again and again."""

import time
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.control import Control
from rich.markup import escape
from rich.table import Table

from billing.counting import counted
from gateway.admin_client import Asked, Gateway, TokenFile, as_gateways_say, look, whom
from gateway.command_line.answers import print_json
from gateway.command_line.refusals import NOT_DONE
from gateway.command_line.words import UNKNOWN, age, number, percent
from gateway.terminal import AsJson, ConfigFile
from gateway.terminal_tables import show_tables

_SPARE: Final = ("since", "engine", "KV use", "waiting", "running")
_FROM_ADMIN: Final = ("running_requests", "waiting_requests", "kv_use", "draining", "url", "sources")

Found = Mapping[str, Any]


def status(
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Look again and again, until Ctrl-C.")] = False,
    every_s: Annotated[float, typer.Option(min=0.1, max=86_400, help="Seconds between two looks.")] = 2.0,
    looks: Annotated[int | None, typer.Option(min=1, help="Leave after so many looks.")] = None,
    as_json: AsJson = False,
    gateway: Gateway = None,
    token_file: TokenFile = None,
    config: ConfigFile = None,
) -> None:
    """How a gateway and its endpoints stand: what is degraded and why, who is up, and what each has to do.

    With an admin token (as in the configuration) also running and waiting requests and KV use of each engine. With
    --watch and --json a line of JSON for each look; a gateway that goes away is looked for until it is back. Exit 1
    where the gateway does not answer, or cannot serve.
    """
    of = whom(gateway, token_file, config)
    if not watch and looks is None:
        found = seen(of)
        _show(found, as_json=as_json)
        raise typer.Exit(0 if found["ready"] else 1)
    last: Found | None = {}
    try:
        if as_json or looks is not None or not Console().is_terminal:
            for last in _looks(of, every_s, looks):
                if last is not None:
                    _show(last, as_json=as_json, is_line=True)
        else:
            console = Console()
            with console.screen():
                for last in _looks(of, every_s, looks):
                    if last is not None:
                        console.control(Control.home(), Control.clear())
                        _show(last, as_json=False)
    except KeyboardInterrupt:  # the ordinary end
        pass
    raise typer.Exit(0 if last is not None and last.get("ready", True) else 1)


def seen(of: Asked) -> Found:
    """The gateway as it is now. Raises what `refused` makes where it does not answer."""
    health, ready = look("/health", of, dict), look("/ready", of, dict)
    rows = look("/admin/endpoints", of, list) if of.token else []
    with as_gateways_say(of):
        found = _put_together(of, health, ready, rows)
        table_of(found), list(lines(found))  # now rather than when half of it is shown
    return found


def _put_together(of: Asked, health: Found, ready: Found, rows: Iterable[Found]) -> Found:
    admin = {row["id"]: row for row in rows}
    return {
        "gateway": of.url,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "version": health.get("version"),
        "status": health["status"],
        "ready": ready["ready"],
        "draining": ready.get("draining"),
        "degraded": health.get("degraded", {}),
        "workers": health.get("workers"),
        "queue": health.get("queue"),
        "endpoints": [_row(name, said, admin.get(name)) for name, said in health.get("endpoints", {}).items()],
    }


def _row(name: str, said: Found, admin: Found | None) -> Found:
    """An endpoint; what only the admin API tells is null without its token."""
    standing = said.get("standing", {})
    return {
        "endpoint": name,
        "up": said.get("healthy"),
        "state": standing.get("state"),
        "why": standing.get("why") or said.get("why"),
        "since": standing.get("since"),
        "engine": said.get("engine"),
        "in_flight_requests": said.get("in_flight_requests"),
        **{key: None if admin is None else admin.get(key) for key in _FROM_ADMIN},
    }


def _looks(of: Asked, every_s: float, looks: int | None) -> Iterator[Found | None]:
    """A look each so many seconds. One that was there and does not answer any more (None; it is said) may come back."""
    count = 0
    while looks is None or count < looks:
        if count:
            time.sleep(every_s)
        count += 1
        found = None
        try:
            found = seen(of)
        except typer.Exit as away:
            if count == 1 or away.exit_code != NOT_DONE:
                raise
        yield found


def _show(found: Found, *, as_json: bool, is_line: bool = False) -> None:
    if as_json:
        print_json(found, is_line=is_line)
        return
    for line in lines(found):
        typer.echo(line)
    show_tables(table_of(found), spare=_SPARE, whole="--json")


def lines(found: Found) -> Iterator[str]:
    """The gateway itself, and what is degraded."""
    rows = found["endpoints"]
    up, under_way = sum(bool(row["up"]) for row in rows), sum(row["in_flight_requests"] or 0 for row in rows)
    serving = "draining" if found["draining"] else "ready" if found["ready"] else "cannot serve"
    version = f", prefixgate {found['version']}" if found["version"] else ""
    yield f"{found['gateway']}{version}: {serving}, {found['status']}, at {found['at']}"
    yield f"{up} of {counted(len(rows), 'endpoint')} up, {counted(under_way, 'request')} under way" + _crew(found)
    for part, why in found["degraded"].items():
        yield f"degraded, {part}: {why}"


def _crew(found: Found) -> str:
    workers = found["workers"]
    return "" if workers is None else f", {workers['alive']} of {counted(workers['wanted'], 'worker')}"


def table_of(found: Found) -> Table:
    """The endpoints, those that need a look first."""
    table = Table("endpoint", "state", "since", "engine", "under way", "running", "waiting", "KV use", "why")
    for row in sorted(found["endpoints"], key=lambda row: (bool(row["up"]), row["endpoint"])):
        counts = (row["in_flight_requests"], row["running_requests"], row["waiting_requests"])
        state = "draining" if row["draining"] else row["state"] or ("up" if row["up"] else "down")
        cells = (row["endpoint"], state, _since(row["since"], found["at"]), row["engine"] or "unknown")
        table.add_row(*map(escape, (*cells, *map(number, counts), percent(row["kv_use"]), row["why"] or "")))
    return table


def _since(since: str | None, at: str) -> str:
    """How long an endpoint has stood so."""
    if since is None:
        return UNKNOWN
    return age(max((datetime.fromisoformat(at) - datetime.fromisoformat(since)).total_seconds(), 0.0))
