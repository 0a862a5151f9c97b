"""Whether a request is split, and between whom: candidates of both kinds, and the seconds of both ways.

decision (who would do both) ──┐
who computes prompts ──chosen by prefix cost──> P ──┤ same engine, same version
who answers ──────────by load────────────────> D ──┘──> split terms ──> pays?
"""

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from backends import EndpointFacts
from backends.disaggregated import Handover, Role, handover_of
from gateway.disaggregation.aside import NOBODY, Aside
from gateway.exchange import Exchange
from gateway.fleet import Fleet
from gateway.receipts import Receipts
from gateway.scheduling import (
    Candidate,
    Chooser,
    Decision,
    Demand,
    Question,
    SplitPart,
    SplitReason,
    as_handed_over,
    behind,
    carried_tokens,
    cheapest_decode,
    split_terms,
)
from gateway.transfers import Transfers
from gateway.types import Reason, Route

_ROUTES: Final = frozenset({Route.CHAT, Route.COMPLETIONS})
_NOT_ONE_PROMPT: Final = frozenset({Reason.PROMPT_BATCH, Reason.PREVIOUS_RESPONSE, Reason.NO_KV})
_Kind = tuple[str, str | None]
"""Engine and version: caches of two builds do not fit each other."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Who computes the prompt and who answers; `decision` is for the decode leg."""

    decision: Decision
    asked: Decision
    decode: Candidate
    handover: Handover

    @property
    def part(self) -> SplitPart:
        """What of the decision is about the split."""
        assert self.decision.split is not None, "a pair is a split"
        return self.decision.split


@dataclass(frozen=True, slots=True)
class WeighingParts:
    """What the weighing goes by. `choose` keeps what it keeps for prompts that are computed for others, and for those
    alone; `is_full` names endpoints that take nothing more; `chance` is uniform in [0, 1) at each call."""

    fleet: Fleet
    receipts: Receipts
    transfers: Transfers
    choose: Chooser
    near_tie_s: float
    chance: Callable[[], float]
    full: Callable[[], AbstractSet[str]]


