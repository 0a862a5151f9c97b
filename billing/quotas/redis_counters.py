"""Limits and budgets in Redis, one function call each: the way to `quota.lua`.

    ask ──────┐                             ┌─ the part that all asks of a key have in common, packed once
    settle ───┼─> packed, with its key ──> QuotaCarrier ──> reply, or the exception that stands in its place
    renew ... ┘                             └─ what others of this process call, in the same write

Calls of different tenants lie in different slots, so each names the key by which a cluster serves it. Who carries is
the composition's business: this room knows the protocol below, and no client of Redis.
"""

import asyncio
import hashlib
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any, Final, Protocol, cast

import msgspec

from billing.quotas.types import Allowance, Answer, Ask, Granted, LimitKind, Outcome, Purse, Refused, Room, Unstarted

_KEPT_MS: Final = 2 * 24 * 3600 * 1000
"""How long a purse outlives its period: calls that began in it may end after it."""
_KEPT_FORMS: Final = 4096
"""Keys and budgets whose packed parts are remembered."""
_FAILED: Final = "user_function:"
"""What the server says where one of our functions failed, and in which line."""
_NONSENSE: Final = (ValueError, TypeError, IndexError)


class QuotaAway(Exception):
    """Redis does not answer, or not in time, or not as it should; the text says which."""


class QuotaFailed(QuotaAway):
    """Redis is there, and our function failed over what it was asked or found: asking again would not help."""


class QuotaCarrier(Protocol):
    """What carries packed calls to where the counters are. An exception stands in place of a missing reply."""

    def opening(self, name: str, keys: Sequence[bytes], arity: int, *, read_only: bool) -> bytes:
        """What a call of a function on some keys begins with: all but its `arity` arguments."""
        ...

    def bulks(self, *args: bytes | str | int) -> bytes:
        """Its arguments."""
        ...

    async def call(self, order: tuple[bytes, bytes], code: str, within_s: float) -> object:
        """The reply to a packed call about a key. `code` is its library, for a server that lacks it."""
        ...

    async def call_all(self, orders: Sequence[tuple[bytes, bytes]], code: str, within_s: float) -> list[object]:
        """Replies to calls that nobody waits for, in order."""
        ...

    def post(
        self, orders: Sequence[tuple[bytes, bytes]], within_s: float
    ) -> "asyncio.Future[list[object] | Exception] | None":
        """The same at once, before whatever is called later; None where that cannot be done at once."""
        ...


@dataclass(frozen=True, slots=True)
class _Form:
    """What asks with the same allowances and purses have in common; owners and purses packed as in a plan."""

    tenant_id: str
    allowances: tuple[Allowance, ...]
    purses: tuple[Purse, ...]
    opening: bytes
    owners: msgspec.Raw
    limits: msgspec.Raw


@dataclass(frozen=True, slots=True)
class _Bill:
    """What settlements of the same purses have in common."""

    tenant_id: str
    purses: tuple[Purse, ...]
    opening: bytes


