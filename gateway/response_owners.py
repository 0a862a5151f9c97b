"""Who may see a response that an engine keeps, and where it is.

    response id --> (tenant, holder)      in this process, bounded; and in Redis, where there is one, for all replicas

A response id belongs to a tenant and to an endpoint in one generation: a request that continues it, reads it or cancels
it goes there, and to anyone else it does not exist. Engines know nothing of tenants, so without this one tenant could
read another's conversation by its id. Engines that count their ids give the same ones again after a restart, to
whomever: so an id is worth nothing in another generation, and one given to two tenants in one generation is nobody's.

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
    """`tenant_id` is empty for what is nobody's."""

    tenant_id: TenantId
    holder: str


class ResponseOwners:
    """Ids of responses to who owns them. `redis` shares them among the replicas of a pool; None keeps them here."""

    def __init__(self, redis: RedisClient | None = None, pool: str = "default", most: int = MOST_KEPT) -> None:
        self._redis = redis
        self._prefix = f"{pool_tag(pool)}:response:".encode()
        self._most = most
        self._owners: dict[str, _Owner] = {}

    async def remember(self, response_id: str, tenant_id: TenantId, holder: str) -> None:
        """A holder made this response for this tenant. Never raises, returns within `DEADLINE_S`."""
        given = _Owner(tenant_id, holder)
        known = self._owners.get(response_id)
        if len(response_id) > LONGEST_ID_CHARS or known == given:
            return
        self._keep(response_id, _of_both(known, given))
        if self._redis is not None:
            await _in_time(self._share(self._redis, response_id, given))

    async def holder_of(self, response_id: str, tenant_id: TenantId) -> str | None:
        """Who holds the response; None where it is not known, or not this tenant's. As patient as `remember`.

        What Redis says counts: another replica may have seen the id given to somebody else since.
        """
        owner = self._owners.get(response_id)
        if self._redis is not None and len(response_id) <= LONGEST_ID_CHARS:
            owner = _read(await _in_time(self._redis.get(self._key(response_id)))) or owner
        return owner.holder if owner is not None and owner.tenant_id == tenant_id else None

    def _keep(self, response_id: str, owner: _Owner) -> None:
        self._owners[response_id] = owner
        if len(self._owners) > self._most:
            del self._owners[next(iter(self._owners))]

    async def _share(self, redis: RedisClient, response_id: str, given: _Owner) -> None:
        """Tell Redis of an owner, and learn of one it knows already."""
        key = self._key(response_id)
        if await redis.set(key, _written(given), nx=True, ex=KEPT_S):
            return
        owner = _of_both(_read(await redis.get(key)), given)
        self._keep(response_id, owner)
        await redis.set(key, _written(owner), ex=KEPT_S)

    def _key(self, response_id: str) -> bytes:
        return self._prefix + blake2b(response_id.encode("utf-8", "replace"), digest_size=16).digest()


async def _in_time(question: Awaitable[object]) -> object:
    """The answer of Redis, None where it does not come in time."""
    try:
        async with asyncio.timeout(DEADLINE_S):
            return await question
    except (redis_errors.RedisError, OSError, TimeoutError):
        return None


def _of_both(known: _Owner | None, given: _Owner) -> _Owner:
    """Whose an id is that `known` had and that `given` got: the later one's, but nobody's within one generation."""
    if known is None or known == given or known.holder != given.holder:
        return given
    return _Owner(TenantId(""), given.holder)


def _written(owner: _Owner) -> bytes:
    return f"{owner.tenant_id}\n{owner.holder}".encode()


def _read(value: object) -> _Owner | None:
    if not isinstance(value, bytes):
        return None
    tenant, _, holder = value.decode(errors="replace").partition("\n")
    return _Owner(TenantId(tenant), holder)
