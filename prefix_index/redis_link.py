"""The way to the functions in Redis: one pipeline for the calls of one tick, the library loaded when it is missing.

    match ──┐
    match ──┼─> waiting ──(a lane is free)──> one pipeline ──> each caller gets its own reply
    match ──┘                                       │ MOVED: to the node that serves these keys now
                                                    └ function not found: loaded there, and called again

There are few lanes, so that a slow server gets fewer and longer pipelines, never more connections. The first caller of
a pipeline carries the others; when it is cancelled, they start again with a carrier of their own. While a `TaskGroup`
carries (`carried_by`), a caller who gives up leaves the pipeline alone: its connection stays, and its late replies are
read and dropped, where a cancelled one would have to be closed and opened again.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import resources
from typing import Final, cast

from redis import exceptions as redis_errors
from redis.asyncio import Redis

from prefix_index.errors import IndexUnavailable
from prefix_index.redis_clients import RedisClient, primary_of
from prefix_index.redis_cluster import ClusterClient
from prefix_index.redis_wire import KEY_VERSION, NONSENSE, Call
from prefix_index.types import DegradedReason

_LANES: Final = 2
"""Pipelines at once: one is on the way while the next one collects and leaves."""

_ROUNDS: Final = 4
"""Times that calls are sent: once, after a move, after the library was loaded there, and after one more move."""

_FULL: Final = "PGFULL"
"""What our functions say where there is no slot for one more holder."""
_FAILED: Final = "user_function:"
"""What the server says where one of our functions failed, and in which line."""


class RedisLink:
    """Calls of one pool's functions. The client is the caller's, and must not decode responses."""

    def __init__(self, client: RedisClient, keys: Sequence[bytes]) -> None:
        self._client = client
        self._keys = tuple(keys)
        self._library, self._code = library()
        self._waiting: list[tuple[Call, asyncio.Future[object]]] = []
        self._lanes = asyncio.Semaphore(_LANES)
        self._carriers: asyncio.TaskGroup | None = None
        self._within_s: float | None = None

    @contextmanager
    def carried_by(self, group: asyncio.TaskGroup, *, within_s: float) -> Iterator[None]:
        """While this lasts, `group` carries the calls; a pipeline that has no reply `within_s` is given up."""
        self._carriers, self._within_s = group, within_s
        try:
            yield
        finally:
            self._carriers = self._within_s = None

    async def call(self, call: Call) -> object:
        """The reply to one call, sent together with all other calls of this tick.

        Raises IndexUnavailable, also where the server answers with an error. No deadline of its own.
        """
        while True:
            mine: asyncio.Future[object] = asyncio.get_running_loop().create_future()
            self._waiting.append((call, mine))
            if len(self._waiting) == 1:
                if self._carriers is None:
                    await self._carry()
                else:
                    self._carriers.create_task(self._carry())
            reply = await mine
            if isinstance(reply, _CarrierLeft):
                continue
            if isinstance(reply, Exception):
                raise unavailable(reply) from reply
            return reply

    async def send(self, calls: Sequence[Call]) -> list[object]:
        """Replies to all calls, in order, in one pipeline; an error the server answered stands in place of a reply.

        Raises IndexUnavailable where the server was not reached; then it is unknown which calls took effect.
        """
        try:
            node = await primary_of(self._client, self._keys[0])
            replies = await self._pipeline(node, calls)
            for _ in range(_ROUNDS - 1):
                again = [at for at, reply in enumerate(replies) if self._is_moved(reply) or _is_missing(reply)]
                if not again:
                    break
                node = await self._put_right(node, replies[again[0]])
                for at, reply in zip(again, await self._pipeline(node, [calls[at] for at in again]), strict=True):
                    replies[at] = reply
        except (redis_errors.RedisError, OSError, *NONSENSE) as failure:
            # What answers does not speak the protocol, and redis-py fails while reading it.
            self._lost()
            raise unavailable(failure) from failure
        if any(isinstance(reply, redis_errors.ClusterDownError) for reply in replies):
            self._lost()
        return replies

    async def _carry(self) -> None:
        """Send what waits. Every caller's future is settled, whatever happens to the carrier."""
        batch: list[tuple[Call, asyncio.Future[object]]] = []
        outcome: list[object] | Exception = _CarrierLeft()
        try:
            async with self._lanes:
                if self._carriers is None:
                    await asyncio.sleep(0)  # a task of its own starts a tick later anyway
                batch, self._waiting = [one for one in self._waiting if not one[1].done()], []
                if batch:
                    async with asyncio.timeout(self._within_s):
                        outcome = await self.send([call for call, _ in batch])
        except (IndexUnavailable, TimeoutError) as failure:
            outcome = failure
        finally:
            if not batch:
                batch, self._waiting = self._waiting, []
            for at, (_, future) in enumerate(batch):
                if not future.done():
                    future.set_result(outcome if isinstance(outcome, Exception) else outcome[at])

    async def _put_right(self, node: Redis, complaint: object) -> Redis:
        """Do what a reply asks for; returns the node to send to then."""
        if isinstance(complaint, redis_errors.MovedError) and isinstance(self._client, ClusterClient):
            self._client.moved(self._keys[0], complaint)
            return await primary_of(self._client, self._keys[0])
        await self._load(node)
        return node

    def _is_moved(self, reply: object) -> bool:
        return isinstance(reply, redis_errors.MovedError) and isinstance(self._client, ClusterClient)

    def _lost(self) -> None:
        if isinstance(self._client, ClusterClient):
            self._client.lost(self._keys[0])

    async def _pipeline(self, node: Redis, calls: Sequence[Call]) -> list[object]:
        if len(calls) == 1:  # a pipeline of one costs 70 µs more than the call alone
            try:
                return [await self._on(node, calls[0])]
            except redis_errors.ResponseError as refusal:
                return [refusal]
        pipeline = node.pipeline(transaction=False)
        for call in calls:
            self._on(pipeline, call)
        return list(await pipeline.execute(raise_on_error=False))

    def _on(self, client: Redis, call: Call) -> Awaitable[object]:
        """Put a call on a client, where it is awaited, or on a pipeline, which only takes note of it."""
        function = client.fcall_ro if call.read_only else client.fcall
        # redis-py types arguments as str and passes bytes and numbers through.
        arguments = cast(tuple[str, ...], (*self._keys, *call.args))
        return cast(Awaitable[object], function(f"{self._library}_{call.function}", len(self._keys), *arguments))

    async def _load(self, node: Redis) -> None:
        try:
            await node.function_load(self._code)
        except redis_errors.ResponseError as refusal:
            if "already exists" not in str(refusal):  # another replica may have been first
                raise


