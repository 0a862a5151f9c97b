"""Limits and budgets counted in this process: what `quota.lua` does, for one replica alone.

It stands in while Redis is away, and is the oracle that the Lua library is tested against. Everything is a plain call
on the event loop, so one request is as atomic here as it is there. Costs: O(seconds used of the last minute) an ask.
"""

from dataclasses import dataclass, field
from typing import Final

from billing.quotas.types import Allowance, Answer, Ask, Granted, LimitKind, Outcome, Purse, Refused, Room, Unstarted

WINDOW_S: Final = 60
RETRY_MS: Final = 1000
SETTLED_MS: Final = 120_000
"""How long it is remembered that a request was settled."""


@dataclass(slots=True)
class _Slot:
    second: int
    requests: int
    tokens: int


@dataclass(slots=True)
class _Owner:
    slots: list[_Slot] = field(default_factory=list)
    live: dict[str, int] = field(default_factory=dict)
    """Request id -> ms at which it stops counting."""


@dataclass(slots=True)
class _Money:
    born_ms: int
    base_micro: int
    spent_micro: int
    held_micro: int = 0


@dataclass(slots=True)
class _Hold:
    until_ms: int
    amounts: dict[str, int]
    wins: list[tuple[str, int, int]]


class QuotaCounters:
    """All counters of one process. `replicas` is how many share each limit: this one grants its part of it."""

    def __init__(self, ttl_ms: int) -> None:
        self.replicas = 1
        self._ttl_ms = ttl_ms
        self._owners: dict[tuple[str, str], _Owner] = {}
        self._purses: dict[tuple[str, str], _Money] = {}
        self._holds: dict[str, _Hold] = {}
        self._settled: dict[str, int] = {}

    def ask(self, ask: Ask, now_ms: int) -> Answer:
        """Hold all that a request wants, or nothing."""
        self._sweep(now_ms)
        if ask.request_id in self._settled or ask.request_id in self._holds:
            return Granted((), ())
        unstarted = tuple(
            place for place, purse in enumerate(ask.purses) if (ask.tenant_id, purse.name) not in self._purses
        )
        if unstarted:
            return Unstarted(unstarted)
        owners = [self._owner(ask.tenant_id, one.owner, now_ms) for one in ask.allowances]
        parts = [self._part(one) for one in ask.allowances]
        for place, (part, owner) in enumerate(zip(parts, owners, strict=True)):
            kind, wait_ms = _refusal(part, owner, ask.tokens, now_ms)
            if kind is not None:
                return Refused(kind, place, wait_ms, _rooms(parts, owners, now_ms))
        amounts: dict[str, int] = {}
        for place, purse in enumerate(ask.purses):
            amount, kind = self._amount(self._purses[ask.tenant_id, purse.name], purse, ask.micro)
            if kind is not None:
                return Refused(kind, place, RETRY_MS, _rooms(parts, owners, now_ms))
            amounts[f"{ask.tenant_id}\n{purse.name}"] = amount
        self._take(ask, list(zip(parts, owners, strict=True)), amounts, now_ms)
        money = [self._purses[ask.tenant_id, purse.name] for purse in ask.purses]
        return Granted(_rooms(parts, owners, now_ms), tuple((one.spent_micro, one.held_micro) for one in money))

    def settle(self, outcome: Outcome, now_ms: int) -> bool:
        """Give back what was held and charge what it came to; False where that was done before."""
        self._forget(now_ms)  # also where nobody asks here, as Redis answers
        if outcome.request_id in self._settled:
            return False
        hold = self._holds.pop(outcome.request_id, None)
        if hold is not None:
            self._give_back(outcome.request_id, hold)
            for name, second, tokens in hold.wins if outcome.tokens is not None else ():
                self._correct((outcome.tenant_id, name), second, (outcome.tokens or 0) - tokens)
        for purse in outcome.purses:
            money = self._purses.get((outcome.tenant_id, purse.name))
            if money is not None and money.born_ms < outcome.committed_ms:
                held = hold.amounts.get(f"{outcome.tenant_id}\n{purse.name}", 0) if hold is not None else 0
                money.spent_micro += held if outcome.micro is None else outcome.micro
        self._settled[outcome.request_id] = now_ms + SETTLED_MS
        return True

    def renew(self, request_ids: list[str], now_ms: int) -> int:
        """Let holds live on. Returns how many are still there."""
        found = 0
        for request_id in request_ids:
            hold = self._holds.get(request_id)
            if hold is not None:
                found += 1
                hold.until_ms = now_ms + self._ttl_ms
                for owner in self._owners.values():
                    if request_id in owner.live:
                        owner.live[request_id] = hold.until_ms
        return found

    def start(self, tenant_id: str, purse: Purse, spent_micro: int, born_ms: int) -> None:
        """Begin the counter of a purse from what the ledger says; nothing where it has begun."""
        self._purses.setdefault((tenant_id, purse.name), _Money(born_ms, spent_micro, spent_micro))

    def clear(self) -> None:
        """Forget everything."""
        for table in (self._owners, self._purses, self._holds, self._settled):
            table.clear()

    def _part(self, allowance: Allowance) -> Allowance:
        def of(limit: int | None) -> int | None:
            return None if limit is None else max(1, limit // self.replicas)

        return Allowance(
            allowance.key_id,
            of(allowance.requests_per_minute),
            of(allowance.tokens_per_minute),
            of(allowance.concurrent),
        )

    def _owner(self, tenant_id: str, name: str, now_ms: int) -> _Owner:
        owner = self._owners.setdefault((tenant_id, name), _Owner())
        oldest = now_ms // 1000 - WINDOW_S
        owner.slots = [slot for slot in owner.slots if slot.second > oldest]
        owner.live = {one: until for one, until in owner.live.items() if until > now_ms}
        return owner

    def _amount(self, money: _Money, purse: Purse, micro: int) -> tuple[int, LimitKind | None]:
        limit = purse.limit_micro
        if self.replicas > 1:
            limit = money.base_micro + max(0, limit - money.base_micro) // self.replicas
        if money.spent_micro >= limit:
            return 0, LimitKind.BUDGET
        if money.spent_micro + money.held_micro + micro <= limit:
            return micro, None
        if money.held_micro == 0:
            return limit - money.spent_micro, None
        return 0, LimitKind.BUDGET_HELD

    def _take(self, ask: Ask, owners: list[tuple[Allowance, _Owner]], amounts: dict[str, int], now_ms: int) -> None:
        second, until_ms = now_ms // 1000, now_ms + self._ttl_ms
        hold = _Hold(until_ms, amounts, [])
        for part, owner in owners:
            if part.requests_per_minute is not None or part.tokens_per_minute is not None:
                tokens = _wanted(part, ask.tokens)
                if not owner.slots or owner.slots[-1].second != second:
                    owner.slots.append(_Slot(second, 0, 0))
                owner.slots[-1].requests += 1
                owner.slots[-1].tokens += tokens
                hold.wins.append((part.owner, second, tokens))
            if part.concurrent is not None:
                owner.live[ask.request_id] = until_ms
        for purse in ask.purses:
            self._purses[ask.tenant_id, purse.name].held_micro += amounts[f"{ask.tenant_id}\n{purse.name}"]
        self._holds[ask.request_id] = hold

    def _sweep(self, now_ms: int) -> None:
        for request_id in [one for one, hold in self._holds.items() if hold.until_ms <= now_ms]:
            self._give_back(request_id, self._holds.pop(request_id))
        self._forget(now_ms)

    def _forget(self, now_ms: int) -> None:
        """What was settled long ago; they are in the order in which they were settled."""
        while self._settled:
            request_id = next(iter(self._settled))
            if self._settled[request_id] > now_ms:
                break
            del self._settled[request_id]

    def _give_back(self, request_id: str, hold: _Hold) -> None:
        for owner in self._owners.values():
            owner.live.pop(request_id, None)
        for name, amount in hold.amounts.items():
            tenant_id, _, purse = name.partition("\n")
            self._purses[tenant_id, purse].held_micro -= amount

    def _correct(self, owner: tuple[str, str], second: int, change: int) -> None:
        for slot in self._owners[owner].slots:
            if slot.second == second:
                slot.tokens = max(0, slot.tokens + change)


def _wanted(part: Allowance, tokens: int) -> int:
    return tokens if part.tokens_per_minute is None else min(tokens, part.tokens_per_minute)


def _refusal(part: Allowance, owner: _Owner, tokens: int, now_ms: int) -> tuple[LimitKind | None, int]:
    if part.concurrent is not None and len(owner.live) >= part.concurrent:
        return LimitKind.CONCURRENT, RETRY_MS
    requests = sum(slot.requests for slot in owner.slots)
    if part.requests_per_minute is not None and requests + 1 > part.requests_per_minute:
        gone = [(slot.second, slot.requests) for slot in owner.slots]
        return LimitKind.REQUESTS, _until_gone(gone, requests + 1 - part.requests_per_minute, now_ms)
    if part.tokens_per_minute is not None:
        excess = sum(slot.tokens for slot in owner.slots) + _wanted(part, tokens) - part.tokens_per_minute
        if excess > 0:
            return LimitKind.TOKENS, _until_gone([(slot.second, slot.tokens) for slot in owner.slots], excess, now_ms)
    return None, 0


def _until_gone(slots: list[tuple[int, int]], excess: int, now_ms: int) -> int:
    for second, used in slots:
        excess -= used
        if excess <= 0:
            return (second + WINDOW_S) * 1000 - now_ms
    return WINDOW_S * 1000


def _rooms(parts: list[Allowance], owners: list[_Owner], now_ms: int) -> tuple[Room, ...]:
    return tuple(_room(part, owner, now_ms) for part, owner in zip(parts, owners, strict=True))


def _room(part: Allowance, owner: _Owner, now_ms: int) -> Room:
    reset_ms = max(0, (owner.slots[-1].second + WINDOW_S) * 1000 - now_ms) if owner.slots else 0
    requests = sum(slot.requests for slot in owner.slots)
    tokens = sum(slot.tokens for slot in owner.slots)
    return Room(_left(part.requests_per_minute, requests), reset_ms, _left(part.tokens_per_minute, tokens), reset_ms)


def _left(limit: int | None, used: int) -> int | None:
    return None if limit is None else max(0, limit - used)
