"""`prefixgate keys`: make, list, revoke and rotate API keys in the keys file."""

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.markup import escape
from rich.table import Table

from billing import PeriodInvalid, parse_when
from gateway.command_line.answers import print_json
from gateway.command_line.completing import key_ids, tenants
from gateway.config import is_name
from gateway.edge.auth import new_key
from gateway.keys_edit import KeyWish, MadeKey, create_key, revoke_key, rotate_key
from gateway.keys_file import BudgetEntry, KeyEntry, KeysFileInvalid, TenantEntry, read_keys_file
from gateway.terminal import AsJson, ConfigFile, read_config, refused
from gateway.terminal_tables import show_tables

keys = typer.Typer(help="API keys.", no_args_is_help=True)

_SPARE: Final = ("begins with", "created", "name", "scopes", "limits", "budgets", "ends")
"""Headings that a narrow terminal does without, the first to go first."""
_SPAN: Final = re.compile(r"(\d{1,5})([smhd])")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_BUDGET: Final = re.compile(r"([0-9.]+)/(day|month)(?:@([A-Za-z0-9_+/-]+))?")

KeysFileOption = Annotated[
    Path | None, typer.Option("--file", "--keys", "-f", help="The keys file; default: keys_file of the configuration.")
]


@keys.command("create")
def create(
    tenant: Annotated[
        str, typer.Argument(help="Tenant the key is for; it is added where it is missing.", autocompletion=tenants)
    ],
    key_id: Annotated[str | None, typer.Option("--id", help="Name of the key; default: TENANT-1, -2, ...")] = None,
    expires: Annotated[str | None, typer.Option(help="When it ends: a date or ISO time, or 90d, 12h.")] = None,
    model: Annotated[list[str] | None, typer.Option(help="Only this model, `*` at its end; repeat for each.")] = None,
    endpoint: Annotated[list[str] | None, typer.Option(help="Only this endpoint; repeat for each.")] = None,
    route: Annotated[list[str] | None, typer.Option(help="Only this path; repeat for each.")] = None,
    no_fallbacks: Annotated[
        bool, typer.Option("--no-fallbacks", help="No other model answers in place of the one asked for.")
    ] = False,
    budget: Annotated[
        list[str] | None, typer.Option(help="Money, as 20/day or 500/month@Asia/Tokyo; repeat for each.")
    ] = None,
    requests_per_minute: Annotated[int | None, typer.Option("--rpm", help="Most requests a minute.")] = None,
    tokens_per_minute: Annotated[int | None, typer.Option("--tpm", help="Most tokens a minute.")] = None,
    concurrent: Annotated[int | None, typer.Option(help="Most requests at once.")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="name=value, on its rows of the ledger; repeat.")] = None,
    name: Annotated[str | None, typer.Option(help="What it is for, for people.")] = None,
    as_json: AsJson = False,
    file: KeysFileOption = None,
    config: ConfigFile = None,
) -> None:
    """Make a key and write it, hashed, to the keys file; it is shown once, here. A running gateway knows it soon."""
    now = datetime.now(UTC)
    limits = {
        "requests_per_minute": requests_per_minute,
        "tokens_per_minute": tokens_per_minute,
        "concurrent": concurrent,
    }
    fields: dict[str, object] = {
        "name": name,
        "expires_at": None if expires is None else _text(_end(expires, now)),
        "scopes": _given(
            {"models": model, "endpoints": endpoint, "routes": route, "fallbacks": False if no_fallbacks else None}
        ),
        "limits": _given(limits),
        "budgets": [_budget(one) for one in budget or []],
        "tags": dict(_tag(one) for one in tag or []),
    }
    for one in (tenant, *([key_id] if key_id else [])):
        _need_name(one)
    path = _path(file, config)
    try:
        made = create_key(path, KeyWish(tenant, key_id, _given(fields)), now)
    except KeysFileInvalid as error:
        raise refused(error) from None
    _show(made, path, as_json=as_json)


@keys.command("list")
def list_(
    as_json: AsJson = False,
    file: KeysFileOption = None,
    config: ConfigFile = None,
) -> None:
    """All keys: whose, how they begin, until when they work and what for."""
    path = _path(file, config)
    try:
        parsed = read_keys_file(path)
    except KeysFileInvalid as error:
        raise refused(error) from None
    now = datetime.now(UTC)
    rows = [_row(tenant, key, now) for tenant in parsed.tenants for key in tenant.keys]
    if as_json:
        print_json(rows)
        return
    table = Table()
    for name in ("tenant", "key", "begins with", "state", "created", "ends", "scopes", "limits", "budgets", "name"):
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*map(escape, _cells(row)))
    show_tables(table, spare=_SPARE, whole="--json")


@keys.command("revoke")
def revoke(
    key_id: Annotated[str, typer.Argument(help="The key's id.", autocompletion=key_ids)],
    as_json: AsJson = False,
    file: KeysFileOption = None,
    config: ConfigFile = None,
) -> None:
    """A key works no more, within seconds; its entry stays, since the ledger names it."""
    path = _path(file, config)
    try:
        revoke_key(path, key_id)
    except KeysFileInvalid as error:
        raise refused(error) from None
    if as_json:
        print_json({"key_id": key_id, "state": "revoked", "file": str(path)})
    else:
        typer.echo(f"revoked: {key_id}, in {path}")


