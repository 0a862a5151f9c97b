"""`/admin/index`: what the prefix index holds, what weighs most in it, whether it is sound, and how to end a holder.

    census, hottest, check ──> rows ──> JSON        read from Redis for whoever asks, one question at a time
    clear ──> index, feeds, receipts                as after a restart that nobody noticed

All of it runs beside requests, in turns of a millisecond; `check` alone blocks, and is refused where much is stored.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final

import msgspec
from fastapi import APIRouter, HTTPException, Query, Response

from gateway.event_feeds import EventFeeds
from gateway.fleet import Fleet
from gateway.index_report import (
    CacheName,
    CheckReport,
    Cleared,
    ClearedRow,
    HolderRow,
    HotReport,
    IndexReport,
    Store,
    hot_row,
    merged,
    sizes_of,
    sum_of,
)
from gateway.receipts import Receipts
from gateway.served_models import DEFAULT_BLOCK_TOKENS
from prefix_index import IndexUnavailable, SeatCensus, SharedIndex
from prefix_index.inspection import Extent
from prefix_index.radix import IN_ENGINE_MEMORY
from prefix_index.turns import in_turns

MOST_TOP: Final = 1_000
"""Prefixes in an answer of `top`: more are nothing to read."""
MOST_NODES: Final = 200_000
"""Of each shard, for `top`: 100,000 take some 3 s of processor time beside the requests."""
MOST_CHECKED_NODES: Final = 100_000
"""For `check`, which blocks for 4 s then."""

_Answers = dict[int | str, dict[str, Any]]
"""What a route answers beside 200, as its document says it."""


@dataclass(frozen=True, slots=True)
class IndexParts:
    """What the pages show and change."""

    index: SharedIndex
    fleet: Fleet
    receipts: Receipts
    feeds: EventFeeds
    is_shared: bool
    """Whether it is at an address that others can ask too, not in a private Valkey or in this process."""


class UnknownHolder(LookupError):
    """Nobody of this name is known here."""


class TooLarge(Exception):
    """More is stored than may be checked at once."""


class IndexPages:
    """The pages as data. Each but `report` may raise IndexUnavailable."""

    def __init__(self, parts: IndexParts) -> None:
        self._index = parts.index
        self._fleet = parts.fleet
        self._receipts = parts.receipts
        self._feeds = parts.feeds
        self._is_shared = parts.is_shared
        # Spans the reading of the whole index: two at once would be twice the work beside requests, and the memory.
        self._one_at_a_time = asyncio.Lock()

    async def report(self) -> IndexReport:
        """What the index holds, and how far it can be relied on. O(seats × log nodes + endpoints).

        Where the index cannot be read it says so, and shows the rest: it never raises IndexUnavailable.
        """
        unreadable = None
        try:
            async with self._one_at_a_time:
                shards = await self._index.census()
        except IndexUnavailable as failure:
            shards, unreadable = [], failure.why
        index, present = self._index, self._present()
        holders = [self._row(seat, present) async for seat in in_turns(await merged(shards))]
        await asyncio.sleep(0)
        return IndexReport(
            store=None if unreadable else Store.REDIS if index.is_in_redis else Store.PROCESS,
            unreadable=unreadable,
            degraded=index.degraded_reason,
            queued_writes=index.queued_writes,
            dropped_writes=index.dropped_writes,
            stand_in_matches=index.stand_in_matches,
            max_bytes=index.max_bytes,
            total=None if unreadable else sum_of(map(sizes_of, shards)),
            shards=[sizes_of(shard) for shard in shards],
            holders=holders,
            feeds=self._feeds.reports(),
            reliability=self._receipts.as_json(),
        )

    async def top(self, top: int, max_nodes: int) -> HotReport:
        """The `top` heaviest prefixes of `max_nodes` that are read of each shard. O(nodes read)."""
        async with self._one_at_a_time:
            sizes = await self._block_tokens()

            def tokens_of(holder: str) -> int:
                return sizes.get(CacheName.read(holder).endpoint, DEFAULT_BLOCK_TOKENS)

            found = await self._index.hottest(top, max_nodes, tokens_of)
        prefixes = [hot_row(prefix, sizes) async for prefix in in_turns(found.prefixes)]
        return HotReport(prefixes, found.nodes_read, found.cut)

    async def clear_endpoint(self, endpoint_id: str) -> Cleared:
        """End what the index says of all caches of an endpoint, as it is now. Raises UnknownHolder."""
        present = self._present()
        if endpoint_id not in present:
            raise UnknownHolder(f"there is no endpoint {endpoint_id!r}")
        seats = []
        async for seat in in_turns(await self._seats()):
            name = CacheName.read(seat.holder)
            if name.endpoint == endpoint_id and name.generation == present[endpoint_id]:
                seats.append(seat)
        holders = dict.fromkeys([*self._fleet.caches_of(endpoint_id), *(seat.holder for seat in seats)])
        return self._clear(list(holders), seats)

    async def clear_holder(self, holder: str) -> Cleared:
        """End what the index says of one holder, present or of the past. Raises UnknownHolder."""
        seats = [seat async for seat in in_turns(await self._seats()) if seat.holder == holder]
        if not seats and self._endpoint_at(holder) is None:
            raise UnknownHolder(f"the index knows no holder {holder!r}")
        return self._clear([holder], seats)

    async def check(self, max_nodes: int) -> CheckReport:
        """Every broken invariant; blocks Redis and this process. Raises TooLarge where there are more nodes."""
        async with self._one_at_a_time:
            extent = await self._index.extent()
            if extent.nodes + extent.own_nodes > max_nodes:
                raise TooLarge(self._too_large(extent))
            return CheckReport(await self._index.check(), extent.nodes, extent.own_nodes)

    def _too_large(self, extent: Extent) -> str:
        sizes = f"the index has {extent.nodes} nodes, and this gateway's own copy {extent.own_nodes}"
        others = "; `prefixgate check --index` looks at all in Redis, from a process of its own"
        return (
            f"{sizes}, together more than max_nodes: give a larger max_nodes (at most {MOST_CHECKED_NODES:,})"
            f"{others if self._is_shared else ''}"
        )

    async def _seats(self) -> list[SeatCensus]:
        async with self._one_at_a_time:
            return await merged(await self._index.census())

    def _clear(self, holders: list[str], seats: list[SeatCensus]) -> Cleared:
        for holder in holders:
            self._index.clear(holder, fenced=False)  # who asks means what there is, not what this replica has heard of
        for endpoint_id in dict.fromkeys(map(self._endpoint_at, holders)):
            if endpoint_id is not None:
                self._receipts.cleared(self._fleet.holder_of(endpoint_id))
                self._feeds.resync(endpoint_id)  # what events tell is read anew where it can be, and told again
        return Cleared(holders, [ClearedRow(seat.holder, seat.claim, seat.blocks) for seat in seats])

    def _endpoint_at(self, holder: str) -> str | None:
        """The endpoint that has this cache now."""
        name = CacheName.read(holder)
        present = self._present()
        return name.endpoint if name.endpoint in present and name.generation == present[name.endpoint] else None

    def _present(self) -> dict[str, int | None]:
        """The generation in which each endpoint is now."""
        fleet = self._fleet
        return {one.id: CacheName.read(fleet.holder_of(one.id)).generation for one in fleet.snapshot()}

    def _row(self, seat: SeatCensus, present: Mapping[str, int | None]) -> HolderRow:
        name = CacheName.read(seat.holder)
        in_memory = seat.claim in IN_ENGINE_MEMORY
        return HolderRow(
            holder=seat.holder,
            endpoint=name.endpoint,
            generation=name.generation,
            rank=name.rank,
            claim=seat.claim,
            is_present=name.endpoint in present and name.generation == present[name.endpoint],
            blocks=seat.blocks,
            nodes=seat.nodes,
            oldest_use_s=seat.oldest_use_s,
            newest_use_s=seat.newest_use_s,
            capacity_blocks=self._index.capacity_of(seat.holder) if in_memory else None,
        )

    async def _block_tokens(self) -> dict[str, int]:
        """Tokens a block of each endpoint's prompts, where that is known."""
        by_models: dict[tuple[str, ...], int] = {}
        sizes: dict[str, int] = {}
        async for endpoint in in_turns(self._fleet.snapshot()):
            if endpoint.facts is not None:
                models = tuple(model.id for model in endpoint.facts.models)
                if models not in by_models:
                    by_models[models] = self._fleet.block_size_of(endpoint.facts)
                sizes[endpoint.id] = by_models[models]
        return sizes


