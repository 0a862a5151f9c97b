"""The way to the functions in Redis, for all that this process asks of it: few connections, and few writes on them.

    match      ──┐                 ┌─ urgent:  somebody waits for it ─┐
    limits     ──┼─> key ──> node ─┤                                  ├─> one write a tick ──> replies
    writes     ──┘                 └─ patient: nobody does           ─┘
                                       │ MOVED: to the node that serves the key now
                                       └ function not found: loaded there, and called again

A node has two lanes, so that what nobody waits for is never in the way of what somebody does; each is opened when it
is first needed, and again after it was lost. Opening is done by whoever comes first; others wait for that one, and
where it gives up halfway the next one begins anew. So there is no task here that would have to be run.

Nothing raises what Redis does: a call is answered by its reply, or by the exception that stands in its place.
"""

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self

from redis import exceptions as redis_errors
from redis.asyncio import Redis

from prefix_index.redis_clients import RedisClient, primary_of
from prefix_index.redis_cluster import ClusterClient
from prefix_index.redis_lane import Lane
from prefix_index.redis_wire import NONSENSE, bulks, opening

Order = tuple[bytes, bytes]
"""A call, packed, and a key that says which node of a cluster serves it."""

_PATIENCE_S: Final = 1.0
_ROUNDS: Final = 4
"""Times that calls are sent: once, after a move, after the library was loaded there, and after one more move."""
_URGENT: Final = 0
_PATIENT: Final = 1
_ABSENT: Final = "unction not found"
_FAILURES: Final = (redis_errors.RedisError, OSError, *NONSENSE)
"""What opening and loading fail with. NONSENSE: what answers speaks another protocol, and redis-py fails over it."""


class Carrier:
    """Calls of functions, on the connections of one client. `patience_s` is when a connection without a reply is lost.

    The client is the caller's, and must not decode responses; closing it closes the lanes. `close` gives them back
    while the client lives on.
    """

    def __init__(self, client: RedisClient, patience_s: float = _PATIENCE_S) -> None:
        self.client = client
        self._patience_s = patience_s
        self._cluster = client if isinstance(client, ClusterClient) else None
        self._tracks: dict[int, tuple[_Track, _Track]] = {}
        self._only = None if isinstance(client, ClusterClient) else self._tracks_of(client)
        self.opening, self.bulks = opening, bulks
        """How calls are packed, for who knows the carrier alone."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Give all connections back."""
        for tracks in self._tracks.values():
            for track in tracks:
                await track.close()

    async def ready(self, key: bytes) -> None:
        """Open what a call about `key` will need. Raises redis-py's errors and OSError; no deadline of its own."""
        for urgency in (_URGENT, _PATIENT):
            await self._open(key, urgency)

    async def call(self, order: Order, code: str, within_s: float | None = None) -> object:
        """The reply to one call, which somebody waits for. `code` is its library, loaded where it is missing."""
        lane = self._lane(order[1], _URGENT)
        if lane is not None:
            reply = await lane.ask(order[0], within_s)
            if not isinstance(reply, Exception) or not self._is_mended(order, reply, lane):
                return reply
        return (await self._step_by_step([order], code, within_s, _URGENT))[0]

    async def call_all(self, orders: Sequence[Order], code: str, within_s: float | None = None) -> list[object]:
        """Replies to calls that nobody waits for, in order. Where Redis did not answer it is unknown which took effect.

        Those to one node take effect in their order, as far as they are not refused.
        """
        if not orders:
            return []
        lane = self._lane_of(orders, _PATIENT)
        if lane is None:
            return await self._step_by_step(orders, code, within_s, _PATIENT)
        replies = _of_each(await lane.ask_all([packed for packed, _ in orders], within_s), len(orders))
        again = [
            at
            for at, reply in enumerate(replies)
            if isinstance(reply, Exception) and self._is_mended(orders[at], reply, lane)
        ]
        if again:
            mended = await self._step_by_step([orders[at] for at in again], code, within_s, _PATIENT)
            for at, reply in zip(again, mended, strict=True):
                replies[at] = reply
        return replies

    def post(
        self, orders: Sequence[Order], within_s: float | None = None
    ) -> "asyncio.Future[list[object] | Exception] | None":
        """The same at once, before whatever is called next, and without mending; None where there is no open way yet.

        For what must not be overtaken by a later call: it travels with the urgent ones.
        """
        lane = self._lane_of(orders, _URGENT)
        return None if lane is None else lane.ask_all([packed for packed, _ in orders], within_s)

    def _lane(self, key: bytes, urgency: int) -> Lane | None:
        """The open lane to whoever serves a key, as far as is known."""
        tracks = self._only
        if tracks is None:
            assert self._cluster is not None
            node = self._cluster.known(key)
            if node is None:
                return None
            tracks = self._tracks_of(node)
        lane = tracks[urgency].lane
        return lane if lane is not None and lane.is_open else None

    def _lane_of(self, orders: Sequence[Order], urgency: int) -> Lane | None:
        """The one open lane that all orders would take."""
        if self._only is not None:
            return self._lane(b"", urgency)
        lanes = {self._lane(key, urgency) for _, key in orders}
        return lanes.pop() if len(lanes) == 1 else None

    def _tracks_of(self, node: Redis) -> "tuple[_Track, _Track]":
        tracks = self._tracks.get(id(node))
        if tracks is None:
            tracks = self._tracks[id(node)] = (_Track(node, self._patience_s), _Track(node, self._patience_s))
        return tracks

    async def _open(self, key: bytes, urgency: int) -> Lane:
        node = await primary_of(self.client, key)
        return await self._tracks_of(node)[urgency].open()

    async def _step_by_step(
        self, orders: Sequence[Order], code: str, within_s: float | None, urgency: int
    ) -> list[object]:
        """Send calls, opening, loading and redirecting as need be."""
        replies: list[object] = [redis_errors.ConnectionError("not sent")] * len(orders)
        again = list(range(len(orders)))
        try:
            async with asyncio.timeout(within_s):
                for _ in range(_ROUNDS):
                    again = await self._round(orders, again, code, urgency, replies)
                    if not again:
                        break
        except _FAILURES as failure:  # TimeoutError is an OSError
            for at in again:
                self._lost(orders[at][1], failure)
                replies[at] = failure
        return replies

    async def _round(
        self, orders: Sequence[Order], again: Sequence[int], code: str, urgency: int, replies: list[object]
    ) -> list[int]:
        """Send some of the orders once. Returns those that have to be sent once more."""
        places: dict[Lane, list[int]] = {}
        for at in again:
            places.setdefault(await self._open(orders[at][1], urgency), []).append(at)
        sent = [(lane, some, lane.ask_all([orders[at][0] for at in some])) for lane, some in places.items()]
        left: list[int] = []
        for lane, some, future in sent:
            answers = _of_each(await future, len(some))
            unloaded = False
            for at, reply in zip(some, answers, strict=True):
                replies[at] = reply
                if isinstance(reply, Exception) and self._is_mended(orders[at], reply, lane):
                    left.append(at)
                    unloaded = unloaded or _is_absent(reply)
            if unloaded:
                await _load(lane, code)
        return sorted(left)

    def _is_mended(self, order: Order, reply: Exception, lane: Lane) -> bool:
        """Whether a call that was answered with an exception is to be sent again."""
        if isinstance(reply, redis_errors.MovedError) and self._cluster is not None:
            self._cluster.moved(order[1], reply)
            return True
        if isinstance(reply, redis_errors.ReadOnlyError):
            lane.retire()  # sentinels may have another primary by now, and are asked when one connects
        self._lost(order[1], reply)
        return _is_absent(reply)

    def _lost(self, key: bytes, failure: Exception) -> None:
        """Forget who serves a key where that one does not answer, or no longer serves."""
        away = not isinstance(failure, redis_errors.ResponseError) or isinstance(failure, redis_errors.ClusterDownError)
        if away and self._cluster is not None:
            self._cluster.lost(key)