class Weighing:
    """Plain calls, no I/O. O(endpoints)."""

    def __init__(self, parts: WeighingParts) -> None:
        self._parts = parts

    def answers_alone(self, candidate: Candidate) -> bool:
        """Whether it can compute a prompt itself."""
        return self._parts.fleet.roles.answers_alone(
            candidate.endpoint_id, self._parts.fleet.facts_of(candidate.endpoint_id)
        )

    def of(self, exchange: Exchange, decision: Decision, failed: AbstractSet[str], aside: Aside) -> Pair | SplitReason:
        """The pair that is cheaper than who was chosen to do both, or why there is none."""
        alone = self.cheapest_alone(decision)
        why = _unsplittable(exchange) or (None if alone is None else _not_worth_it(exchange))
        if why is not None:
            return why
        found = self._among(exchange, decision, alone, failed, aside)
        if alone is None and isinstance(found, SplitReason):  # it is a pair or nobody
            return self._among(exchange, decision, alone, failed, NOBODY)
        return found

    def _among(
        self,
        exchange: Exchange,
        decision: Decision,
        alone: Decision | None,
        failed: AbstractSet[str],
        aside: Aside,
    ) -> Pair | SplitReason:
        prefilling = self._prefilling(exchange, frozenset({*failed, *aside.endpoints, *self._parts.full()}))
        answering: dict[_Kind | None, list[Candidate]] = {}
        for one in decision.candidates:
            if one.endpoint_id not in aside.endpoints and self._answers_for_others(one, exchange):
                answering.setdefault(self._kind_of(one), []).append(one)
        able = [one for one in prefilling if self._partners(one, answering, aside)]
        if not able:
            return SplitReason.NO_PREFILL_ENDPOINT if answering or not prefilling else SplitReason.NO_DECODE_ENDPOINT
        asked = self._chosen(exchange, decision, able)
        pair = self._paired(exchange, decision, asked, self._partners(asked.chosen, answering, aside), alone)
        return pair if pair.part.terms.pays else SplitReason.DEARER

    def _partners(
        self, prefill: Candidate, answering: Mapping[_Kind | None, list[Candidate]], aside: Aside
    ) -> list[Candidate]:
        """Who may answer for one that computes the prompt."""
        of_kind = answering.get(self._kind_of(prefill), [])
        if not aside.pairs:
            return of_kind
        return [one for one in of_kind if (prefill.endpoint_id, one.endpoint_id) not in aside.pairs]

    def again(self, decision: Decision, part: SplitPart, asked: Decision, aside: Aside) -> Pair | None:
        """Another who answers, for what was handed over already; None where there is none."""
        kind = self._kind_of(part.prefill)
        alike = [one for one in decision.candidates if self._is_decode(one) and self._kind_of(one) == kind]
        able = self._partners(part.prefill, {kind: alike}, aside)
        if not able:
            return None
        return self._handing_over(decision, asked, self._who_answers(able, decision.demand), part.reason)

    def cheapest_alone(self, decision: Decision) -> Decision | None:
        """The decision, among those who can compute the prompt themselves; None where nobody can. O(candidates)."""
        if self.answers_alone(decision.chosen):
            return decision
        costs = decision.costs_s or [0.0] * len(decision.candidates)
        able = [at for at, one in enumerate(decision.candidates) if self.answers_alone(one)]
        if not able:
            return None
        return replace(decision, chosen=decision.candidates[min(able, key=lambda at: costs[at])])

    def _prefilling(self, exchange: Exchange, without: frozenset[str]) -> list[Candidate]:
        fleet, request = self._parts.fleet, exchange.request
        found = fleet.prefill_candidates(request, exchange.plan, exchange.match, without)
        if fleet.adapters is not None:
            found = fleet.adapters.weighed(request, found, fleet.snapshot())
        return [one for one in found if self._handover_at(one) is not None]

    def _answers_for_others(self, candidate: Candidate, exchange: Exchange) -> bool:
        return self._is_decode(candidate) and (
            exchange.request.route in _ROUTES
            # Translated, it is a chat; in its own dialect nobody says what a split would look like.
            or not self._parts.fleet.speaks(candidate.endpoint_id, exchange.request)
        )

    def _is_decode(self, candidate: Candidate) -> bool:
        return self._parts.fleet.roles.of(candidate.endpoint_id) is Role.DECODE

    def _handover_at(self, candidate: Candidate) -> Handover | None:
        facts = self._parts.fleet.facts_of(candidate.endpoint_id)
        return None if facts is None else handover_of(facts.engine)

    def _kind_of(self, candidate: Candidate) -> _Kind | None:
        facts: EndpointFacts | None = self._parts.fleet.facts_of(candidate.endpoint_id)
        return None if facts is None else (facts.engine, facts.version)

    def _chosen(self, exchange: Exchange, decision: Decision, able: list[Candidate]) -> Decision:
        """Who computes the prompt, as if nobody else were there."""
        parts, plan = self._parts, exchange.plan
        demand = replace(
            decision.demand,
            expected_output_tokens=1,
            behind=behind(able, parts.receipts.recent_work.usual_tokens),
        )
        return parts.choose(
            Question(
                able,
                {},
                demand,
                chance=parts.chance,
                refine=lambda candidate: parts.fleet.refined(candidate, plan, exchange.match),
                no_affinity=plan.no_affinity,
                chain=plan.chain,
            )
        )

    def _paired(
        self, exchange: Exchange, decision: Decision, asked: Decision, able: list[Candidate], alone: Decision | None
    ) -> Pair:
        refined = [self._parts.fleet.refined(one, exchange.plan, exchange.match) for one in able]
        decode = self._who_answers(refined, decision.demand)
        reason = SplitReason.NEEDED if alone is None else SplitReason.PAYS
        return self._handing_over(decision, asked, decode, reason, None if alone is None else alone.chosen)

    def _who_answers(self, able: list[Candidate], demand: Demand) -> Candidate:
        parts = self._parts
        return cheapest_decode(able, demand, parts.transfers.of, parts.near_tie_s, parts.chance())

    def _handing_over(
        self,
        decision: Decision,
        asked: Decision,
        decode: Candidate,
        reason: SplitReason,
        alone: Candidate | None = None,
    ) -> Pair:
        demand, transfer = decision.demand, self._parts.transfers.of(decode.endpoint_id)
        terms = split_terms(
            (asked.chosen, replace(asked.demand, expected_output_tokens=demand.expected_output_tokens)),
            (decode, transfer),
            None if alone is None else (alone, demand),
        )
        way = self._handover_at(asked.chosen)
        assert way is not None, "only those that have one are asked"
        part = SplitPart(asked.chosen, terms, carried_tokens(decode, demand), reason)
        chosen = as_handed_over(decode, demand.prompt_tokens, asked.expected_cached_tokens)
        split = replace(decision, chosen=chosen, reason=asked.reason, split=part, copy_cost_s=asked.copy_cost_s)
        return Pair(replace(split, copy_saved_s=asked.copy_saved_s), asked, decode, way)


def _unsplittable(exchange: Exchange) -> SplitReason | None:
    """What no pair of engines can do."""
    request = exchange.request
    if request.choices > 1 or exchange.owner is not None or exchange.plan.no_affinity in _NOT_ONE_PROMPT:
        return SplitReason.NOT_SPLITTABLE
    if request.route is Route.COMPLETIONS and b'"echo"' in request.body:  # with the prompt's own log probabilities
        return SplitReason.NOT_SPLITTABLE
    if b'"use_beam_search"' in request.body:  # its beams are requests of their own, which hand nothing over
        return SplitReason.NOT_SPLITTABLE
    return None if request.route in _ROUTES or request.translatable else SplitReason.NOT_SPLITTABLE


def _not_worth_it(exchange: Exchange) -> SplitReason | None:
    """What one engine does as well, as far as is known."""
    unknown = exchange.plan.no_affinity
    if unknown is Reason.SHORT_PROMPT:
        return SplitReason.SHORT_PROMPT
    return None if unknown is None else SplitReason.NOT_SPLITTABLE
