"""Looking inside the shared index, for people: all shards in Redis, or the twins where there is no Redis.

Never on the request path. Raises IndexUnavailable where Redis takes longer than `within_s` for a shard, or stores
another layout.
"""

import asyncio
import heapq
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from redis import exceptions as redis_errors

from prefix_index.errors import IndexUnavailable
from prefix_index.radix import RadixIndex
from prefix_index.redis_census import Census, HotPrefix, Hottest, SeatCensus
from prefix_index.redis_census import census as census_of
from prefix_index.redis_census import hottest as hottest_of
from prefix_index.redis_check import check_pool
from prefix_index.redis_clients import RedisClient, primary_of
from prefix_index.redis_link import unavailable
from prefix_index.redis_wire import NONSENSE, pool_keys
from prefix_index.types import Claim, DegradedReason

ANSWER_S: Final = 30.0
"""Patience with Redis: reading a large pool takes a while, a silent server takes forever."""
DEGRADED_ANSWER_S: Final = 2.0
"""The same where matches go without Redis already: it may only be slow, and who asks then is in a hurry."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Extent:
    """What `check` reads: nodes in Redis, and holds of the copy in this process."""

    nodes: int
    own_nodes: int


def patience_s(degraded: DegradedReason | None) -> float:
    """How long to wait for each shard."""
    return ANSWER_S if degraded is None else DEGRADED_ANSWER_S


async def census(
    redis: RedisClient | None, shards: Sequence[str], twins: Sequence[RadixIndex[str]], within_s: float
) -> list[Census]:
    """What each shard holds, in Redis or, where there is none, in this process, see `Census`."""
    if redis is None:
        return [_twin_census(twin) for twin in twins]
    return [await _in_time(census_of(redis, shard), within_s) for shard in shards]


async def hottest(
    redis: RedisClient | None,
    shards: Sequence[str],
    *,
    top: int,
    max_nodes: int,
    block_tokens: Callable[[str], int] | None = None,
    within_s: float,
) -> Hottest:
    """The `top` heaviest prefixes of all shards, of `max_nodes` that are read in each; none without Redis."""
    found: list[Hottest] = []
    for shard in shards if redis is not None else ():
        assert redis is not None
        reading = hottest_of(redis, shard, top=top, max_nodes=max_nodes, block_tokens=block_tokens)
        found.append(await _in_time(reading, within_s))
    every = [prefix for one in found for prefix in one.prefixes]
    prefixes = with_parents_among(heapq.nlargest(top, every, key=lambda p: p.weight_tokens), every)
    return Hottest(tuple(prefixes), sum(one.nodes_read for one in found), any(one.cut for one in found))


def with_parents_among(told: Sequence[HotPrefix], every: Sequence[HotPrefix]) -> list[HotPrefix]:
    """The prefixes told, where others found are not: each goes on from the closest of those that are."""
    names, parents = {one.hash for one in told}, {one.hash: one.parent for one in every}

    def closest(one: HotPrefix) -> str | None:
        parent = one.parent
        while parent is not None and parent not in names:
            parent = parents[parent]
        return parent

    return [replace(one, parent=closest(one)) for one in told]


async def extent(
    redis: RedisClient | None, shards: Sequence[str], twins: Sequence[RadixIndex[str]], within_s: float
) -> Extent:
    """See `Extent`."""
    stored = await census(redis, shards, [], within_s)
    return Extent(sum(one.nodes for one in stored), sum(twin.holds for twin in twins))


async def check(
    redis: RedisClient | None, shards: Sequence[str], twins: Sequence[RadixIndex[str]], within_s: float
) -> list[str]:
    """Every broken invariant of each shard, in words. O(everything stored), and blocks the server meanwhile."""
    broken = [word for twin in twins for word in twin.check()]
    for shard in shards if redis is not None else ():
        assert redis is not None
        broken += await _in_time(_checked(redis, shard), within_s)
    return broken


async def _checked(redis: RedisClient, shard: str) -> list[str]:
    try:
        return await check_pool(await primary_of(redis, pool_keys(shard)[0]), shard)
    except (redis_errors.RedisError, OSError) as failure:
        raise unavailable(failure) from failure


async def _in_time(question: Awaitable[T], within_s: float) -> T:
    try:
        async with asyncio.timeout(within_s):
            return await question
    except NONSENSE as nonsense:
        why = f"what is stored is not of this layout: {type(nonsense).__name__}: {nonsense}"
        raise IndexUnavailable(why, DegradedReason.BAD_ANSWER) from nonsense
    except TimeoutError:
        raise IndexUnavailable(f"no answer within {within_s:g} s", DegradedReason.TIMEOUT) from None


def _twin_census(twin: RadixIndex[str]) -> Census:
    """Holders and blocks; the rest is of Redis, and 0 here. A block counts once for each claim on it."""
    seats = [
        SeatCensus(holder, claim, 0, blocks, 0, None, None)
        for holder in twin.holders()
        for claim in Claim
        if (blocks := twin.blocks_of(holder, claim))
    ]
    return Census(
        seats=tuple(seats),
        nodes=0,
        blocks=sum(seat.blocks for seat in seats),
        estimated_bytes=0,
        seats_used=len(seats),
        seats_free=0,
        seats_ending=0,
    )
