"""Who goes next: classes, tenants by what they make the engines compute, and a little room for prefixes. Pure.

    an endpoint has room
        │
        ▼   strict, but each lower class is owed its share of what goes before it
    ┌─ interactive ────────────────────┐  ┌─ batch ────────────────┐
    │ acme    served 61k  [t1][t4][t5] │  │ crawler  served 9M [..]│     served: uncached tokens by weight
    │ bolt    served 58k  [t2]         │  └────────────────────────┘     the least served goes first
    │ corvid  served 90k  [t3]         │
    └──────────────────────────────────┘
        └─ within `quantum` of the least served, and among the first few of each: who has its prefix there

*Tenants.* A request counts as what it makes the engines compute: the uncached part of its prompt, and a part of its
answer, divided by its tenant's weight. The tenant that was served least goes first, whatever it sends: a thousand
requests or one, short prompts or long ones. This is deficit round robin with its turns cut as small as they can be: a
ring whose visits grant a quantum serves in bursts, and needs many rounds for a long prompt. Tenants that wait all the
while differ, by equal weights, by no more than `quantum` and one largest request, as there; without the room for
prefixes (quantum 0) by one largest request. Who comes back after a pause starts where the others are at its endpoints:
nothing is saved up by silence, and nothing forgotten by a moment of it. What a tenant was served counts together,
whatever endpoints served it.

*Prefixes.* In the order of arrival an endpoint that becomes free would compute what another one has, and its own
prefixes would be evicted meanwhile. So, of the first `WINDOW` requests of each tenant within `quantum` of the least
served, the first goes that has most of its prompt there; else the first that has it nowhere; else the first of all.
Nobody is passed by so more than `most_passed` times: then it is its turn, and none of its tenant goes before it. What
is sent somewhere counts as being there for all that wait and begin alike: a burst of one prefix does not spread.

*Classes.* The highest class with somebody who may go there goes first. Each class below is owed `share` of what goes
before it while it waits, and goes as soon as that comes to its next request: so nobody waits for ever.

Costs: O(tenants that wait) to choose, O(1) to come and to leave.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest
from itertools import islice
from typing import Final

from gateway.queueing.types import ClassRule, Pick, Ticket, Went

WINDOW: Final = 8
"""Requests of a tenant that are looked at for their prefixes, and tenants."""
MOST_TOLD: Final = 256
"""Requests that wait, the first of them, which hear that a prompt was sent somewhere."""
_BEFORE_ALL: Final = 1 << 62
MOST_REMEMBERED: Final = 4096
"""Tenants of a class whose service is remembered while nothing of theirs waits."""


_Group = tuple[frozenset[str], bool]
"""Who may serve requests, and whether they had their turn once: those go before the others of their tenant."""


class _Line(OrderedDict[Ticket, None]):
    """Requests of one tenant and one group, in order; `tokens` is the least that they come to."""

    tokens = 0


@dataclass(frozen=True, slots=True)
class OrderRules:
    """`classes`, the highest first. `weights` by tenant, 1 where there is none. `quantum`, in uncached tokens of weight
    1, is how much more than the least served a tenant may have been served and still go first for a prefix;
    `most_passed` how often a request is passed by so."""

    classes: Sequence[ClassRule]
    weights: Mapping[str, float] = field(default_factory=dict)
    quantum: int = 8192
    most_passed: int = 4

    def weight_of(self, tenant: str) -> float:
        """A tenant's weight."""
        return self.weights.get(tenant, 1.0)


@dataclass(slots=True)
class _Share:
    """What a tenant has waiting in a class, by who may serve it, and what it was served, by its weight."""

    tenant: str
    since: int
    served: float
    lines: dict[_Group, _Line] = field(default_factory=dict)

    def first_for(self, endpoint_id: str) -> Ticket | None:
        """Its request that came first of those that may go there."""
        heads = (next(iter(line)) for (group, _), line in self.lines.items() if endpoint_id in group)
        return min(heads, key=_number, default=None)

    def tokens_for(self, endpoints: frozenset[str]) -> int:
        """What its requests come to that some of these endpoints may serve."""
        tokens = 0
        for (group, _), line in self.lines.items():  # `sum` takes twice as long, and there may be a thousand shares
            if group is endpoints or not group.isdisjoint(endpoints):
                tokens += line.tokens
        return tokens

    def window_for(self, endpoint_id: str, most_passed: int) -> list[Ticket]:
        """Its first requests that may go there, up to and with one that is not to be passed again."""
        lines = [line for (group, _), line in self.lines.items() if endpoint_id in group]
        first = sorted((ticket for line in lines for ticket in islice(line, WINDOW)), key=_number)[:WINDOW]
        for at, ticket in enumerate(first):
            if ticket.passed >= most_passed:
                return first[: at + 1]
        return first


