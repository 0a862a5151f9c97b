"""Who is calling: an API key becomes a tenant.

    key --SHA-256--> known?  --no---------------------> 401
                      `- disabled, or past its end? ---> 401, saying so
                      `- tenant, with scopes, tags and limits

Keys are 256 random bits, shown once when made and kept as SHA-256 only; a fast hash is right for a secret that cannot
be guessed. A key is only ever compared through its digest, which a caller cannot steer: the time a look-up takes says
nothing about any key. Without a keys file the gateway is open: everyone is the tenant `default`.
"""

import hashlib
import hmac
import math
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gateway.errors import Unauthorized
from gateway.keys_file import KeyEntry, KeysFile, KeysFileInvalid, TenantEntry, read_keys_file, tags_of
from gateway.types import Headers, KeyId, Tenant, TenantId

__all__ = [
    "Authenticator",
    "KeysFileInvalid",
    "authenticator_from",
    "display_prefix",
    "group_salt",
    "load_keys",
    "new_key",
    "open_to_all",
]

KEY_PREFIX: Final = "pg-"
_SHOWN_CHARS: Final = len(KEY_PREFIX) + 5
"""Of a key, in lists: 30 of its 256 bits."""


@dataclass(frozen=True, slots=True)
class KnownKey:
    """What a digest stands for. `until_s` is wall time."""

    tenant: Tenant
    until_s: float = math.inf
    disabled: bool = False


class Authenticator:
    """API keys to tenants. `share_groups` are all groups there are, `salts` theirs; `take_over` changes all at once."""

    def __init__(
        self,
        known: Mapping[str, KnownKey] | None,
        open_tenant: Tenant | None,
        clock_s: Callable[[], float] = time.time,
    ) -> None:
        self._clock_s = clock_s
        self._known = known or {}
        self._open_tenant = open_tenant
        everyone = [*(one.tenant for one in self._known.values()), *([open_tenant] if open_tenant else [])]
        self.share_groups = frozenset(tenant.share_group for tenant in everyone)
        self.salts = sorted({tenant.salt for tenant in everyone})

    def take_over(self, newer: "Authenticator") -> None:
        """Know from now on what `newer` knows."""
        self._known, self._open_tenant = newer._known, newer._open_tenant
        self.share_groups, self.salts = newer.share_groups, newer.salts

    def tenant_of(self, headers: Headers) -> Tenant:
        """The tenant whose key the request carries, as `Authorization: Bearer` or `x-api-key`. O(1).

        Raises `Unauthorized`; the text never repeats the key.
        """
        if self._open_tenant is not None:
            return self._open_tenant
        key = _presented_key(headers)
        if key is None:
            raise Unauthorized("no API key: send it as 'Authorization: Bearer ...' or 'x-api-key: ...'")
        found = self._known.get(hashlib.sha256(key).hexdigest())
        if found is None:
            raise Unauthorized("unknown API key")
        if found.disabled:
            raise Unauthorized("this API key was revoked")
        if self._clock_s() >= found.until_s:
            raise Unauthorized("this API key has expired")
        return found.tenant


def open_to_all(salt_secret: bytes) -> Authenticator:
    """No keys: every caller is the tenant `default`."""
    tenant = Tenant(TenantId("default"), KeyId("none"), "default", group_salt("default", salt_secret))
    return Authenticator(None, tenant)


def load_keys(path: Path, salt_secret: bytes, cached_token_weight: float = 0.0) -> Authenticator:
    """Read a keys file. Raises `KeysFileInvalid`. `cached_token_weight` is that of limits which say none."""
    return authenticator_from(read_keys_file(path), salt_secret, cached_token_weight)


def authenticator_from(file: KeysFile, salt_secret: bytes, cached_token_weight: float = 0.0) -> Authenticator:
    """What a keys file says, ready for look-ups."""
    known: dict[str, KnownKey] = {}
    for entry in file.tenants:
        group = entry.share_group or entry.id
        salt = group_salt(group, salt_secret)
        for key in entry.keys:
            tenant = Tenant(
                TenantId(entry.id),
                KeyId(key.id),
                group,
                salt,
                tags=tags_of(entry, key),
                scopes=key.scopes.scopes(),
                quota=file.quota(entry, key, cached_token_weight),
            )
            for digest, until_s in _digests(key):
                known[digest] = KnownKey(tenant, until_s, _is_disabled(entry, key))
    return Authenticator(known, None)


def new_key() -> tuple[str, str]:
    """A fresh API key and the SHA-256 to keep of it."""
    key = KEY_PREFIX + secrets.token_urlsafe(32)
    return key, hashlib.sha256(key.encode()).hexdigest()


def display_prefix(key: str) -> str:
    """The beginning of a key, by which its owner recognises it."""
    return key[:_SHOWN_CHARS]


def group_salt(share_group: str, secret: bytes) -> str:
    """The cache salt of a share group: 32 hex digits, the same on every replica that has the same secret.

    Hex, since some engines refuse `/`, `@` and long values in a salt.
    """
    return hmac.new(b"prefixgate salt 1" + secret, share_group.encode(), hashlib.sha256).hexdigest()[:32]


def _digests(key: KeyEntry) -> Iterator[tuple[str, float]]:
    """The key and those it replaced, each with its end; none outlives the end of the key itself."""
    end_s = math.inf if key.expires_at is None else key.expires_at.timestamp()
    yield key.sha256, end_s
    for old in key.retiring:
        yield old.sha256, min(end_s, old.expires_at.timestamp())


def _is_disabled(tenant: TenantEntry, key: KeyEntry) -> bool:
    return tenant.disabled or key.disabled


def _presented_key(headers: Headers) -> bytes | None:
    for name, value in headers:
        if name == b"authorization" and value[:7].lower() == b"bearer ":
            return value[7:].strip()
        if name == b"x-api-key":
            return value.strip()
    return None