class QuotaRedis:
    """The counters of one pool, for all its replicas."""

    def __init__(self, carrier: QuotaCarrier, pool: str, *, ttl_ms: int, deadline_s: float) -> None:
        self._carrier = carrier
        self._pool = pool
        self._ttl_ms = ttl_ms
        self._deadline_s = deadline_s
        self._library, self._code = library()
        self._forms: dict[tuple[int, int], _Form] = {}
        self._bills: dict[int, _Bill] = {}
        self._tags: dict[str, bytes] = {}

    async def ask(self, ask: Ask, now_ms: int = 0) -> Answer:
        """Hold all that a request wants, or nothing. Raises `QuotaAway`; then it is unknown which."""
        form = self._form_of(ask)
        plan = msgspec.msgpack.encode(
            (ask.request_id, now_ms, self._ttl_ms, ask.tokens, ask.micro, form.owners, form.limits)
        )
        packed = b"%b$%d\r\n%b\r\n" % (form.opening, len(plan), plan)
        reply = await self._carrier.call((packed, self._tag(ask.tenant_id)), self._code, self._deadline_s)
        if isinstance(reply, Exception):
            raise _away(reply) from reply
        try:
            return read_answer(ask, cast(list[int], reply))
        except _NONSENSE as failure:
            raise QuotaAway(f"reply to ask: {failure}") from failure

    async def settle(self, outcome: Outcome, now_ms: int = 0) -> bool:
        """Give back what was held and charge what it came to, once; False where that was done. Raises `QuotaAway`."""
        return await self._call(self._settlement(outcome, now_ms)) == 1

    def settle_soon(self, outcomes: Sequence[Outcome]) -> "asyncio.Future[list[object] | Exception] | None":
        """The same for several, before any later ask; None where there is no way at once. `why_not` reads replies."""
        return self._carrier.post([self._settlement(one, 0) for one in outcomes], self._deadline_s)

    async def settle_all(self, outcomes: Sequence[Outcome]) -> list[object]:
        """The same for several, nobody waiting. `why_not` reads the replies."""
        return await self._carrier.call_all(
            [self._settlement(one, 0) for one in outcomes], self._code, self._deadline_s
        )

    async def renew(self, tenant_id: str, request_ids: Sequence[str], now_ms: int = 0) -> int:
        """Let holds live on. Returns how many are still there. Raises `QuotaAway`."""
        return _number(await self._call(self._renewal(tenant_id, request_ids, now_ms)))

    async def renew_all(self, request_ids: Mapping[str, Sequence[str]]) -> list[object]:
        """The same for several tenants, nobody waiting. `why_not` reads the replies."""
        orders = [self._renewal(tenant_id, some, 0) for tenant_id, some in request_ids.items()]
        return await self._carrier.call_all(orders, self._code, self._deadline_s)

    async def start(self, tenant_id: str, purse: Purse, spent_micro: int, born_ms: int) -> None:
        """Begin the counter of a purse from what the ledger says; nothing where it has begun. Raises `QuotaAway`."""
        ttl_ms = max(0, int(purse.end.timestamp() * 1000) - born_ms) + _KEPT_MS
        keys = [self._purse(self._tag(tenant_id), purse)]
        await self._call(self._order("start", keys, spent_micro, born_ms, ttl_ms))

    async def beat(self, replica: str, gone_ms: int) -> int:
        """A sign of life of this replica; how many there are. Raises `QuotaAway`."""
        keys = [f"{{pgq:1:{self._pool}}}:replicas".encode()]
        return _number(await self._call(self._order("beat", keys, replica, gone_ms)))

    def _tag(self, tenant_id: str) -> bytes:
        """What all keys of a tenant begin with: one slot of a cluster."""
        tag = self._tags.get(tenant_id)
        if tag is None:
            _bound(self._tags)
            tag = self._tags[tenant_id] = f"{{pgq:1:{self._pool}:{tenant_id}}}".encode()
        return tag

    def _form_of(self, ask: Ask) -> _Form:
        """By identity: a key's allowances are one object for as long as the keys file is not changed."""
        name = (id(ask.allowances), id(ask.purses))
        form = self._forms.get(name)
        if (
            form is None
            or form.allowances is not ask.allowances
            or form.purses is not ask.purses
            or form.tenant_id != ask.tenant_id
        ):
            _bound(self._forms)
            form = self._forms[name] = self._new_form(ask)
        return form

    def _new_form(self, ask: Ask) -> _Form:
        tag = self._tag(ask.tenant_id)
        keys = _lists(tag)

        def place(key: bytes, *, wanted: bool) -> int:
            if not wanted:
                return 0
            keys.append(key)
            return len(keys)

        owners = [
            (
                place(tag + f":w:{one.owner}".encode(), wanted=_has_window(one)),
                place(tag + f":l:{one.owner}".encode(), wanted=one.concurrent is not None),
                _limit(one.requests_per_minute),
                _limit(one.tokens_per_minute),
                _limit(one.concurrent),
            )
            for one in ask.allowances
        ]
        purses = [(place(self._purse(tag, one), wanted=True), one.limit_micro) for one in ask.purses]
        return _Form(
            ask.tenant_id,
            ask.allowances,
            ask.purses,
            self._opening("ask", keys, 1),
            msgspec.Raw(msgspec.msgpack.encode(owners)),
            msgspec.Raw(msgspec.msgpack.encode(purses)),
        )

    def _settlement(self, outcome: Outcome, now_ms: int) -> tuple[bytes, bytes]:
        tag = self._tag(outcome.tenant_id)
        bill = self._bills.get(id(outcome.purses))
        if bill is None or bill.purses is not outcome.purses or bill.tenant_id != outcome.tenant_id:
            _bound(self._bills)
            keys = [*_lists(tag), *(self._purse(tag, one) for one in outcome.purses)]
            bill = _Bill(outcome.tenant_id, outcome.purses, self._opening("settle", keys, 5))
            self._bills[id(outcome.purses)] = bill
        tokens = "" if outcome.tokens is None else outcome.tokens
        micro = "" if outcome.micro is None else outcome.micro
        args = self._carrier.bulks(outcome.request_id, now_ms, tokens, micro, outcome.committed_ms)
        return bill.opening + args, tag

    def _renewal(self, tenant_id: str, request_ids: Sequence[str], now_ms: int) -> tuple[bytes, bytes]:
        return self._order("renew", _lists(self._tag(tenant_id)), now_ms, self._ttl_ms, *request_ids)

    def _purse(self, tag: bytes, purse: Purse) -> bytes:
        return tag + f":b:{purse.name}".encode()

    def _order(self, function: str, keys: Sequence[bytes], *args: str | int) -> tuple[bytes, bytes]:
        return self._opening(function, keys, len(args)) + self._carrier.bulks(*args), keys[0]

    def _opening(self, function: str, keys: Sequence[bytes], arity: int) -> bytes:
        return self._carrier.opening(f"{self._library}_{function}", keys, arity, read_only=False)

    async def _call(self, order: tuple[bytes, bytes]) -> object:
        reply = await self._carrier.call(order, self._code, self._deadline_s)
        if isinstance(reply, Exception):
            raise _away(reply) from reply
        return reply


def library() -> tuple[str, str]:
    """Name and code of the function library. The name ends in a digest: other code is another library."""
    body = resources.files("billing.quotas").joinpath("quota.lua").read_text(encoding="utf-8")
    name = f"prefixgate_quota_1_{hashlib.sha256(body.encode()).hexdigest()[:8]}"
    return name, f"#!lua name={name}\nlocal LIB = '{name}'\n{body}"


def why_not(reply: object) -> QuotaAway | None:
    """What stands in the place of a reply, None where it is one."""
    return _away(reply) if isinstance(reply, Exception) else None


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
        [
            Room(_none(numbers[at]), numbers[at + 1], _none(numbers[at + 2]), numbers[at + 3])
            for at in range(0, 4 * len(allowances), 4)
        ]
    )


def _lists(tag: bytes) -> list[bytes]:
    return [tag + b":due", tag + b":holds"]


def _bound(kept: MutableMapping[Any, Any]) -> None:
    """Make room for one more."""
    if len(kept) >= _KEPT_FORMS:
        kept.clear()


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


def _away(failure: Exception) -> QuotaAway:
    kind = QuotaFailed if _FAILED in str(failure) else QuotaAway
    return kind(f"{type(failure).__name__}: {failure}")
