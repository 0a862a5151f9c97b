"""The choice of an endpoint: least cost in seconds, with a little chance among near-ties. Pure.

    candidates -> terms -> best cost
                             |-- within near_tie_s of it: chosen among at random, the cheaper the likelier
                             `-- the others: never

Without the chance, replicas that see the same figures would all pick the same endpoint in the same instant (herding).
The chance is an argument: the same arguments give the same decision.
"""

from collections.abc import Mapping, Sequence

from gateway.scheduling.cost import terms_of
from gateway.scheduling.types import Candidate, Decision, Filtered, Terms
from gateway.types import Reason


def decide_by_cost(  # noqa: PLR0913 - the candidates, and what a decision rests on
    candidates: Sequence[Candidate],
    filtered: Mapping[str, Filtered],
    *,
    prompt_tokens: int,
    expected_output_tokens: int,
    near_tie_s: float,
    chance: float,
    no_affinity: Reason | None = None,
) -> Decision:
    """The endpoint of least cost. `chance` is uniform in [0, 1); `no_affinity` names why prefixes are not known.

    `candidates` must not be empty. O(candidates).
    """
    terms = {c.endpoint_id: terms_of(c, prompt_tokens, expected_output_tokens) for c in candidates}
    chosen = _near_best(candidates, terms, near_tie_s, chance)
    reason = no_affinity or _reason(chosen, candidates)
    return _decision(chosen, prompt_tokens, reason, terms, filtered)


def decide_in_turn(
    candidates: Sequence[Candidate],
    filtered: Mapping[str, Filtered],
    *,
    prompt_tokens: int,
    turn: int,
) -> Decision:
    """Round robin: the `turn`-th candidate, whatever it holds and however busy it is."""
    terms = {c.endpoint_id: terms_of(c, prompt_tokens, 0) for c in candidates}
    return _decision(candidates[turn % len(candidates)], prompt_tokens, Reason.POLICY, terms, filtered)


def _near_best(
    candidates: Sequence[Candidate], terms: Mapping[str, Terms], near_tie_s: float, chance: float
) -> Candidate:
    best_s = min(term.cost_s for term in terms.values())
    near = [c for c in candidates if terms[c.endpoint_id].cost_s - best_s <= near_tie_s]
    # Weights from near_tie_s to twice that; all 1 where it is 0 and only equal costs are near.
    slack = [2 * near_tie_s - (terms[c.endpoint_id].cost_s - best_s) or 1.0 for c in near]
    point = chance * sum(slack)
    for candidate, weight in zip(near, slack, strict=True):
        point -= weight
        if point < 0:
            return candidate
    return near[-1]


def _reason(chosen: Candidate, candidates: Sequence[Candidate]) -> Reason:
    most = max(c.cached_tokens for c in candidates)
    if most == 0:
        return Reason.NO_PREFIX
    return Reason.PREFIX_HIT if chosen.cached_tokens == most else Reason.PREFIX_ELSEWHERE


def _decision(
    chosen: Candidate,
    prompt_tokens: int,
    reason: Reason,
    terms: Mapping[str, Terms],
    filtered: Mapping[str, Filtered],
) -> Decision:
    return Decision(
        endpoint_id=chosen.endpoint_id,
        expected_cached_tokens=chosen.cached_tokens,
        uncached_tokens=max(prompt_tokens - chosen.cached_tokens, 0),
        reason=reason,
        terms=terms,
        filtered=filtered,
    )
