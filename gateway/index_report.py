"""What the admin API says of the prefix index, as data. Never a text of a prompt: the index has hashes alone.

Ages are seconds since the last use; None is unknown.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from gateway.event_feeds import FeedReport
from prefix_index import Census, Claim, HotPrefix, SeatCensus
from prefix_index.turns import in_turns

MOST_HOLDERS_SHOWN: Final = 50
"""Of one prefix: in a large fleet everyone holds the system prompt."""


class Store(StrEnum):
    """Where the index is that a report is of."""

    REDIS = "redis"
    PROCESS = "process"
    """There is no Redis: this replica has an index of its own."""


@dataclass(frozen=True, slots=True)
class CacheName:
    """A holder's name, taken apart: `endpoint@generation`, and `/rank` for further caches behind one address."""

    endpoint: str
    generation: int | None
    rank: int

    @classmethod
    def read(cls, holder: str) -> "CacheName":
        """A name that is none of ours is an endpoint of no generation."""
        endpoint, _, rest = holder.rpartition("@")
        generation, _, rank = rest.partition("/")
        if not endpoint or not generation.isdecimal() or not (rank or "0").isdecimal():
            return cls(holder, None, 0)
        return cls(endpoint, int(generation), int(rank or 0))


@dataclass(frozen=True, slots=True)
class HolderRow:
    """One claim of one holder. `is_present`: the endpoint is this holder now, not one from before a restart.

    `nodes` is how many stretches of the tree it holds, 0 where the index is in process. `capacity_blocks` is that of
    the memory that the engine computes from, None for other claims.
    """

    holder: str
    endpoint: str
    generation: int | None
    rank: int
    claim: Claim
    is_present: bool
    blocks: int
    nodes: int
    oldest_use_s: float | None
    newest_use_s: float | None
    capacity_blocks: int | None


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large the index is, or one shard of it; blocks as in `Census`. Bytes are an estimate, on the high side.

    A seat is a claim of a holder; those that are `seats_ending` are given back with the next writes.
    """

    nodes: int
    blocks: int
    estimated_bytes: int
    seats_used: int
    seats_free: int
    seats_ending: int


@dataclass(frozen=True, slots=True)
class IndexReport:
    """The index as this replica sees it. `degraded` says why Redis is not in use, None while it is.

    Where the index could not be read, `unreadable` says why, `store` and `total` are None and there are no rows of it;
    what this replica knows by itself is shown all the same.

    `reliability` is how far expectations can be relied on: by endpoint and mode, expected and reported cached tokens
    and their shares of the prompt tokens.
    """

    store: Store | None
    unreadable: str | None
    degraded: str | None
    queued_writes: int
    dropped_writes: int
    stand_in_matches: int
    max_bytes: int
    total: Sizes | None
    shards: list[Sizes]
    holders: list[HolderRow]
    feeds: list[FeedReport]
    reliability: dict[str, object]


@dataclass(frozen=True, slots=True)
class HotRow:
    """A stretch of prefixes that no prompt leaves in between. `hash` is that of its last block, in hex.

    `depth_tokens` is where it ends in its prompts, None where what is before it was not read; `tokens` is its own
    length, `prompts` how many stored prompts run through it, `weight_tokens` their product, `fan_out` how many ways
    lead on. Tokens are None where the block size is not known, as with endpoints that are gone. `holders` are the first
    `MOST_HOLDERS_SHOWN` by name of `holder_count`. `parent` is the `hash` of the closest row that it goes on from,
    None where there is none; so the rows are trees.
    """

    hash: str
    tokens: int | None
    depth_tokens: int | None
    weight_tokens: int | None
    blocks: int
    depth_blocks: int | None
    prompts: int
    fan_out: int
    holders: list[str]
    holder_count: int
    last_use_s: float
    parent: str | None = None


@dataclass(frozen=True, slots=True)
class HotReport:
    """The heaviest first. `is_cut`: not all was read, so prompts and ways are at least what is said."""

    prefixes: list[HotRow]
    nodes_read: int
    is_cut: bool


@dataclass(frozen=True, slots=True)
class ClearedRow:
    """What was known of one claim until now."""

    holder: str
    claim: Claim
    blocks: int


@dataclass(frozen=True, slots=True)
class Cleared:
    """The holders whose generation in the index has ended, and what was known of them."""

    holders: list[str]
    cleared: list[ClearedRow]


@dataclass(frozen=True, slots=True)
class CheckReport:
    """Every broken invariant, in words: none in a sound index.

    `nodes` is how many were looked at in Redis, `own_nodes` how many of this replica's own copy, each as often as it is
    held.
    """

    broken: list[str]
    nodes: int
    own_nodes: int


async def merged(shards: list[Census]) -> list[SeatCensus]:
    """The claims of all shards together, by name: sums, and the oldest and newest use anywhere."""
    seats: dict[tuple[str, Claim], SeatCensus] = {}
    async for seat in in_turns(seat for shard in shards for seat in shard.seats):
        other = seats.get((seat.holder, seat.claim))
        seats[seat.holder, seat.claim] = seat if other is None else _together(seat, other)
    await asyncio.sleep(0)
    names = sorted(seats)
    await asyncio.sleep(0)
    return [seats[name] for name in names]


def _together(one: SeatCensus, other: SeatCensus) -> SeatCensus:
    return SeatCensus(
        holder=one.holder,
        claim=one.claim,
        generation=min(one.generation, other.generation),
        blocks=one.blocks + other.blocks,
        nodes=one.nodes + other.nodes,
        oldest_use_s=_furthest(max, one.oldest_use_s, other.oldest_use_s),
        newest_use_s=_furthest(min, one.newest_use_s, other.newest_use_s),
    )


def _furthest(which: Callable[[list[float]], float], *ages_s: float | None) -> float | None:
    known = [age_s for age_s in ages_s if age_s is not None]
    return which(known) if known else None


def sizes_of(shard: Census) -> Sizes:
    """A shard in numbers."""
    return Sizes(
        shard.nodes, shard.blocks, shard.estimated_bytes, shard.seats_used, shard.seats_free, shard.seats_ending
    )


def sum_of(sizes: Iterable[Sizes]) -> Sizes:
    """All shards together."""
    all_of = list(sizes)
    return Sizes(
        nodes=sum(one.nodes for one in all_of),
        blocks=sum(one.blocks for one in all_of),
        estimated_bytes=sum(one.estimated_bytes for one in all_of),
        seats_used=sum(one.seats_used for one in all_of),
        seats_free=sum(one.seats_free for one in all_of),
        seats_ending=sum(one.seats_ending for one in all_of),
    )


def hot_row(prefix: HotPrefix, sizes: Mapping[str, int]) -> HotRow:
    """A prefix in tokens, given how many a block has at each endpoint."""
    block_tokens = next((sizes[e] for h in prefix.holders if (e := CacheName.read(h).endpoint) in sizes), None)

    def tokens(blocks: int | None) -> int | None:
        return None if blocks is None or block_tokens is None else blocks * block_tokens

    return HotRow(
        hash=prefix.hash,
        tokens=tokens(prefix.blocks),
        depth_tokens=tokens(prefix.depth_blocks),
        weight_tokens=tokens(prefix.weight_blocks),
        blocks=prefix.blocks,
        depth_blocks=prefix.depth_blocks,
        prompts=prefix.prompts,
        fan_out=prefix.children,
        holders=list(prefix.holders[:MOST_HOLDERS_SHOWN]),
        holder_count=len(prefix.holders),
        last_use_s=prefix.last_use_s,
        parent=prefix.parent,
    )
