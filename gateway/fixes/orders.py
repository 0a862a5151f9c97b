"""In which order a set of tools first came, on any replica.

    names, sorted --digest--> order      in this process, bounded; and in Redis, where there is one, for all replicas

A set is known by the names of its tools: what else a tool says may change without another order. Only a set that this
process has not seen yet asks Redis, where the first to come is the one that stays. Where Redis does not answer in time,
nothing is known, and the tools stay as they are: replicas that disagree would cost more than one that waits.
"""

import asyncio
from collections.abc import Awaitable
from hashlib import blake2b
from typing import Final

import msgspec
from redis import exceptions as redis_errors

from prefix_index import RedisClient, pool_tag

MOST_KEPT: Final = 4096
KEPT_S: Final = 30 * 24 * 3600
DEADLINE_S: Final = 0.1
_written = msgspec.json.Encoder().encode
_read = msgspec.json.Decoder(tuple[str, ...]).decode


class ToolOrders:
    """Orders of sets of tools, each tenant's own. `redis` shares them; None keeps them here."""

    def __init__(self, redis: RedisClient | None = None, pool: str = "default", most: int = MOST_KEPT) -> None:
        self._redis = redis
        self._prefix = f"{pool_tag(pool)}:tools:".encode()
        self._most = most
        self._orders: dict[bytes, tuple[str, ...]] = {}

    async def order_of(self, owner: str, names: tuple[str, ...]) -> tuple[str, ...] | None:
        """The order of a set that came as `names`; None where it cannot be told in time. O(names · log names)."""
        key = _digest(owner, names)
        order = self._orders.get(key)
        if order is None:
            order = names if self._redis is None else await _in_time(_shared(self._redis, self._prefix + key, names))
            if order is not None and sorted(order) == sorted(names):
                self._keep(key, order)
        return order

    def _keep(self, key: bytes, order: tuple[str, ...]) -> None:
        self._orders[key] = order
        if len(self._orders) > self._most:
            del self._orders[next(iter(self._orders))]


async def _shared(redis: RedisClient, key: bytes, names: tuple[str, ...]) -> tuple[str, ...] | None:
    """What Redis knows of the set, which is this order where it knew nothing."""
    if await redis.set(key, _written(names), nx=True, ex=KEPT_S):
        return names
    known = await redis.get(key)
    try:
        return _read(known) if isinstance(known, bytes) else None
    except msgspec.MsgspecError:
        return None


async def _in_time(question: Awaitable[tuple[str, ...] | None]) -> tuple[str, ...] | None:
    try:
        async with asyncio.timeout(DEADLINE_S):
            return await question
    except (redis_errors.RedisError, OSError, TimeoutError):
        return None


def _digest(owner: str, names: tuple[str, ...]) -> bytes:
    said = "\0".join((owner, *sorted(names)))
    return blake2b(said.encode("utf-8", "surrogatepass"), digest_size=16).digest()