@keys.command("rotate")
def rotate(
    key_id: Annotated[str, typer.Argument(help="The key's id; it stays the same.", autocompletion=key_ids)],
    grace: Annotated[str, typer.Option(help="How long the old key works on: 24h, 30m, 0s.")] = "24h",
    as_json: AsJson = False,
    file: KeysFileOption = None,
    config: ConfigFile = None,
) -> None:
    """A new key in place of one, with its id, limits and what is left of its budgets; shown once, here."""
    path = _path(file, config)
    try:
        made = rotate_key(path, key_id, _span(grace), datetime.now(UTC))
    except KeysFileInvalid as error:
        raise refused(error) from None
    _show(made, path, as_json=as_json)


@keys.command("new")
def new(
    tenant: Annotated[str, typer.Argument(help="Tenant the key is for.")],
    key_id: Annotated[
        str, typer.Option("--id", help="Name of the key in the ledger, one of its own; default: TENANT-1.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Make an API key without a file: shown once here, with the entry for a keys file."""
    key_id = key_id or f"{tenant}-1"
    for name in (tenant, key_id):
        _need_name(name)
    key, digest = new_key()
    if as_json:
        print_json({"tenant": tenant, "key_id": key_id, "key": key, "sha256": digest})
        return
    typer.echo(f"key, shown only now:  {key}\n\nentry for the keys file:\n")
    typer.echo(f'tenants:\n  - id: "{tenant}"\n    keys:\n      - {{id: "{key_id}", sha256: {digest}}}')
    typer.echo("\nFor a further tenant add only the item that begins with '- id:', under the one 'tenants:'.")
    typer.echo(
        f"For a further key of {tenant} add only the last line, under its one 'keys:'; each key has an id of its"
    )
    typer.echo(f"own, so make it with another: prefixgate keys new {tenant} --id NAME, such as {tenant}-2.")


def _path(file: Path | None, config: Path | None) -> Path:
    path = file or read_config(config, {}).keys_file
    if path is None:
        raise refused("no keys file: give --file, or keys_file in the config file", code="keys_file_missing")
    return path


def _show(made: MadeKey, path: Path, *, as_json: bool) -> None:
    if as_json:
        print_json({"tenant": made.tenant, "key_id": made.key_id, "key": made.key, "file": str(path)})
        return
    typer.echo(f"key {made.key_id} of tenant {made.tenant}, shown only now:  {made.key}")
    typer.echo(f"kept as a hash in {path}")


def _row(tenant: TenantEntry, key: KeyEntry, now: datetime) -> dict[str, Any]:
    """A key for programs; what is not set is null."""
    old = max((old.expires_at for old in key.retiring if old.expires_at > now), default=None)
    is_revoked = tenant.disabled or key.disabled
    is_over = key.expires_at is not None and key.expires_at <= now
    return {
        "tenant": tenant.id,
        "key": key.id,
        "prefix": key.prefix,
        "state": "revoked" if is_revoked else "expired" if is_over else "works",
        "created_at": None if key.created_at is None else _text(key.created_at),
        "ends_at": None if key.expires_at is None else _text(key.expires_at),
        "old_key_ends_at": None if old is None else _text(old),
        "scopes": key.scopes.model_dump(mode="json", exclude_none=True),
        "limits": key.limits.model_dump(mode="json", exclude_none=True) if key.limits else {},
        "budgets": [_budget_row(one) for one in key.budgets or ()],
        "name": key.name,
    }


def _budget_row(one: BudgetEntry) -> dict[str, str | None]:
    return {"amount": str(one.amount), "per": one.per, "time_zone": one.time_zone, "currency": one.currency}


def _cells(row: Mapping[str, Any]) -> Iterator[str]:
    """The same for people."""
    scopes = [f"{name}: {' '.join(names)}" for name, names in row["scopes"].items() if name != "fallbacks"]
    if not row["scopes"].get("fallbacks", True):
        scopes.append("no fallbacks")
    old = row["old_key_ends_at"]
    works_on = f", the old one until {old}" if row["state"] == "works" and old is not None else ""
    yield from (row["tenant"], row["key"], row["prefix"] or "", row["state"] + works_on)
    yield from (row["created_at"] or "", row["ends_at"] or "", "; ".join(scopes))
    yield ", ".join(f"{name} {value}" for name, value in row["limits"].items())
    yield ", ".join(map(_budget_text, row["budgets"]))
    yield row["name"] or ""


def _given(fields: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in fields.items() if value not in (None, [], {})}


def _need_name(name: str) -> None:
    if not is_name(name):
        raise refused(f"{name!r} is no name: letters, digits, dot, dash and underscore, at most 64")


def _span(text: str) -> timedelta:
    found = _SPAN.fullmatch(text)
    if found is None:
        raise refused(f"{text!r} is no span of time: give a number and s, m, h or d, as 24h")
    return timedelta(seconds=int(found[1]) * _SECONDS[found[2]])


def _end(text: str, now: datetime) -> datetime:
    if _SPAN.fullmatch(text):
        return now + _span(text)
    try:
        return parse_when(text)
    except PeriodInvalid:
        raise refused(f"{text!r} is neither a date or ISO time nor a span such as 90d") from None


def _budget(text: str) -> dict[str, object]:
    found = _BUDGET.fullmatch(text)
    if found is None:
        raise refused(f"{text!r} is no budget: give an amount and a period, as 20/day or 500/month@Asia/Tokyo")
    amount: object = int(found[1]) if found[1].isdigit() else found[1]
    return _given({"amount": amount, "per": found[2], "time_zone": found[3]})


def _tag(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name.strip(), value.strip()


def _budget_text(one: Mapping[str, str | None]) -> str:
    return " ".join(filter(None, (f"{one['amount']}/{one['per']}@{one['time_zone']}", one["currency"])))


def _text(when: datetime) -> str:
    return f"{when.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