class _Class:
    """The tenants of one class that wait, and what is remembered of the others."""

    def __init__(self) -> None:
        self.shares: dict[str, _Share] = {}
        self.remembered: dict[str, float] = {}
        self.reached: dict[str, float] = {}
        """By endpoint, what the least served had been served when it was last chosen for: who comes starts there."""
        self.owed = 0.0

    def share_of(self, ticket: Ticket) -> _Share:
        """The share of a request's tenant, which joins where it has none."""
        share = self.shares.get(ticket.tenant)
        if share is None:
            reached = max((self.reached.get(endpoint, 0.0) for endpoint in ticket.endpoints), default=0.0)
            served = max(self.remembered.pop(ticket.tenant, 0.0), reached)
            share = self.shares[ticket.tenant] = _Share(ticket.tenant, abs(ticket.number), served)
        return share

    def leaves(self, share: _Share) -> None:
        """Nothing of a tenant waits any more."""
        del self.shares[share.tenant]
        self.remembered[share.tenant] = share.served
        if len(self.remembered) > MOST_REMEMBERED:
            del self.remembered[next(iter(self.remembered))]
        if not self.shares:
            self.owed = 0.0

    def may_go(self, endpoint_id: str) -> bool:
        """Whether anybody may be served there."""
        return any(endpoint_id in group for share in self.shares.values() for group, _ in share.lines)

    def able(self, endpoint_id: str) -> list[_Share]:
        """The tenants that have something for it, the least served first, no more than are looked at."""
        found = []
        for share in self.shares.values():
            for group, _ in share.lines:
                if endpoint_id in group:
                    found.append(share)
                    break
        return nsmallest(WINDOW, found, key=_turn)


