"""Tenants, keys, models and endpoints for a press of Tab, out of the files that the configuration names.

Read without checking anything: what is not there or cannot be read completes to nothing, and says nothing.
"""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import typer

_MOST_BYTES: Final = 4 * 1024 * 1024
"""A larger file is not read while somebody waits for a key."""


def tenants(ctx: typer.Context) -> list[str]:
    """Tenants of the keys file."""
    return _sorted(one.get("id") for one in _rows(_keys_file(ctx), "tenants"))


def key_ids(ctx: typer.Context) -> list[str]:
    """Names of keys."""
    return _sorted(key.get("id") for one in _rows(_keys_file(ctx), "tenants") for key in _rows(one, "keys"))


def models(ctx: typer.Context) -> list[str]:
    """Models that the configuration or the price book names."""
    config = _config(ctx)
    configured = config.get("models")
    priced = (one.get("model") for one in _rows(_file_of(ctx, config, "prices", "prices_file"), "prices"))
    return _sorted([*(configured if isinstance(configured, dict) else ()), *priced])


def endpoints(ctx: typer.Context) -> list[str]:
    """Ids of backends, made from their addresses where they have none."""
    return _sorted(one.get("id") or _id_of(one.get("url")) for one in _rows(_config(ctx), "backends"))


def _sorted(names: Any) -> list[str]:
    return sorted({name for name in names if isinstance(name, str)})


def _id_of(url: object) -> str | None:
    return re.sub(r"[^\w.-]+", "-", url.partition("://")[2]).strip("-") if isinstance(url, str) else None


def _keys_file(ctx: typer.Context) -> Mapping[str, Any]:
    return _file_of(ctx, _config(ctx), "file", "keys_file")


def _config(ctx: typer.Context) -> Mapping[str, Any]:
    return _read(ctx.params.get("config") or os.environ.get("PREFIXGATE_CONFIG"))


def _file_of(ctx: typer.Context, config: Mapping[str, Any], option: str, key: str) -> Mapping[str, Any]:
    """The file that an option of the command names, else the configuration."""
    return _read(ctx.params.get(option) or os.environ.get(f"PREFIXGATE_{key.upper()}") or config.get(key))


def _read(path: object) -> Mapping[str, Any]:
    if not isinstance(path, (str, Path)):
        return {}
    import yaml  # noqa: PLC0415 - only what is completed is loaded

    try:
        with Path(path).open("rb") as file:
            found = yaml.safe_load(file.read(_MOST_BYTES))
    except (OSError, ValueError, yaml.YAMLError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _rows(found: Mapping[str, Any], key: str) -> Iterator[Mapping[str, Any]]:
    rows = found.get(key)
    return (one for one in rows if isinstance(one, dict)) if isinstance(rows, list) else iter(())
