"""What was handed over and will not be fetched, since its client has left, is freed.

    client leaves ─────────────┬──> a decode call of one token, dropped ──> the engine lets go of the blocks
      `──(its prefill call: answered within a moment, or closed)

Else they stay pinned until their lease ends, in half a minute or eight: a few impatient clients fill a cache with them.
Only what no decode engine was told of is asked for: what was fetched once lies there no more, and somebody else's cache
lies in its place.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from backends import UpstreamError, UpstreamRequest
from backends.disaggregated import Edit
from gateway.disaggregation.legs import (
    MOST_ANSWER_BYTES,
    LateCall,
    LegOutcome,
    LegParts,
    PrefillLegs,
    edited,
    for_decode,
)
from gateway.edge.upstream import upstream_headers
from gateway.errors import GatewayError
from gateway.log_lines import LOGGER
from gateway.ranks import rank_headers
from gateway.split_state import Split
from gateway.types import InferenceRequest

MOST_WAITING: Final = 256
"""Beyond, leases end by themselves."""
LATE_S: Final = 0.5
"""How long a prefill call goes on without its client: about a step of an engine. A longer prompt is not computed for
nobody."""
MOST_AT_ONCE: Final = 16
PATIENCE_S: Final = 30.0
"""The usual lease; after it there is nothing to free."""
_ONE_TOKEN: Final = Edit(
    frozenset({"stream", "stream_options", "max_tokens", "max_completion_tokens", "min_tokens"}),
    {"stream": b"false", "max_tokens": b"1"},
)


_Left = tuple[InferenceRequest, Split]
"""A request whose client has left, and what was handed over for it."""


class Releaser:
    """One per process; `run` beside the requests."""

    def __init__(self, parts: LegParts, legs: PrefillLegs, is_up: Callable[[str], bool]) -> None:
        self._parts = parts
        self._legs = legs
        self._is_up = is_up
        self._waiting: asyncio.Queue[_Left | LateCall] = asyncio.Queue(MOST_WAITING)

    def put(self, request: InferenceRequest, split: Split) -> None:
        """Have it freed soon. Plain, so that a task that is being cancelled may call it."""
        try:
            self._waiting.put_nowait((request, split))
        except asyncio.QueueFull:
            self._parts.metrics.releases("nobody").inc()

    def _put_late(self, late: LateCall) -> None:
        try:
            self._waiting.put_nowait(late)
        except asyncio.QueueFull:
            late.call.cancel()

    async def run(self) -> None:
        """Free what nobody will fetch, until cancelled."""
        seats = asyncio.Semaphore(MOST_AT_ONCE)
        async with asyncio.TaskGroup() as group:
            self._legs.calls.open(group, self._put_late)
            while True:
                left = await self._waiting.get()
                await seats.acquire()
                group.create_task(self._finish(left)).add_done_callback(lambda _: seats.release())

    async def _finish(self, left: _Left | LateCall) -> None:
        outcome: str | None = "failed"
        try:
            async with asyncio.timeout(PATIENCE_S):
                outcome = await (self._late(left) if isinstance(left, LateCall) else self._free(*left))
        except (UpstreamError, GatewayError, TimeoutError):
            pass
        except Exception as error:  # noqa: BLE001 - the guard of the loop: a lease ends by itself
            LOGGER.error("a prompt was not freed", extra={"fields": {"error": type(error).__name__}})
        if outcome is not None:
            self._parts.metrics.releases(outcome).inc()

    async def _late(self, late: LateCall) -> str | None:
        """None where there is nothing to free: closing the connection has ended the work."""
        done, _ = await asyncio.wait({late.call}, timeout=LATE_S)
        if not done:
            late.call.cancel()
            return None
        found = late.call.result()
        if isinstance(found, Exception) or await self._legs.read(late.split, *found) is not LegOutcome.HANDED:
            return None
        late.split.fetched = True
        return await self._free(late.request, late.split)

    async def _free(self, request: InferenceRequest, split: Split) -> str:
        parts, chosen = self._parts, split.decode.candidate
        if not self._is_up(chosen.endpoint_id):
            return "nobody"
        out = await for_decode(await self._legs.outgoing(request, chosen.endpoint_id), split)
        body = await edited(out.body, _ONE_TOKEN)
        headers = (*upstream_headers(request), *rank_headers(chosen.rank))
        upstream = UpstreamRequest("POST", out.path, headers, body)
        seat = parts.fleet.reserve(chosen.endpoint_id, 0, 1, chosen.rank)
        try:
            endpoint = parts.fleet.config_of(chosen.endpoint_id)
            sent = parts.client.send(endpoint, upstream, parts.deadlines, split.decode_leg_begins)
            async with await sent as response:
                await response.read(MOST_ANSWER_BYTES)
                return "freed" if response.status < 400 else "failed"
        finally:
            seat.release()
