"""Who is calling: an API key becomes a tenant.

    keys.yaml            tenants:
                           - id: acme
                             share_group: group-1        # default: alone, a group named after the tenant
                             keys: [{id: acme-1, sha256: 9f86d0...}]

Keys are 256 random bits, shown once when made and kept as SHA-256 only; a fast hash is right for a secret that cannot
be guessed. A key is only ever compared through its digest, which a caller cannot steer: the time a look-up takes says
nothing about any key. Without a keys file the gateway is open: everyone is the tenant `default`.
"""

import hashlib
import hmac
import secrets
from pathlib import Path
from typing import Annotated

import yaml
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from gateway.errors import Unauthorized
from gateway.strict_yaml import load_yaml
from gateway.types import Headers, KeyId, Tenant, TenantId

KEY_PREFIX = "pg-"
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]


class KeysFileInvalid(Exception):
    """The keys file cannot be used; the text names the entry and what is wrong, never a key."""


class _Key(BaseModel):
    model_config = ConfigDict(extra="forbid")
    id: Name
    sha256: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class _Tenant(BaseModel):
    model_config = ConfigDict(extra="forbid")
    id: Name
    share_group: Name | None = None
    keys: list[_Key] = Field(min_length=1)


class _KeysFile(BaseModel):
    model_config = ConfigDict(extra="forbid")
    tenants: list[_Tenant] = Field(min_length=1)


class Authenticator:
    """API keys to tenants. Immutable after construction; `share_groups` are all groups there are, `salts` theirs."""

    def __init__(self, tenants_by_digest: dict[str, Tenant] | None, open_tenant: Tenant | None) -> None:
        self._by_digest = tenants_by_digest or {}
        self._open_tenant = open_tenant
        everyone = [*self._by_digest.values(), *([open_tenant] if open_tenant else [])]
        self.share_groups = frozenset(tenant.share_group for tenant in everyone)
        self.salts = sorted({tenant.salt for tenant in everyone})

    def tenant_of(self, headers: Headers) -> Tenant:
        """The tenant whose key the request carries, as `Authorization: Bearer` or `x-api-key`. O(1).

        Raises `Unauthorized`; the text never repeats the key.
        """
        if self._open_tenant is not None:
            return self._open_tenant
        key = _presented_key(headers)
        if key is None:
            raise Unauthorized("no API key: send it as 'Authorization: Bearer ...' or 'x-api-key: ...'")
        digest = hashlib.sha256(key).hexdigest()
        tenant = self._by_digest.get(digest)
        if tenant is None:
            raise Unauthorized("unknown API key")
        return tenant


def open_to_all(salt_secret: bytes) -> Authenticator:
    """No keys: every caller is the tenant `default`."""
    tenant = Tenant(TenantId("default"), KeyId("none"), "default", group_salt("default", salt_secret))
    return Authenticator(None, tenant)


def load_keys(path: Path, salt_secret: bytes) -> Authenticator:
    """Read a keys file. Raises `KeysFileInvalid` for unknown fields, doubled ids or keys, and unreadable files."""
    try:
        parsed = _KeysFile.model_validate(load_yaml(path.read_text()))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise KeysFileInvalid(f"{path}: {error}") from error
    except ValidationError as error:
        places = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors(include_input=False))
        raise KeysFileInvalid(f"{path}: {places}") from None
    by_digest: dict[str, Tenant] = {}
    _refuse_doubles(path, "tenant", [tenant.id for tenant in parsed.tenants])
    _refuse_doubles(path, "key", [key.id for tenant in parsed.tenants for key in tenant.keys])
    for tenant in parsed.tenants:
        group = tenant.share_group or tenant.id
        for key in tenant.keys:
            if key.sha256 in by_digest:
                raise KeysFileInvalid(f"{path}: the key {key.id!r} is also another key's")
            salt = group_salt(group, salt_secret)
            by_digest[key.sha256] = Tenant(TenantId(tenant.id), KeyId(key.id), group, salt)
    return Authenticator(by_digest, None)


def new_key() -> tuple[str, str]:
    """A fresh API key and the SHA-256 to keep of it."""
    key = KEY_PREFIX + secrets.token_urlsafe(32)
    return key, hashlib.sha256(key.encode()).hexdigest()


def group_salt(share_group: str, secret: bytes) -> str:
    """The cache salt of a share group: 32 hex digits, the same on every replica that has the same secret.

    Hex, since some engines refuse `/`, `@` and long values in a salt.
    """
    return hmac.new(b"prefixgate salt 1" + secret, share_group.encode(), hashlib.sha256).hexdigest()[:32]


def _refuse_doubles(path: Path, what: str, names: list[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise KeysFileInvalid(f"{path}: there are two of the {what} id {name!r}")


def _presented_key(headers: Headers) -> bytes | None:
    for name, value in headers:
        if name == b"authorization" and value[:7].lower() == b"bearer ":
            return value[7:].strip()
        if name == b"x-api-key":
            return value.strip()
    return None
