"""Splitting as the dispatcher asks for it: prepare an attempt, send its legs, and give up what came to nothing.

    decision ──prepared──> no split pays                     the attempt goes on as if there were no such thing
                     │──── legs one after the other ──> handed over ──> decode leg, with what was handed over
                     │          └── failed: another P; refused, ended, nothing handed: one endpoint does both
                     `──── legs at once ──beside──> both are sent; an error of one ends the other

A decode leg that failed before an engine was told of what was handed over is tried at another, with the same; else the
prompt is computed once more, which now finds itself cached.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from backends import NoEndpoint, UpstreamError
from backends.disaggregated import Meeting
from billing import PREFILLED
from gateway.disaggregation.aside import PairIds, SetAside
from gateway.disaggregation.legs import IN_VAIN, LegOutcome, LegParts, PrefillLegs
from gateway.disaggregation.releasing import Releaser
from gateway.disaggregation.weighing import Pair, Weighing
from gateway.edge.upstream import upstream_headers
from gateway.exchange import Exchange, FirstBytes
from gateway.scheduling import Decision, SplitReason
from gateway.split_state import DecodeSide, Split

REFUSED_GRACE_S: Final = 5.0
"""How long a decode leg may take to refuse what the prefill leg was refused, so that the client gets its answer."""
VERDICT_S: Final = 0.25
"""How long a prefill leg may take to say that it is the one that failed, after the decode leg has."""
_ROOM_BITS: Final = 63
"""Of the number by which two engines meet: what fits into a signed integer of 64."""


class PrefillFailed(Exception):
    """A prefill leg failed while its decode leg was under way."""

    def __init__(self, endpoint_id: str) -> None:
        super().__init__(f"endpoint {endpoint_id} did not compute the prompt")
        self.endpoint_id = endpoint_id


@dataclass(frozen=True, slots=True)
class SplitterParts:
    """The objects that splitting works with."""

    weighing: Weighing
    legs: LegParts
    rng: random.Random
    aside: SetAside


class Splitter:
    """One per process. `releaser` must run beside the requests."""

    def __init__(self, parts: SplitterParts) -> None:
        self._parts = parts
        self._weighing = parts.weighing
        self._fleet = parts.legs.fleet
        self._metrics = parts.legs.metrics
        self._legs = PrefillLegs(parts.legs)
        self.releaser = Releaser(parts.legs, self._legs, self._fleet.is_up)
        self._aside = parts.aside

    @property
    def is_needed(self) -> bool:
        """Whether there is anything to split between: one comparison in a fleet whose endpoints all do both."""
        return self._fleet.roles.are_split

    def answered(self, exchange: Exchange, decision: Decision) -> None:
        """A request has its answer, and no error: so it was by others that it failed before."""
        pair = _pair_of(decision)
        if pair is not None and self._are_up(pair):
            self._aside.went_well(pair)
        for failed, sent_s in exchange.failed_pairs:
            if failed != pair and self._are_up(failed):
                self._aside.failed(failed, sent_s)

    def _are_up(self, pair: PairIds) -> bool:
        """Of who has left the fleet meanwhile nothing is kept; who is down is left anyway."""
        return all(map(self._fleet.is_up, pair))

    async def prepared(self, exchange: Exchange, decision: Decision, failed: set[str]) -> Decision:
        """The decision for the next attempt: with a split where that pays, its prompt handed over by then unless both
        legs go at once. Adds to `failed` who could not compute the prompt.

        Raises `NoEndpoint` where nobody can serve it, alone or together.
        """
        if exchange.carried is not None:  # another goes on with what was said already
            return self._alone(exchange, decision, failed)
        if exchange.split is not None:
            pair = self._once_more(exchange, decision, exchange.split)
            if pair is not None:
                return pair.decision
            self.give_up(exchange)
        outcome: LegOutcome | None = None
        if exchange.was_spared and self._weighing.cheapest_alone(decision) is not None:
            return self._unsplit(exchange, decision, SplitReason.DECODE_FAILED, failed)
        while outcome in (None, LegOutcome.FAILED):
            pair_or_why = self._weighing.of(exchange, decision, failed, self._aside.now(exchange.failed_pairs))
            if isinstance(pair_or_why, SplitReason):
                why = pair_or_why if outcome is None else SplitReason.PREFILL_FAILED
                return self._unsplit(exchange, decision, why, failed)
            exchange.split = split = self._begun(exchange, pair_or_why)
            exchange.decision = pair_or_why.decision
            if split.handover.is_concurrent:
                self._metrics.decisions(split.part.reason.value).inc()
                return pair_or_why.decision
            outcome = await self._led(exchange, split, failed)
            if outcome is LegOutcome.HANDED:
                self._metrics.decisions(split.part.reason.value).inc()
                return pair_or_why.decision
        return self._unsplit(exchange, decision, SplitReason.PREFILL_FAILED, failed)

    async def beside(
        self, exchange: Exchange, split: Split, decode_leg: Callable[[], Awaitable[FirstBytes]]
    ) -> FirstBytes:
        """Send both legs at once; the answer of the decode leg once the prefill leg was read to its end.

        Raises `PrefillFailed`, or what the decode leg raises.
        """
        found = None
        try:
            async with asyncio.TaskGroup() as group:
                leg = group.create_task(self._lead_beside(exchange, split))
                found = await decode_leg()
                if found[0].status >= 500:
                    await asyncio.wait({leg}, timeout=VERDICT_S)
                if found[0].status >= 400:
                    leg.cancel()  # nobody fetches what it computes
        except BaseException as error:
            if found is not None:
                found[0].abort()
            if isinstance(error, BaseExceptionGroup):
                raise _first(error) from None
            raise
        return found

    def give_up(self, exchange: Exchange) -> None:
        """The split of an attempt that failed goes no further; what was computed for it was computed in vain."""
        split, exchange.split = exchange.split, None
        if split is None:
            return
        split.end()
        if split.is_handed:
            self._metrics.prefills(split.endpoint_id, "in_vain").inc()
            exchange.mark_attempt(split.endpoint_id, PREFILLED, IN_VAIN)

    def _once_more(self, exchange: Exchange, decision: Decision, split: Split) -> Pair | None:
        """Another who answers, where what was handed over still waits for one."""
        if not split.waits_for_decode:
            return None
        pair = self._weighing.again(decision, split.part, split.asked, self._aside.now())
        if pair is None:
            return None
        split.part = pair.part
        self._seat_decode(exchange, split, pair)
        return pair

    def _unsplit(self, exchange: Exchange, decision: Decision, why: SplitReason, failed: set[str]) -> Decision:
        self._metrics.decisions(why.value).inc()
        self.give_up(exchange)
        return self._alone(exchange, decision, failed)

    def _alone(self, exchange: Exchange, decision: Decision, failed: set[str]) -> Decision:
        alone = self._weighing.cheapest_alone(decision)
        if alone is None:
            raise NoEndpoint(exchange.request.model, sorted(failed))
        return alone

    def _begun(self, exchange: Exchange, pair: Pair) -> Split:
        fleet, chosen = self._fleet, pair.part.prefill
        place, headers = fleet.roles.place(chosen.endpoint_id), upstream_headers(exchange.request)
        number = self._parts.rng.getrandbits(_ROOM_BITS)
        split = Split(
            part=pair.part,
            asked=pair.asked,
            handover=pair.handover,
            meeting=Meeting(number, place.host, place.bootstrap_port, chosen.rank),
            sent=fleet.sent(chosen.endpoint_id, exchange.plan, exchange.match, exchange.matched_s, chosen.rank),
            seat=fleet.reserve(chosen.endpoint_id, pair.asked.queue_tokens, 1, chosen.rank),
            decode=DecodeSide(pair.decode, None, exchange.plan.chain.block_size),
            decode_seat=None,
            free=lambda left: self.releaser.put(exchange.request, left),
            headers=headers if exchange.trace is None else exchange.trace.attempt(headers),
        )
        self._seat_decode(exchange, split, pair)
        exchange.end_turn()
        return split

    def _seat_decode(self, exchange: Exchange, split: Split, pair: Pair) -> None:
        decode, facts = pair.decode, self._fleet.facts_of(pair.decode.endpoint_id)
        version = None if facts is None else facts.version
        block = None if facts is None else facts.block_size
        split.decode = DecodeSide(decode, version, max(block or 1, exchange.plan.chain.block_size))
        output_tokens = exchange.request.expected_output_tokens
        split.decode_seat = self._fleet.reserve(decode.endpoint_id, 0, output_tokens, decode.rank)

    async def _led(self, exchange: Exchange, split: Split, failed: set[str]) -> LegOutcome:
        outcome = await self._legs.run(exchange, split)
        exchange.legs_s += split.legs_s
        exchange.request.marks.prefilled_s = self._parts.legs.clocks.monotonic()
        if outcome is LegOutcome.NOTHING_HANDED:
            self._aside.hands_nothing_over(split.endpoint_id)
        if outcome is not LegOutcome.HANDED:
            failed.add(split.endpoint_id)
            self.give_up(exchange)
        return outcome

    async def _lead_beside(self, exchange: Exchange, split: Split) -> None:
        outcome = await self._legs.run(exchange, split)
        if outcome is LegOutcome.REFUSED:
            await asyncio.sleep(REFUSED_GRACE_S)
        if outcome is not LegOutcome.HANDED:
            raise PrefillFailed(split.endpoint_id)


def may_be_anothers_fault(exchange: Exchange, decision: Decision) -> bool:
    """Whether an answer of 5xx may be about what was handed over, and not about who answered."""
    return decision.split is not None and not exchange.was_spared


def failed_together(exchange: Exchange, decision: Decision) -> None:
    """Who answers could not go on with what it was handed, or did not in time: that may be either's fault."""
    pair = _pair_of(decision)
    if pair is not None:
        exchange.failed_pairs.append((pair, exchange.dispatched_s))


def ruled_out(exchange: Exchange, decision: Decision) -> set[str]:
    """Who is not asked again after an answer of 5xx: of a split request both, for now (`reinstated`)."""
    if decision.split is None:
        return {decision.endpoint_id}
    both = {decision.endpoint_id, decision.split.prefill.endpoint_id}
    if not exchange.was_spared:
        exchange.spared |= both
    return both


def reinstated(exchange: Exchange, failed: set[str]) -> bool:
    """Nobody is left to ask: take those out of `failed` who may have failed through another. Once a request."""
    if not exchange.spared:
        return False
    failed -= exchange.spared
    exchange.spared, exchange.was_spared = frozenset(), True
    return True


def _pair_of(decision: Decision) -> PairIds | None:
    return None if decision.split is None else (decision.split.prefill.endpoint_id, decision.endpoint_id)


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The failure that ended both legs: that of the decode leg, where both have failed by themselves."""
    leaves = list(_leaves(group))
    return next((one for one in leaves if isinstance(one, UpstreamError)), leaves[0])


def _leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    found: list[BaseException] = []
    for one in group.exceptions:
        found += _leaves(one) if isinstance(one, BaseExceptionGroup) else [one]
    return found
