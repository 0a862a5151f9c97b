"""The choice of an endpoint: least cost in seconds, with a little chance among near-ties. Pure.

    candidates -> terms -> best cost
                             |-- within near_tie_s of it: chosen among at random, the cheaper the likelier
                             `-- the others: never

Without the chance, replicas that see the same figures would all pick the same endpoint in the same instant (herding).
The chance is an argument: the same arguments give the same decision.
"""

from collections.abc import Mapping, Sequence

from gateway.scheduling.cost import costs_s
from gateway.scheduling.types import Candidate, Decision, Filtered
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
    costs = costs_s(candidates, prompt_tokens, expected_output_tokens)
    chosen = _near_best(candidates, costs, near_tie_s, chance)
    reason = no_affinity or _reason(chosen, candidates)
    return Decision(chosen, reason, candidates, filtered, prompt_tokens, expected_output_tokens)


def decide_in_turn(
    candidates: Sequence[Candidate],
    filtered: Mapping[str, Filtered],
    *,
    prompt_tokens: int,
    turn: int,
) -> Decision:
    """Round robin: the `turn`-th candidate, whatever it holds and however busy it is."""
    chosen = candidates[turn % len(candidates)]
    return Decision(chosen, Reason.POLICY, candidates, filtered, prompt_tokens, expected_output_tokens=0)


def _near_best(candidates: Sequence[Candidate], costs: Sequence[float], near_tie_s: float, chance: float) -> Candidate:
    worst_s = min(costs) + near_tie_s
    near = [(candidate, worst_s - cost) for candidate, cost in zip(candidates, costs, strict=True) if cost <= worst_s]
    # Weights from near_tie_s to twice that; all 1 where it is 0 and only equal costs are near.
    weights = [near_tie_s + slack or 1.0 for _, slack in near]
    point = chance * sum(weights)
    for (candidate, _), weight in zip(near, weights, strict=True):
        point -= weight
        if point < 0:
            return candidate
    return near[-1][0]


def _reason(chosen: Candidate, candidates: Sequence[Candidate]) -> Reason:
    most = max(c.cached_tokens for c in candidates)
    if most == 0:
        return Reason.NO_PREFIX
    return Reason.PREFIX_HIT if chosen.cached_tokens == most else Reason.PREFIX_ELSEWHERE
