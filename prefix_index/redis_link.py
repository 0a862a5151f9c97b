"""The way to the functions in Redis: one pipeline for the calls of one tick, the library loaded when it is missing.

    match ──┐
    match ──┼─> waiting ──(end of the tick)──> one pipeline ──> each caller gets its own reply
    match ──┘

The first caller of a tick carries the others. When it is cancelled, the others start again with a carrier of their own,
so nobody waits for someone who has left.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Mapping, Sequence
from importlib import resources
from typing import cast

from redis import exceptions as redis_errors
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from prefix_index.errors import IndexUnavailable
from prefix_index.redis_wire import KEY_VERSION, Call
from prefix_index.types import DegradedReason

RedisClient = Redis
"""What `connect` makes."""


class RedisLink:
    """Calls of one pool's functions. The client is the caller's, and must not decode responses."""

    def __init__(self, client: Redis, keys: Sequence[bytes]) -> None:
        self._client = client
        self._keys = tuple(keys)
        self._library, self._code = library()
        self._waiting: list[tuple[Call, asyncio.Future[object]]] = []

    async def call(self, call: Call) -> object:
        """The reply to one call, sent together with all other calls of this tick.

        Raises IndexUnavailable, also where the server answers with an error. No deadline of its own.
        """
        while True:
            mine: asyncio.Future[object] = asyncio.get_running_loop().create_future()
            self._waiting.append((call, mine))
            if len(self._waiting) == 1:
                await self._carry()
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
            replies = await self._pipeline(calls)
            missing = [at for at, reply in enumerate(replies) if _is_missing(reply)]
            if missing:
                await self._load()
                for at, reply in zip(missing, await self._pipeline([calls[at] for at in missing]), strict=True):
                    replies[at] = reply
        except (redis_errors.RedisError, OSError, ValueError) as failure:
            # ValueError: what answers does not speak the protocol, and redis-py fails while reading it.
            raise unavailable(failure) from failure
        return replies

    async def _carry(self) -> None:
        """Send what this tick collects. Every caller's future is settled, whatever happens to the carrier."""
        batch: list[tuple[Call, asyncio.Future[object]]] = []
        outcome: list[object] | Exception = _CarrierLeft()
        try:
            await asyncio.sleep(0)
            batch, self._waiting = self._waiting, []
            outcome = await self.send([call for call, _ in batch])
        except IndexUnavailable as failure:
            outcome = failure
        finally:
            if not batch:
                batch, self._waiting = self._waiting, []
            for at, (_, future) in enumerate(batch):
                if not future.done():
                    future.set_result(outcome if isinstance(outcome, Exception) else outcome[at])

    async def _pipeline(self, calls: Sequence[Call]) -> list[object]:
        if len(calls) == 1:  # a pipeline of one costs 70 µs more than the call alone
            try:
                return [await self._on(self._client, calls[0])]
            except redis_errors.ResponseError as refusal:
                return [refusal]
        pipeline = self._client.pipeline(transaction=False)
        for call in calls:
            self._on(pipeline, call)
        return list(await pipeline.execute(raise_on_error=False))

    def _on(self, client: Redis, call: Call) -> Awaitable[object]:
        """Put a call on a client, where it is awaited, or on a pipeline, which only takes note of it."""
        function = client.fcall_ro if call.read_only else client.fcall
        # redis-py types arguments as str and passes bytes and numbers through.
        arguments = cast(tuple[str, ...], (*self._keys, *call.args))
        return cast(Awaitable[object], function(f"{self._library}_{call.function}", len(self._keys), *arguments))

    async def _load(self) -> None:
        try:
            await self._client.function_load(self._code)
        except redis_errors.ResponseError as refusal:
            if "already exists" not in str(refusal):  # another replica may have been first
                raise


def connect(url: str) -> RedisClient:
    """A client as the index wants it: bytes, no retries of its own, since whoever calls has a deadline.

    `url` is redis://, rediss:// (TLS) or unix://; user, password and database as redis-py reads them. Connects on use.
    """
    # No socket timeout: under one, redis-py writes inside asyncio.wait_for, which in Python 3.11 can swallow a
    # cancellation, and our deadlines are cancellations.
    return Redis.from_url(
        url, decode_responses=False, retry=Retry(NoBackoff(), 0), socket_connect_timeout=1.0, socket_timeout=None
    )


def library() -> tuple[str, str]:
    """Name and code of the function library. The name ends in a digest: other code is another library."""
    folder = resources.files("prefix_index").joinpath("lua")
    body = "".join(folder.joinpath(part).read_text(encoding="utf-8") for part in ("nodes.lua", "radix.lua"))
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


class _CarrierLeft(Exception):
    """The caller that carried this tick's calls was cancelled."""


def _is_missing(reply: object) -> bool:
    return isinstance(reply, redis_errors.ResponseError) and "unction not found" in str(reply)
