"""Changes to the keys file by command: one at a time, whole or not at all, comments kept.

    lock the file --> read --> change --> check, as a gateway will --> write beside it (0600), flush --> rename over it

A gateway that reads meanwhile sees the file before or after. The lock is on the file itself; who waited for one that
was replaced meanwhile locks its successor.
"""

import fcntl
import io
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from gateway.edge.auth import display_prefix, new_key
from gateway.keys_file import KeysFileInvalid, parse_keys_file
from gateway.whole_file import write_whole


@dataclass(frozen=True, slots=True)
class KeyWish:
    """A key to make. `fields` are those of the file: name, tags, expires_at, scopes, limits, budgets."""

    tenant: str
    key_id: str | None = None
    fields: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MadeKey:
    """A new key, to be shown once."""

    tenant: str
    key_id: str
    key: str = field(repr=False)


def create_key(path: Path, wish: KeyWish, now: datetime) -> MadeKey:
    """Add a key, with its tenant and the file itself where they are missing. Raises `KeysFileInvalid`."""
    with _editing(path, create=True) as tree:
        tenants = tree.setdefault("tenants", [])
        entry = next((one for one in tenants if one.get("id") == wish.tenant), None)
        if entry is None:
            entry = {"id": wish.tenant, "keys": []}
            tenants.append(entry)
        key_id = wish.key_id or _free_id(wish.tenant, tenants)
        key, digest = new_key()
        made = {"id": key_id, "sha256": digest, "prefix": display_prefix(key), "created_at": _text(now)}
        entry.setdefault("keys", []).append({**made, **wish.fields})
    return MadeKey(wish.tenant, key_id, key)


def revoke_key(path: Path, key_id: str) -> None:
    """A key, and those it replaced, work no more; the entry stays, as the ledger names it. Raises `KeysFileInvalid`."""
    with _editing(path) as tree:
        _, entry = _found(path, tree, key_id)
        entry["disabled"] = True


def rotate_key(path: Path, key_id: str, grace: timedelta, now: datetime) -> MadeKey:
    """Another key in place of one, under the same id, limits and budgets; the old one works on for `grace`.

    Raises `KeysFileInvalid`, also for a key that is revoked.
    """
    with _editing(path) as tree:
        tenant, entry = _found(path, tree, key_id)
        if entry.get("disabled"):
            raise KeysFileInvalid(f"{path}: the key {key_id!r} is revoked; make another with `keys create`")
        key, digest = new_key()
        old = {"sha256": entry["sha256"], "expires_at": _text(now + grace)}
        if "prefix" in entry:
            old["prefix"] = entry["prefix"]
        still = [one for one in entry.get("retiring", []) if str(one["expires_at"]) > _text(now)]
        entry["retiring"] = [*still, old] if grace > timedelta(0) else still
        entry.update({"sha256": digest, "prefix": display_prefix(key), "created_at": _text(now)})
        if not entry["retiring"]:
            del entry["retiring"]
    return MadeKey(str(tenant["id"]), key_id, key)


@contextmanager
def _editing(path: Path, *, create: bool = False) -> Iterator[Any]:
    """The file's tree; what it is at the end is written, if a gateway could use it."""
    real = path.resolve()
    try:
        with _locked(real, create=create):
            yaml = YAML()
            yaml.preserve_quotes = True
            yaml.width = 120
            yaml.indent(mapping=2, sequence=4, offset=2)
            text = real.read_text()
            if text.strip():
                parse_keys_file(path, text)
            tree = yaml.load(text) if text.strip() else {}
            if not isinstance(tree, dict):
                raise KeysFileInvalid(f"{path} must hold a mapping at its top")
            yield tree
            written = io.StringIO()
            yaml.dump(tree, written)
            parse_keys_file(path, written.getvalue())
            write_whole(real, written.getvalue())
    except OSError as error:
        raise KeysFileInvalid(f"{path}: {error.strerror}") from error
    except (YAMLError, UnicodeDecodeError) as error:
        raise KeysFileInvalid(f"{path} is not valid YAML: {type(error).__name__}") from None


@contextmanager
def _locked(path: Path, *, create: bool) -> Iterator[None]:
    while True:
        lock = os.open(path, os.O_RDWR | (os.O_CREAT if create else 0), 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            held, there = os.fstat(lock), path.stat()
            if (held.st_ino, held.st_dev) == (there.st_ino, there.st_dev):
                yield
                return
        finally:
            os.close(lock)


def _found(path: Path, tree: Any, key_id: str) -> tuple[Any, Any]:
    for tenant in tree.get("tenants", []):
        for key in tenant.get("keys", []):
            if key.get("id") == key_id:
                return tenant, key
    raise KeysFileInvalid(f"{path}: there is no key {key_id!r}; `prefixgate keys list` shows them")


def _free_id(tenant: str, tenants: Any) -> str:
    taken = {key.get("id") for one in tenants for key in one.get("keys", [])}
    number = 1
    while f"{tenant}-{number}" in taken:
        number += 1
    return f"{tenant}-{number}"


def _text(when: datetime) -> str:
    return f"{when:%Y-%m-%dT%H:%M:%SZ}"
