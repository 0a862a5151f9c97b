"""`prefixgate init`: a configuration to begin with, commented, and the files that it names."""

import json
import os
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final

import typer

from backends import EndpointConfig, EndpointId, InvalidEndpoint
from gateway.command_line.answers import print_json
from gateway.config import ConfigInvalid, is_name, load_config
from gateway.edge.auth import display_prefix, new_key
from gateway.terminal import AsJson, refused

_EXAMPLE_URL: Final = "http://10.0.0.10:8000"
_INDEX: Final = '#index: {redis_url: "redis://redis:6379/0"}'
_PRIVATE: Final = 0o600
_ADMIN: Final = "admin.token"
_UI: Final = "ui.token"
_SALT: Final = "salt.secret"
_TOKEN_BYTES: Final = 32
_TEXT: Final = """\
# prefixgate. All keys: docs/config.md. Lines that are commented show what else there is; a wrong key is refused.
#   prefixgate check -c {file}     whether it works, and what to mend first
#   prefixgate serve -c {file}

listen: {{host: {host}, port: {port}}}

# The model servers. Engine, models, block size and capacity are detected.
backends:
{backends}

# Tokenizers by served model name: needed where the engine has no /tokenize, and quicker where it has.
#models: {{llama-3.1-8b: {{tokenizer: /models/llama-3.1-8b}}}}

# Where the index of prefixes lives. Without redis_url the gateway has a private Valkey; several gateways need one.
{redis}

# What was used, durable before a client sees the end of its answer.
ledger: {{path: prefixgate.db}}
#ledger: {{url: "postgresql://user@host/database", password_file: /run/secrets/ledger}}

# Tenants and their keys; without it everyone may call. `prefixgate keys create TENANT --file keys.yaml` makes more.
{keys}

# Secret of tenants' cache salts, the same on every replica: without it they follow from names that others may know.
{salt}

# Token of the admin API, which `prefixgate status`, `index` and `explain` ask.
{token}

# Token of the dashboard at /ui, which is off without one; never the same as the admin token.
{ui}

# What tokens cost your tenants; `prefixgate prices check` reads it.
#prices_file: prices.yaml

# `salt` keeps tenants apart in the engines' caches, which some engines cannot; `none` allows those too.
#isolation: none
"""
_KEYS: Final = "# Tenants and their keys; docs/limits.md shows limits, budgets and scopes.\ntenants:\n"


