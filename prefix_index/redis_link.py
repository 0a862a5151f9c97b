"""The calls of one pool's functions: packed, carried, and what their failures say about Redis.

    Call ──> opening(function, keys) + arguments ──> Carrier ──> reply, or IndexUnavailable with a reason

All calls of a function begin alike, with its name and the pool's seven keys: that part is packed once.
"""

import hashlib
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Final

from redis import exceptions as redis_errors

from prefix_index.errors import IndexUnavailable
from prefix_index.redis_carrier import Carrier, Order
from prefix_index.redis_clients import RedisClient
from prefix_index.redis_wire import KEY_VERSION, NONSENSE, Call, opening
from prefix_index.types import DegradedReason

_PATIENCE_S: Final = 60.0
"""With the connections of a link that has them for itself."""
_FULL: Final = "PGFULL"
"""What our functions say where there is no slot for one more holder."""
_FAILED: Final = "user_function:"
"""What the server says where one of our functions failed, and in which line."""


class RedisLink:
    """Calls of one pool's functions, over a carrier that others share, or one of its own over a client."""

    def __init__(self, redis: RedisClient | Carrier, keys: Sequence[bytes]) -> None:
        self._carrier = redis if isinstance(redis, Carrier) else Carrier(redis, _PATIENCE_S)
        self._keys = tuple(keys)
        self._key = self._keys[0]
        self._library, self._code = library()
        self._openings: dict[tuple[str, int], bytes] = {}

    async def call(self, call: Call, within_s: float | None = None) -> object:
        """The reply to one call, sent together with all other calls of this tick.

        Raises IndexUnavailable, also where the server answers with an error; for TIMEOUT where it does not in time.
        """
        reply = await self._carrier.call(self._order(call), self._code, within_s)
        if isinstance(reply, Exception):
            raise unavailable(reply) from reply
        return reply

    async def send(self, calls: Sequence[Call], within_s: float | None = None) -> list[object]:
        """Replies to all calls, in order, in one pipeline; an error the server answered stands in place of a reply.

        Raises IndexUnavailable where the server was not reached; then it is unknown which calls took effect.
        """
        replies = await self._carrier.call_all([self._order(call) for call in calls], self._code, within_s)
        for reply in replies:
            if isinstance(reply, Exception) and not isinstance(reply, redis_errors.ResponseError):
                raise unavailable(reply) from reply
        return replies

    async def ready(self) -> None:
        """Connect, as far as that is needed. Raises IndexUnavailable; no deadline of its own."""
        try:
            await self._carrier.ready(self._key)
        except (redis_errors.RedisError, OSError, *NONSENSE) as failure:
            raise unavailable(failure) from failure

    def _order(self, call: Call) -> Order:
        begun = self._openings.get((call.function, call.arity))
        if begun is None:
            begun = opening(f"{self._library}_{call.function}", self._keys, call.arity, read_only=call.read_only)
            self._openings[call.function, call.arity] = begun
        return begun + call.packed, self._key


def library() -> tuple[str, str]:
    """Name and code of the function library. The name ends in a digest: other code is another library."""
    folder = resources.files("prefix_index").joinpath("lua")
    body = "".join(
        folder.joinpath(part).read_text(encoding="utf-8") for part in ("nodes.lua", "seats.lua", "radix.lua")
    )
    name = f"prefixgate_{KEY_VERSION}_{hashlib.sha256(body.encode()).hexdigest()[:8]}"
    return name, f"#!lua name={name}\nlocal LIB = '{name}'\n{body}"


_UNSAID: Final[Mapping[DegradedReason, str]] = {
    DegradedReason.TIMEOUT: "no answer in time",
    DegradedReason.UNREACHABLE: "it cannot be reached",
    DegradedReason.REFUSED: "it refuses us",
}
"""Why, where what failed below says nothing: a deadline of asyncio's has no text."""


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
            return IndexUnavailable(str(failure) or _UNSAID[reason], reason)
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
