"""Who may see a response that an engine keeps, and where it is.

    response id --> (tenant, endpoint)      in this process, bounded; and in Redis, where there is one, for all replicas

A response id belongs to an endpoint and a tenant: a request that continues it, reads it or cancels it goes there, and
to anyone else it does not exist. Engines know nothing of tenants, so without this one tenant could read another's
conversation by its id. The first owner of an id stays its owner.

What cannot be found in time is unknown, and unknown means 404, never somebody else's response. Redis holds digests of
the ids, for `KEPT_S`.
"""

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from redis import exceptions as redis_errors

from gateway.types import TenantId
from prefix_index import RedisClient, pool_tag

MOST_KEPT: Final = 65_536
"""About 20 MB in this process."""
KEPT_S: Final = 7 * 24 * 3600
LONGEST_ID_CHARS: Final = 256
DEADLINE_S: Final = 0.1
"""Patience with Redis: an answer that names a response waits for it, and so does one who asks for it."""


@dataclass(frozen=True, slots=True)
class _Owner:
    tenant_id: TenantId
    endpoint_id: str


class ResponseOwners:
    """Ids of responses to who owns them. `redis` shares them among the replicas of a pool; None keeps them here."""

    def __init__(self, redis: RedisClient | None = None, pool: str = "default", most: int = MOST_KEPT) -> None:
        self._redis = redis
        self._prefix = f"{pool_tag(pool)}:response:".encode()
        self._most = most
        self._owners: dict[str, _Owner] = {}

    async def remember(self, response_id: str, tenant_id: TenantId, endpoint_id: str) -> None:
        """An endpoint made this response for this tenant. Never raises, returns within `DEADLINE_S`."""
        if len(response_id) > LONGEST_ID_CHARS or response_id in self._owners:
            return
        self._owners[response_id] = _Owner(tenant_id, endpoint_id)
        if len(self._owners) > self._most:
            del self._owners[next(iter(self._owners))]
        if self._redis is not None:
            value = f"{tenant_id}\n{endpoint_id}".encode()
            await _in_time(self._redis.set(self._key(response_id), value, nx=True, ex=KEPT_S))

    async def endpoint_of(self, response_id: str, tenant_id: TenantId) -> str | None:
        """Where the response is; None where it is not known, or not this tenant's. As patient as `remember`."""
        owner = self._owners.get(response_id)
        if owner is None and self._redis is not None and len(response_id) <= LONGEST_ID_CHARS:
            owner = _read(await _in_time(self._redis.get(self._key(response_id))))
        return owner.endpoint_id if owner is not None and owner.tenant_id == tenant_id else None

    def _key(self, response_id: str) -> bytes:
        return self._prefix + blake2b(response_id.encode("utf-8", "replace"), digest_size=16).digest()


async def _in_time(question: Awaitable[object]) -> object:
    """The answer of Redis, None where it does not come in time."""
    try:
        async with asyncio.timeout(DEADLINE_S):
            return await question
    except (redis_errors.RedisError, OSError, TimeoutError):
        return None


def _read(value: object) -> _Owner | None:
    if not isinstance(value, bytes):
        return None
    tenant, _, endpoint = value.decode(errors="replace").partition("\n")
    return _Owner(TenantId(tenant), endpoint)