class Order:
    """All that wait. Plain calls; what time it is plays no part."""

    def __init__(self, rules: OrderRules) -> None:
        self._rules = rules
        self._classes = [_Class() for _ in rules.classes]
        self._waiting: dict[Ticket, None] = {}
        self._number = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[Ticket]:
        """In no particular order."""
        return iter(self._waiting)

    def __contains__(self, ticket: Ticket) -> bool:
        return ticket in self._waiting

    def put(self, ticket: Ticket) -> None:
        """It waits from now on, behind the others of its tenant, or before those that have not had their turn yet."""
        self._number += 1
        ticket.number = self._number - _BEFORE_ALL if ticket.again else self._number
        self._waiting[ticket] = None
        self._line_up(ticket)

    def remove(self, ticket: Ticket) -> bool:
        """It waits no longer. False where it did not."""
        if ticket not in self._waiting:
            return False
        del self._waiting[ticket]
        queued = self._classes[ticket.rank]
        share = queued.shares[ticket.tenant]
        line = share.lines[_group(ticket)]
        del line[ticket]
        line.tokens -= ticket.least_cost
        if not line:
            del share.lines[_group(ticket)]
        if not share.lines:
            queued.leaves(share)
        return True

    def waits_for(self, endpoint_id: str) -> bool:
        """Whether somebody may go there. O(tenants that wait)."""
        return any(queued.may_go(endpoint_id) for queued in self._classes)

    def next_for(self, endpoint_id: str) -> Pick | None:
        """Whose turn it is at an endpoint with room; it waits no longer, and counts. None: nobody may go there."""
        ranks = [rank for rank, queued in enumerate(self._classes) if queued.may_go(endpoint_id)]
        if not ranks:
            return None
        owed = self._owed_rank(ranks, endpoint_id)
        queued = self._classes[ranks[0] if owed is None else owed]
        ticket, went = self._choose(queued, endpoint_id)
        cost = ticket.cost_at(endpoint_id)
        queued.shares[ticket.tenant].served += cost / self._rules.weight_of(ticket.tenant)
        self._owe(ranks, ticket.rank, cost)
        self.remove(ticket)
        self._tell(ticket, endpoint_id)
        return Pick(ticket, endpoint_id, went if owed is None else Went.SHARE, cost)

    def regroup(self, endpoints_of: Callable[[Ticket], frozenset[str]]) -> None:
        """Who may serve what waits has changed. O(waiting log waiting)."""
        for queued in self._classes:
            for share in queued.shares.values():
                share.lines.clear()
        for ticket in sorted(self._waiting, key=_number):
            ticket.serve_at(endpoints_of(ticket))
            self._line_up(ticket)

    def ahead_of(self, ticket: Ticket) -> int:
        """Uncached tokens that go before one that would come now, as far as their endpoints are its own.

        Of higher classes all; of its own class of each tenant no more, by weight, than of its own tenant. At least so
        many where all that comes later is left out. O(tenants that wait).
        """
        weight_of, ours = self._rules.weight_of, ticket.endpoints
        higher = sum(
            share.tokens_for(ours) for queued in self._classes[: ticket.rank] for share in queued.shares.values()
        )
        shares = dict(self._classes[ticket.rank].shares)
        share = shares.pop(ticket.tenant, None)
        own = 0 if share is None else share.tokens_for(ours)
        fair = (own + ticket.least_cost) / weight_of(ticket.tenant)
        beside = sum(min(one.tokens_for(ours), fair * weight_of(name)) for name, one in shares.items())
        return higher + own + int(beside)

    def _tell(self, sent: Ticket, endpoint_id: str) -> None:
        """A prompt is sent to an endpoint: those that wait and begin alike have their beginning there from now on."""
        if not sent.hashes:
            return
        for ticket in islice(self._waiting, MOST_TOLD):
            if ticket.begins_as(sent) and endpoint_id in ticket.endpoints:
                tokens = max(ticket.cached.get(endpoint_id, 0), ticket.half_tokens)
                line = self._classes[ticket.rank].shares[ticket.tenant].lines[_group(ticket)]
                line.tokens -= ticket.least_cost
                ticket.cached = {**ticket.cached, endpoint_id: tokens}
                ticket.serve_at(ticket.endpoints)
                line.tokens += ticket.least_cost

    def _line_up(self, ticket: Ticket) -> None:
        lines, group = self._classes[ticket.rank].share_of(ticket).lines, _group(ticket)
        line = lines.get(group)
        if line is None:
            line = lines[group] = _Line()
        line[ticket] = None
        line.tokens += ticket.least_cost

    def _owed_rank(self, ranks: Sequence[int], endpoint_id: str) -> int | None:
        """The first of the lower classes that is owed its next request."""
        for rank in ranks[1:]:
            queued = self._classes[rank]
            first = queued.able(endpoint_id)[0].first_for(endpoint_id)
            if first is not None and queued.owed >= first.cost_at(endpoint_id):
                return rank
        return None

    def _owe(self, ranks: Sequence[int], served_rank: int, cost: int) -> None:
        """Of the classes that wait for the same endpoint, those below the one that was served are owed their shares."""
        served = self._classes[served_rank]
        served.owed = max(served.owed - cost, 0.0)
        for rank in ranks:
            if rank > served_rank:
                self._classes[rank].owed += cost * self._rules.classes[rank].share

    def _choose(self, queued: _Class, endpoint_id: str) -> tuple[Ticket, Went]:
        """Who of a class goes, of which somebody may; those that it passes are noted."""
        rules, able = self._rules, queued.able(endpoint_id)
        least, rightful = able[0].served, able[0].first_for(endpoint_id)
        assert rightful is not None
        queued.reached[endpoint_id] = max(queued.reached.get(endpoint_id, 0.0), least)
        if rightful.passed >= rules.most_passed:
            return rightful, Went.IN_ORDER
        near = [share for share in able if share.served <= least + rules.quantum]
        windows = [share.window_for(endpoint_id, rules.most_passed) for share in near]
        chosen = min((ticket for window in windows for ticket in window), key=lambda one: one.fit(endpoint_id).value)
        if chosen is rightful:
            return rightful, Went.IN_ORDER
        rightful.passed += 1
        for ticket in next(window for window in windows if chosen in window):
            if ticket is chosen:
                break
            ticket.passed += ticket is not rightful
        return chosen, Went.PREFIX


def _group(ticket: Ticket) -> _Group:
    return ticket.endpoints, ticket.again


def _number(ticket: Ticket) -> int:
    return ticket.number


def _turn(share: _Share) -> tuple[float, int]:
    return share.served, share.since
