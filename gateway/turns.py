"""A request's turn: whether it has to wait for an endpoint, as what, and what it finds when it is called.

    all that may serve it are full --class, cost, patience--> Gate.wait --> Turn --> the index is asked anew --> decide
                                                                `- who may serve it has changed: looked at again

What it waits with is what was known when it came; where it is called to, its prefix is looked up once more, since in
seconds others have computed it, or it was evicted.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from backends import NoEndpoint
from gateway.errors import ModelNotFound
from gateway.exchange import Clocks, Exchange
from gateway.fleet import Fleet
from gateway.queueing import Ticket
from gateway.queueing.asking import ClassBook, patience_s
from gateway.queueing.engine_priority import engine_priority, takes_priority
from gateway.queueing.fullness import Bound
from gateway.queueing.gate import Gate
from gateway.scheduling import Candidate, Filtered
from gateway.types import InferenceRequest
from prefix_index import SharedIndex

MOST_OUTPUT_TOKENS: Final = 2048
"""What an answer counts for at most: many clients set a limit that their answers never come near."""
_NOBODY: Final[frozenset[str]] = frozenset()


@dataclass(frozen=True, slots=True)
class TurnParts:
    """The objects that turns come about with. An answer counts for `output_share` of its expected tokens."""

    gate: Gate
    classes: ClassBook
    fleet: Fleet
    index: SharedIndex
    clocks: Clocks
    output_share: float = 0.25
    told: set[str] = field(default_factory=set)
    """Endpoints whose engines are told of priorities."""


class Turns:
    """Of one process."""

    def __init__(self, parts: TurnParts) -> None:
        self._parts = parts
        self._gate = parts.gate

    @property
    def gate(self) -> Gate:
        """What they wait at."""
        return self._gate

    def join(self, endpoint_id: str, bound: Bound, *, told: bool) -> None:
        """An endpoint has this bound from now on; `told`: its engine is told of priorities."""
        self._gate.bind(endpoint_id, bound)
        (self._parts.told.add if told else self._parts.told.discard)(endpoint_id)

    def removed(self, endpoint_id: str) -> None:
        """One is none of the fleet any more."""
        self._gate.unbind(endpoint_id)
        self._parts.told.discard(endpoint_id)

    def are_crowded(self) -> bool:
        """Whether some endpoint is full. 0.3 µs; else there is nothing to do for a request."""
        return self._gate.is_crowded()

    async def come(self, exchange: Exchange) -> None:
        """Wait until there is room for a request, where there is none; it has its `turn` then.

        Raises what is told a client that is not to wait, or not any longer. What is held for it is given back then.
        """
        try:
            await self._come(exchange, _NOBODY, again=False)
        except BaseException:
            exchange.end_turn()
            if exchange.held is not None:
                exchange.held.give_back()
            raise

    async def come_again(self, exchange: Exchange, failed: frozenset[str]) -> None:
        """The same after an attempt that failed: it had its turn, and goes before the others of its tenant."""
        await self._come(exchange, failed, again=True)

    def with_room(
        self, exchange: Exchange, candidates: list[Candidate], filtered: dict[str, Filtered]
    ) -> list[Candidate]:
        """Where the request may go now: where its turn is, else where there is room. O(candidates)."""
        turn, full = exchange.turn, self._gate.full
        if turn is None and not full:
            return candidates
        if turn is not None:
            roomy = [one for one in candidates if one.endpoint_id == turn.endpoint_id]
        else:
            roomy = [one for one in candidates if one.endpoint_id not in full]
        if not roomy:  # never so: who comes here has its turn, or found room
            return candidates
        others = {one.endpoint_id for one in candidates}.difference(one.endpoint_id for one in roomy)
        filtered.update(dict.fromkeys(others, Filtered.FULL))
        return roomy

    def priority_at(self, endpoint_id: str, request: InferenceRequest) -> float | None:
        """What an endpoint's engine is told of a request's priority; None: nothing."""
        fleet = self._parts.fleet
        if endpoint_id not in self._parts.told:
            return None
        if not takes_priority(request.route, natively=fleet.speaks(endpoint_id, request)):
            return None
        facts = fleet.seen(endpoint_id).facts
        return None if facts is None else engine_priority(facts.priority, self._parts.classes.rank_of(request))

    async def _come(self, exchange: Exchange, failed: frozenset[str], *, again: bool) -> None:
        parts, gate, request = self._parts, self._gate, exchange.request
        if not self._has_to(exchange, failed):
            return
        began_s = parts.clocks.monotonic()
        rank = parts.classes.rank_of(request)
        longest_s = min(parts.classes.classes[rank].max_wait_s, patience_s(request.headers))
        until_s = (began_s if again else request.started_s) + longest_s
        exchange.waits, first = True, not again
        while self._has_to(exchange, failed):
            ticket = self._ticket(exchange, rank, self._who_may(exchange, failed))
            ticket.again = not first
            turn = await gate.wait(ticket, until_s, lambda: self._who_may(exchange, failed))
            first = False
            if turn is not None:
                exchange.turn = turn
                exchange.match = await parts.index.match(exchange.plan.chain)
                if turn.endpoint_id in self._who_may(exchange, failed):
                    break
                exchange.end_turn()
        now_s = parts.clocks.monotonic()
        exchange.waits, exchange.matched_s = False, now_s
        exchange.queued_s += now_s - began_s
        if again:
            request.marks.attempt_failed(now_s)
        else:
            request.marks.queued_s = now_s

    def _has_to(self, exchange: Exchange, failed: frozenset[str]) -> bool:
        """Whether all are full that may serve a request; where nobody may, there is nothing to wait for."""
        may = self._who_may(exchange, failed)
        return bool(may) and self._gate.full.issuperset(may)

    def _who_may(self, exchange: Exchange, failed: frozenset[str]) -> Mapping[str, int]:
        """Who may serve a request now, and how many tokens of its prompt each has. Never raises."""
        try:
            able, _ = self._parts.fleet.candidates(
                exchange.request, exchange.plan, exchange.match, failed, exchange.owner
            )
        except (NoEndpoint, ModelNotFound):
            return {}
        known: dict[str, int] = {}
        for one in able:  # of several ranks, the one that has most
            known[one.endpoint_id] = max(one.known_tokens, known.get(one.endpoint_id, 0))
        return known

    def _ticket(self, exchange: Exchange, rank: int, cached: Mapping[str, int]) -> Ticket:
        request, parts = exchange.request, self._parts
        output = min(request.expected_output_tokens, MOST_OUTPUT_TOKENS) * request.choices
        return Ticket(
            tenant=request.tenant.id,
            rank=rank,
            prompt_tokens=exchange.plan.chain.prompt_tokens,
            endpoints=frozenset(cached),
            cached=cached,
            output_tokens=int(min(output, MOST_OUTPUT_TOKENS * 64) * parts.output_share),
            body_bytes=len(request.body),
            hashes=exchange.plan.chain.hashes,
            block_size=exchange.plan.chain.block_size,
        )