class _Track:
    """One lane to one node, opened when it is needed."""

    def __init__(self, node: Redis, patience_s: float) -> None:
        self.lane: Lane | None = None
        self._pool = node.connection_pool
        self._patience_s = patience_s
        self._opening: asyncio.Future[Exception | None] | None = None
        self._retired: list[Lane] = []

    async def open(self) -> Lane:
        """The lane; opened by whoever comes first, while the others wait. Raises redis-py's errors and OSError."""
        while self.lane is None or not self.lane.is_open:
            if self._opening is not None:
                failure = await asyncio.shield(self._opening)
                if failure is not None:
                    raise failure
                continue  # it is open, or who was opening it has left
            self._opening = asyncio.get_running_loop().create_future()
            outcome: Exception | None = None
            try:
                self.lane = await self._connect()
            except _FAILURES as failure:
                outcome = failure
                raise
            finally:
                opening, self._opening = self._opening, None
                opening.set_result(outcome)
        return self.lane

    async def close(self) -> None:
        """Give the connection back."""
        lanes, self._retired = [*self._retired, *([self.lane] if self.lane is not None else [])], []
        self.lane = None
        for lane in lanes:
            await lane.give_back()

    async def _connect(self) -> Lane:
        if self.lane is not None:
            self.lane.retire()
            self._retired.append(self.lane)
            self.lane = None
        for lane in [lane for lane in self._retired if lane.has_ended]:
            self._retired.remove(lane)
            await lane.give_back()
        connection = await self._pool.get_connection()  # type: ignore[no-untyped-call]  # redis-py's own
        return Lane(self._pool, connection, self._patience_s)


async def _load(lane: Lane, code: str) -> None:
    refusal = await lane.ask(b"*3\r\n" + bulks("FUNCTION", "LOAD", code))
    if isinstance(refusal, Exception) and "already exists" not in str(refusal):  # another replica may have been first
        raise refusal


def _is_absent(reply: Exception) -> bool:
    return isinstance(reply, redis_errors.ResponseError) and _ABSENT in str(reply)


def _of_each(replies: list[object] | Exception, number: int) -> list[object]:
    return [replies] * number if isinstance(replies, Exception) else replies
