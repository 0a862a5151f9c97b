"""Limits and budgets in Redis, one function call each: the way to `quota.lua`.

    ask ────┐
    settle ─┼─> waiting ──(a lane is free)──> one pipeline a node ──> each caller gets its own reply
    renew ──┘                                    │ MOVED: to the node that serves the tenant now
                                                 └ function not found: loaded there, and called again

Calls of different tenants lie in different slots, so a pipeline goes to each node of a cluster. `run` has to be under
way for any call to be answered.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Final, Protocol, cast

import msgspec
from redis import exceptions as redis_errors
from redis.asyncio import Redis

from billing.quotas.types import Allowance, Answer, Ask, Granted, LimitKind, Outcome, Purse, Refused, Room, Unstarted

_LANES: Final = 2
"""Pipelines at once: one is on the way while the next one collects."""
_ROUNDS: Final = 4
_MOST_AT_ONCE: Final = 256
"""Calls in a pipeline; at some 30 us each, so that no other client of the server waits long."""
_KEPT_MS: Final = 2 * 24 * 3600 * 1000
"""How long a purse outlives its period: calls that began in it may end after it."""
_FAILED: Final = "user_function:"
"""What the server says where one of our functions failed, and in which line."""
_NONSENSE: Final = (ValueError, TypeError, IndexError, RuntimeError)


class QuotaAway(Exception):
    """Redis does not answer, or not in time, or not as it should; the text says which."""


class QuotaFailed(QuotaAway):
    """Redis is there, and our function failed over what it was asked or found: asking again would not help."""


class QuotaServer(Protocol):
    """Where the counters are: one server, or the node of a cluster that serves a key."""

    async def primary_of(self, key: bytes) -> Redis:
        """A client of the node that serves `key`."""
        ...

    def moved(self, key: bytes, word: redis_errors.MovedError) -> None:
        """A node said that another one serves `key`."""
        ...

    def lost(self, key: bytes) -> None:
        """Whoever served `key` did not answer."""
        ...


class OneServer:
    """A server that is no cluster."""

    def __init__(self, client: Redis) -> None:
        self._client = client

    async def primary_of(self, key: bytes) -> Redis:
        """The one there is."""
        return self._client

    def moved(self, key: bytes, word: redis_errors.MovedError) -> None:
        """It cannot have."""

    def lost(self, key: bytes) -> None:
        """There is no other."""


@dataclass(frozen=True, slots=True)
class _Call:
    function: str
    keys: tuple[str, ...]
    args: tuple[str | bytes | int, ...]


class QuotaRedis:
    """The counters of one pool, for all its replicas. The server's clients must not decode responses."""

    def __init__(self, server: QuotaServer, pool: str, *, ttl_ms: int, deadline_s: float) -> None:
        self._server = server
        self._pool = pool
        self._ttl_ms = ttl_ms
        self._deadline_s = deadline_s
        self._library, self._code = library()
        self._waiting: list[tuple[_Call, asyncio.Future[object]]] = []
        self._work = asyncio.Event()

    async def run(self) -> None:
        """Carry calls, until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(_LANES):
                group.create_task(self._carry())

    async def ask(self, ask: Ask, now_ms: int = 0) -> Answer:
        """Hold all that a request wants, or nothing. Raises `QuotaAway`; then it is unknown which."""
        reply = await self._call(self._ask_call(ask, now_ms))
        try:
            return read_answer(ask, cast(list[int], reply))
        except _NONSENSE as failure:
            raise QuotaAway(f"reply to ask: {failure}") from failure

    async def settle(self, outcome: Outcome, now_ms: int = 0) -> bool:
        """Give back what was held and charge what it came to, once; False where that was done. Raises `QuotaAway`."""
        keys = (*self._lists(outcome.tenant_id), *(self._purse(outcome.tenant_id, one) for one in outcome.purses))
        tokens = "" if outcome.tokens is None else outcome.tokens
        micro = "" if outcome.micro is None else outcome.micro
        args = (outcome.request_id, now_ms, tokens, micro, outcome.committed_ms)
        return await self._call(_Call("settle", keys, args)) == 1

    async def renew(self, tenant_id: str, request_ids: Sequence[str], now_ms: int = 0) -> int:
        """Let holds live on. Returns how many are still there. Raises `QuotaAway`."""
        args: tuple[str | int, ...] = (now_ms, self._ttl_ms, *request_ids)
        return _number(await self._call(_Call("renew", self._lists(tenant_id), args)))

    async def start(self, tenant_id: str, purse: Purse, spent_micro: int, born_ms: int) -> None:
        """Begin the counter of a purse from what the ledger says; nothing where it has begun. Raises `QuotaAway`."""
        ttl_ms = max(0, int(purse.end.timestamp() * 1000) - born_ms) + _KEPT_MS
        await self._call(_Call("start", (self._purse(tenant_id, purse),), (spent_micro, born_ms, ttl_ms)))

    async def beat(self, replica: str, gone_ms: int) -> int:
        """A sign of life of this replica; how many there are. Raises `QuotaAway`."""
        return _number(await self._call(_Call("beat", (f"{{pgq:1:{self._pool}}}:replicas",), (replica, gone_ms))))

    def _tag(self, tenant_id: str) -> str:
        return f"{{pgq:1:{self._pool}:{tenant_id}}}"

    def _lists(self, tenant_id: str) -> tuple[str, str]:
        tag = self._tag(tenant_id)
        return f"{tag}:due", f"{tag}:holds"

    def _purse(self, tenant_id: str, purse: Purse) -> str:
        return f"{self._tag(tenant_id)}:b:{purse.name}"

    def _ask_call(self, ask: Ask, now_ms: int) -> _Call:
        tag = self._tag(ask.tenant_id)
        keys = [*self._lists(ask.tenant_id)]

        def place(key: str, *, wanted: bool) -> int:
            if not wanted:
                return 0
            keys.append(key)
            return len(keys)

        owners = [
            (
                place(f"{tag}:w:{one.owner}", wanted=_has_window(one)),
                place(f"{tag}:l:{one.owner}", wanted=one.concurrent is not None),
                _limit(one.requests_per_minute),
                _limit(one.tokens_per_minute),
                _limit(one.concurrent),
            )
            for one in ask.allowances
        ]
        purses = [(place(self._purse(ask.tenant_id, one), wanted=True), one.limit_micro) for one in ask.purses]
        plan = (ask.request_id, now_ms, self._ttl_ms, ask.tokens, ask.micro, owners, purses)
        return _Call("ask", tuple(keys), (msgspec.msgpack.encode(plan),))

    async def _call(self, call: _Call) -> object:
        mine: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._waiting.append((call, mine))
        self._work.set()
        try:
            async with asyncio.timeout(self._deadline_s):
                reply = await mine
        except TimeoutError:
            raise QuotaAway("no answer in time") from None
        if isinstance(reply, Exception):
            kind = QuotaFailed if _FAILED in str(reply) else QuotaAway
            raise kind(f"{type(reply).__name__}: {reply}") from reply
        return reply

    async def _carry(self) -> None:
        while True:
            await self._work.wait()
            batch, self._waiting = self._waiting[:_MOST_AT_ONCE], self._waiting[_MOST_AT_ONCE:]
            if not self._waiting:
                self._work.clear()
            batch = [one for one in batch if not one[1].done()]
            if not batch:
                continue
            outcome: list[object] | Exception = QuotaAway("no answer in time")
            try:
                async with asyncio.timeout(self._deadline_s):
                    outcome = await self._send([call for call, _ in batch])
            except (redis_errors.RedisError, OSError, *_NONSENSE) as failure:  # TimeoutError is an OSError
                outcome = failure
                for call, _ in batch:
                    self._server.lost(call.keys[0].encode())
            finally:
                for at, (_, future) in enumerate(batch):
                    if not future.done():
                        future.set_result(outcome if isinstance(outcome, Exception) else outcome[at])

    async def _send(self, calls: Sequence[_Call]) -> list[object]:
        """Replies in order; an error that the server answered stands in place of a reply."""
        replies: list[object] = [None] * len(calls)
        again = list(range(len(calls)))
        for _ in range(_ROUNDS):
            nodes: dict[int, tuple[Redis, list[int]]] = {}
            for at in again:
                node = await self._server.primary_of(calls[at].keys[0].encode())
                nodes.setdefault(id(node), (node, []))[1].append(at)
            for node, places in nodes.values():
                for at, reply in zip(places, await self._pipeline(node, [calls[at] for at in places]), strict=True):
                    replies[at] = reply
                if any(_is_missing(replies[at]) for at in places):
                    await self._load(node)
            again = [at for at in again if self._goes_again(calls[at], replies[at])]
            if not again:
                break
        return replies

    def _goes_again(self, call: _Call, reply: object) -> bool:
        if isinstance(reply, redis_errors.MovedError):
            self._server.moved(call.keys[0].encode(), reply)
            return True
        return _is_missing(reply)

    async def _pipeline(self, node: Redis, calls: Sequence[_Call]) -> list[object]:
        if len(calls) == 1:
            try:
                return [await self._on(node, calls[0])]
            except redis_errors.ResponseError as refusal:
                return [refusal]
        pipeline = node.pipeline(transaction=False)
        for call in calls:
            self._on(pipeline, call)
        return list(await pipeline.execute(raise_on_error=False))

    def _on(self, client: Redis, call: _Call) -> Awaitable[object]:
        # redis-py types arguments as str and passes bytes and numbers through.
        arguments = cast(tuple[str, ...], (*call.keys, *call.args))
        name = f"{self._library}_{call.function}"
        return cast(Awaitable[object], client.fcall(name, len(call.keys), *arguments))

    async def _load(self, node: Redis) -> None:
        try:
            await node.function_load(self._code)
        except redis_errors.ResponseError as refusal:
            if "already exists" not in str(refusal):  # another replica may have been first
                raise


def library() -> tuple[str, str]:
    """Name and code of the function library. The name ends in a digest: other code is another library."""
    body = resources.files("billing.quotas").joinpath("quota.lua").read_text(encoding="utf-8")
    name = f"prefixgate_quota_1_{hashlib.sha256(body.encode()).hexdigest()[:8]}"
    return name, f"#!lua name={name}\nlocal LIB = '{name}'\n{body}"


def read_answer(ask: Ask, reply: list[int]) -> Answer:
    """What a reply to `ask` says. Raises `ValueError` and the like for what is none."""
    head, rest = reply[0], reply[1:]
    if head == -1:
        return Unstarted(tuple(rest))
    if head == -2:
        return Granted((), ())
    if head > 0:
        return Refused(LimitKind(head), rest[0], rest[1], _rooms(ask.allowances, rest[2:]))
    rooms = 4 * len(ask.allowances)
    money = rest[rooms : rooms + 2 * len(ask.purses)]
    return Granted(_rooms(ask.allowances, rest), tuple(zip(money[::2], money[1::2], strict=True)))


def _rooms(allowances: Sequence[Allowance], numbers: list[int]) -> tuple[Room, ...]:
    return tuple(
        Room(_none(numbers[at]), numbers[at + 1], _none(numbers[at + 2]), numbers[at + 3])
        for at in range(0, 4 * len(allowances), 4)
    )


def _has_window(allowance: Allowance) -> bool:
    return allowance.requests_per_minute is not None or allowance.tokens_per_minute is not None


def _limit(limit: int | None) -> int:
    return -1 if limit is None else limit


def _none(number: int) -> int | None:
    return None if number < 0 else number


def _number(reply: object) -> int:
    if not isinstance(reply, int):
        raise QuotaAway(f"a reply that is no number: {type(reply).__name__}")
    return reply


def _is_missing(reply: object) -> bool:
    return isinstance(reply, redis_errors.ResponseError) and "unction not found" in str(reply)