def index_router(pages: IndexPages) -> APIRouter:
    """The routes under `/admin/index`; who uses them answers IndexUnavailable and asks for a token."""
    router = APIRouter(prefix="/admin/index")
    away: _Answers = {503: {"description": "Redis does not answer."}}
    unknown: _Answers = {404: {"description": "Nobody of this name is known."}}
    large: _Answers = {409: {"description": "More nodes than max_nodes."}}

    @router.get("", response_model=IndexReport)
    async def report() -> Response:
        """What the prefix index holds: who has how much, how old it is, and how far it can be relied on.

        Where Redis does not answer, `store` is null, `unreadable` says why, and the rest is shown.
        """
        return await _json(await pages.report())

    @router.get("/top", response_model=HotReport, responses=away)
    async def top(
        top: Annotated[int, Query(ge=1, le=MOST_TOP, description="Prefixes to show.")] = 20,
        max_nodes: Annotated[int, Query(ge=1, le=MOST_NODES, description="Nodes to read of each shard.")] = 100_000,
    ) -> Response:
        """The prefixes that weigh most: their tokens times the stored prompts that begin with them. No text."""
        return await _json(await pages.top(top, max_nodes))

    @router.post("/clear", response_model=Cleared, responses={**unknown, **away})
    async def clear(
        holder: Annotated[str | None, Query(description="A holder as `GET /admin/index` names it.")] = None,
        endpoint: Annotated[str | None, Query(description="An endpoint: all its caches, as it is now.")] = None,
    ) -> Response:
        """End what the index says of a holder, as if it had been restarted. Nothing is sent to the engine."""
        try:
            if endpoint is not None and holder is None:
                return await _json(await pages.clear_endpoint(endpoint))
            if holder is not None and endpoint is None:
                return await _json(await pages.clear_holder(holder))
        except UnknownHolder as nobody:
            raise HTTPException(404, str(nobody)) from None
        raise HTTPException(422, "give either holder or endpoint")

    @router.get("/check", response_model=CheckReport, responses={**large, **away})
    async def check(
        max_nodes: Annotated[
            int, Query(ge=1, le=MOST_CHECKED_NODES, description="Refuse where more are stored.")
        ] = 10_000,
    ) -> Response:
        """Every broken invariant, none in a sound index. Blocks Redis and this gateway: 40 ms for 1,000 nodes."""
        try:
            return await _json(await pages.check(max_nodes))
        except TooLarge as refusal:
            raise HTTPException(409, str(refusal)) from None

    return router


async def _json(content: object) -> Response:
    """Not FastAPI's way, which would turn each row into an object first: this takes 1 ms for 2,000 rows."""
    await asyncio.sleep(0)  # in a turn of its own
    return Response(msgspec.json.encode(content), media_type="application/json")
