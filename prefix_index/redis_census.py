"""What the index in Redis holds, for people: who has how much, how old it is, and which prefixes weigh most.

    census    counters and the ends of each seat's order of use: exact, a few reads a seat
    hottest   reads the nodes in pages, up to a limit, and says when it stopped there

Read-only, never on the request path. Prefixes are named by their hash; the index knows no text. What is written
meanwhile may be seen or not.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, cast

from redis import exceptions as redis_errors
from redis.asyncio import Redis

from prefix_index.prefix_weights import PrefixWeights, Weighed
from prefix_index.redis_carrier import Carrier
from prefix_index.redis_clients import RedisClient, primary_of
from prefix_index.redis_link import RedisLink, unavailable
from prefix_index.redis_wire import (
    LRU_SPAN,
    SLOTS,
    TICK_EPOCH_S,
    TICKS_PER_S,
    call_of,
    pool_keys,
    read_node,
    read_seat,
)
from prefix_index.turns import in_turns
from prefix_index.types import Claim

_SEATS_A_PAGE: Final = 16
"""64 commands: redis-py takes a millisecond to write and read them."""

_NODES_A_PAGE: Final = 64

_Seats = Mapping[int, tuple[int, Claim, str]]


@dataclass(frozen=True, slots=True)
class SeatCensus:
    """One claim of one holder; ages in seconds, None where it holds nothing."""

    holder: str
    claim: Claim
    generation: int
    blocks: int
    nodes: int
    oldest_use_s: float | None
    newest_use_s: float | None


@dataclass(frozen=True, slots=True)
class Census:
    """A pool in numbers. In Redis `blocks` counts each stored block once, however many hold it;
    in process it counts a block once for each claim on it; `nodes`, `estimated_bytes` and `seats_free` are 0 there.

    `seats_ending` have lost their holders, and are free once later writes have given back what is left of them.
    """

    seats: tuple[SeatCensus, ...]
    nodes: int
    blocks: int
    estimated_bytes: int
    seats_used: int
    seats_free: int
    seats_ending: int


@dataclass(frozen=True, slots=True)
class HotPrefix:
    """One node. `weight_blocks` is its blocks × the stored prompts that run through it.

    `depth_blocks` is where it ends in these prompts, None where what is before it was not read. `block_tokens` is what
    the caller says of its holders, 1 where nothing. `parent` is the hash of the closest of the prefixes told together
    that it goes on from, None where it goes on from none of them.
    """

    hash: str
    blocks: int
    depth_blocks: int | None
    prompts: int
    children: int
    weight_blocks: int
    holders: tuple[str, ...]
    last_use_s: float
    block_tokens: int = 1
    parent: str | None = None

    @property
    def weight_tokens(self) -> int:
        """What prefixes are compared by."""
        return self.weight_blocks * self.block_tokens


@dataclass(frozen=True, slots=True)
class Hottest:
    """The heaviest prefixes first. Where the reading was `cut`, prompts and children are at least what is said."""

    prefixes: tuple[HotPrefix, ...]
    nodes_read: int
    cut: bool


async def census(client: RedisClient, pool: str) -> Census:
    """Count what a pool holds. O(seats × log nodes). Raises IndexUnavailable."""
    keys = pool_keys(pool)
    try:
        redis = await primary_of(client, keys[0])
        now_s = await _now_s(redis)
        seats = await _read_seats(redis, keys)
        counted = tuple([seat for page in _pages(seats) for seat in await _count(redis, keys, page, now_s)])
        blocks, dead = await redis.hmget(keys[3].decode(), ["blocks", "dead"])
        nodes = await redis.hlen(keys[0].decode())
    except (redis_errors.RedisError, OSError) as failure:
        raise unavailable(failure) from failure
    async with Carrier(client) as carrier:
        estimated_bytes = await RedisLink(carrier, keys).call(call_of("stored", read_only=True))
    seats_ending = len(dead or b"") // 2
    return Census(
        seats=counted,
        nodes=nodes,
        blocks=int(blocks or 0),
        estimated_bytes=cast(int, estimated_bytes),
        seats_used=len(seats),
        seats_free=SLOTS - len(seats) - seats_ending,
        seats_ending=seats_ending,
    )


async def hottest(
    client: RedisClient, pool: str, *, top: int, max_nodes: int, block_tokens: Callable[[str], int] | None = None
) -> Hottest:
    """The `top` heaviest prefixes among the first `max_nodes` read, give or take a page.

    `block_tokens` says how many tokens a block of a holder has; without it prefixes are compared by blocks. O(nodes
    read) in time and memory here, in turns of a millisecond; the server is held up for one page at a time. Raises
    IndexUnavailable.
    """
    keys = pool_keys(pool)
    nodes = PrefixWeights()
    cursor = 0
    try:
        redis = await primary_of(client, keys[0])
        now_s = await _now_s(redis)
        seats = await _read_seats(redis, keys)
        while True:
            cursor, page = await redis.hscan(keys[0].decode(), cursor, count=_NODES_A_PAGE)
            for name, value in cast(Mapping[bytes, bytes], page).items():
                nodes.add(read_node(name, value))
            if cursor == 0 or len(nodes) >= max_nodes:
                break
    except (redis_errors.RedisError, OSError) as failure:
        raise unavailable(failure) from failure

    def weight_of(slots: frozenset[int]) -> int:
        """Of a block; all who hold one node have blocks of one size."""
        holder = next((seats[slot][2] for slot in slots if slot in seats), None)
        return 0 if holder is None else 1 if block_tokens is None else block_tokens(holder)

    nodes_read = len(nodes)
    found = await nodes.heaviest(top, weight_of)
    prefixes = [_hot(one, seats, now_s, weight_of(one.slots)) async for one in in_turns(found)]
    return Hottest(tuple(prefixes), nodes_read, cursor != 0)


async def _now_s(redis: Redis) -> float:
    seconds, microseconds = await redis.time()
    return float(seconds) + float(microseconds) / 1e6


async def _read_seats(redis: Redis, keys: Sequence[bytes]) -> _Seats:
    who = cast(Mapping[bytes, bytes], await redis.hgetall(keys[4].decode()))
    return {int(slot): read_seat(entry) async for slot, entry in in_turns(who.items())}


def _pages(seats: _Seats) -> list[_Seats]:
    slots = sorted(seats)
    return [
        {slot: seats[slot] for slot in slots[at : at + _SEATS_A_PAGE]} for at in range(0, len(slots), _SEATS_A_PAGE)
    ]


async def _count(redis: Redis, keys: Sequence[bytes], seats: _Seats, now_s: float) -> list[SeatCensus]:
    lru, registry = keys[1], keys[3]
    pipeline = redis.pipeline(transaction=False)
    for slot in seats:
        low, high = slot * LRU_SPAN, (slot + 1) * LRU_SPAN - 1
        pipeline.hget(registry, f"n:{slot}")
        pipeline.zcount(lru, low, high)
        pipeline.zrangebyscore(lru, low, high, start=0, num=1, withscores=True)
        pipeline.zrevrangebyscore(lru, high, low, start=0, num=1, withscores=True)
    replies = await pipeline.execute()
    found = []
    for at, (slot, (generation, claim, holder)) in enumerate(seats.items()):
        blocks, holds, oldest, newest = replies[at * 4 : at * 4 + 4]
        ages = [_age_s(slot, end[0][1], now_s) if end else None for end in (oldest, newest)]
        found.append(SeatCensus(holder, claim, generation, int(blocks or 0), holds, *ages))
    return found


def _age_s(slot: int, score: float, now_s: float) -> float:
    return max(0.0, now_s - TICK_EPOCH_S - (score - slot * LRU_SPAN) / TICKS_PER_S)


def _hot(one: Weighed, seats: _Seats, now_s: float, block_tokens: int) -> HotPrefix:
    return HotPrefix(
        hash=one.end.hex(),
        blocks=one.blocks,
        depth_blocks=one.depth_blocks,
        prompts=one.prompts,
        children=one.children,
        weight_blocks=one.blocks * one.prompts,
        holders=tuple(sorted({seats[slot][2] for slot in one.slots if slot in seats})),
        last_use_s=max(0.0, now_s - one.used_s),
        block_tokens=block_tokens,
        parent=None if one.goes_on_from is None else one.goes_on_from.hex(),
    )