def library() -> tuple[str, str]:
    """Name and code of the function library. The name ends in a digest: other code is another library."""
    folder = resources.files("prefix_index").joinpath("lua")
    body = "".join(
        folder.joinpath(part).read_text(encoding="utf-8") for part in ("nodes.lua", "seats.lua", "radix.lua")
    )
    name = f"prefixgate_{KEY_VERSION}_{hashlib.sha256(body.encode()).hexdigest()[:8]}"
    return name, f"#!lua name={name}\nlocal LIB = '{name}'\n{body}"


def unavailable(failure: Exception) -> IndexUnavailable:
    """What a failure below says about the shared index."""
    if isinstance(failure, IndexUnavailable):
        return failure
    reasons: Mapping[type[Exception], DegradedReason] = {
        redis_errors.TimeoutError: DegradedReason.TIMEOUT,
        TimeoutError: DegradedReason.TIMEOUT,
        redis_errors.ConnectionError: DegradedReason.UNREACHABLE,
        OSError: DegradedReason.UNREACHABLE,
        redis_errors.ResponseError: DegradedReason.REFUSED,
    }
    for kind, reason in reasons.items():
        if isinstance(failure, kind):
            return IndexUnavailable(str(failure), reason)
    return IndexUnavailable(f"{type(failure).__name__}: {failure}", DegradedReason.BAD_ANSWER)


def is_dropped(call: Call, refusal: Exception) -> bool:
    """Whether this refusal is no reason to send again what was refused, nor to stop writing: an observation for which
    there is no room, no slot, or that our functions fail at over what is stored. The index knows less without it; a
    loss or an ending that is missing would make it claim too much.
    """
    if call.function == "publish":
        return isinstance(refusal, redis_errors.OutOfMemoryError)
    return call.function == "observe" and (
        isinstance(refusal, redis_errors.OutOfMemoryError) or str(refusal).startswith((_FULL, _FAILED))
    )


class _CarrierLeft(Exception):
    """The caller that carried this tick's calls was cancelled."""


def _is_missing(reply: object) -> bool:
    return isinstance(reply, redis_errors.ResponseError) and "unction not found" in str(reply)