def init(
    backend: Annotated[list[str] | None, typer.Option(help="Base URL of a model server; repeat for each.")] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to bind; 0 takes a free one.")] = 8080,
    redis_url: Annotated[str | None, typer.Option(help="Redis or Valkey to share the index on.")] = None,
    tenant: Annotated[
        list[str] | None,
        typer.Option(help="Make a key for this tenant, in keys.yaml beside it, and salt.secret; repeat for each."),
    ] = None,
    admin: Annotated[
        bool,
        typer.Option(
            "--admin", help="Make tokens of the admin API and the dashboard: admin.token, ui.token beside it."
        ),
    ] = False,
    output: Annotated[Path, typer.Option("--output", "-o", help="File to write.")] = Path("prefixgate.yaml"),
    force: Annotated[bool, typer.Option("--force", help="Write over files that are there.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write a commented configuration to begin with. It asks nothing; with tenants it makes their keys, shown once.

    Exit 1 where a file cannot be written, 2 where one is there already or a name is none.
    """
    _refuse_wrong(backend or (), tenant or (), redis_url, port)
    if output.name in ("", "..", "keys.yaml", _ADMIN, _UI, _SALT):
        raise refused(f"--output {output}: give the name of a file, and none of those that are written beside it")
    made = {name: new_key() for name in dict.fromkeys(tenant or ())}
    keys = output.with_name("keys.yaml") if made else None
    salt = output.with_name(_SALT) if made else None
    tokens = [output.with_name(name) for name in (_ADMIN, _UI)] if admin else []
    files = {output: _text(output, backend or (), redis_url, port, keys, tokens)}
    if keys is not None:
        now = datetime.now(UTC)
        files[keys] = _KEYS + "".join(_tenant(name, key, digest, now) for name, (key, digest) in made.items())
    files.update((path, secrets.token_urlsafe(_TOKEN_BYTES) + "\n") for path in (salt, *tokens) if path is not None)
    _write_all(files, output, force=force)
    shown = {name: key for name, (key, _) in made.items()}
    if as_json:
        rows = [{"tenant": name, "key_id": f"{name}-1", "key": key} for name, key in shown.items()]
        print_json({"files": [str(path) for path in files], "keys": rows})
        return
    _say(list(files), shown)
    if not backend:
        typer.echo(f"put the addresses of your model servers in the place of {_EXAMPLE_URL}")
    if tokens:
        typer.echo(f"dashboard, once it serves: http://127.0.0.1:{port}/ui, with the token in {tokens[-1]}")
    typer.echo(f"next: prefixgate check -c {output}")


def _say(files: Sequence[Path], keys: Mapping[str, str]) -> None:
    for path in files:
        typer.echo(f"written: {path}")
    for name, key in keys.items():
        typer.echo(f"key {name}-1 of tenant {name}, shown only now:  {key}")


def _refuse_wrong(backends: Sequence[str], tenants: Sequence[str], redis_url: str | None, port: int) -> None:
    """What `check` would refuse is not written."""
    wrong = [name for name in tenants if not is_name(name)]
    if wrong:
        raise refused(f"{wrong[0]!r} is no name: letters, digits, dot, dash and underscore, at most 64")
    try:
        for url in backends:
            EndpointConfig(EndpointId(url), url)
        flags = {"backends": [{"url": url} for url in backends], "index.redis_url": redis_url, "listen.port": port}
        load_config(None, {}, flags)
    except (ConfigInvalid, InvalidEndpoint) as error:
        raise refused(error) from None


def _tenant(name: str, key: str, digest: str, now: datetime) -> str:
    """A tenant of the keys file with one key, as `keys create` would write it. Names are quoted: `null` is one."""
    made_at = f"{now.isoformat(timespec='seconds').removesuffix('+00:00')}Z"
    fields = f'id: "{name}-1", sha256: {digest}, prefix: {display_prefix(key)}, created_at: "{made_at}"'
    return f'  - id: "{name}"\n    keys:\n      - {{{fields}}}\n'


def _text(
    output: Path, backends: Sequence[str], redis_url: str | None, port: int, keys: Path | None, tokens: Sequence[Path]
) -> str:
    token, ui = (json.dumps(str(path)) for path in tokens) if tokens else (_ADMIN, _UI)
    mark = "" if tokens else "#"
    return _TEXT.format(
        file=output,
        host="127.0.0.1" if keys is None else "0.0.0.0",  # noqa: S104 - with keys it may be reached
        port=port,
        backends="\n".join(f"  - {{url: {json.dumps(url)}}}" for url in backends or [_EXAMPLE_URL]),
        redis=_INDEX if redis_url is None else f"index: {{redis_url: {json.dumps(redis_url)}}}",
        keys="#keys_file: keys.yaml" if keys is None else f"keys_file: {json.dumps(str(keys))}",
        salt=f"{'#' if keys is None else ''}salt_secret_file: {json.dumps(str(output.with_name(_SALT)))}",
        token=f"{mark}admin_token_file: {token}",
        ui=f"{mark}ui: {{token_file: {ui}}}",
    )


def _write_all(files: Mapping[Path, str], output: Path, *, force: bool) -> None:
    """All of them, or none where one is there already; those beside `output` are secrets."""
    there = [str(path) for path in files if path.exists()]
    if there and not force:
        raise refused(f"{', '.join(there)}: there already; --force writes over it", code="file_exists")
    for path, text in files.items():
        _write(path, text, is_secret=path != output)


def _write(path: Path, text: str, *, is_secret: bool) -> None:
    """A file that is whole or not there; of a secret only its owner reads."""
    part = path.with_name(f"{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _PRIVATE if is_secret else 0o644)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        part.replace(path)
    except OSError as error:
        with suppress(OSError):
            part.unlink()
        raise refused(f"{path} cannot be written: {error.strerror}", 1, code="file_unusable") from None
