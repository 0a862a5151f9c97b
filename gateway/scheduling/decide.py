"""The choice of an endpoint: least cost in seconds, with a little chance among near-ties. Pure.

    candidates at their best -> costs -> the best MOST_REFINED -> refined -> costs -> best
                                                     within near_tie_s of it: chosen among at random, the cheaper the
                                                     likelier; the others: never (but for `thrift`)

Refining, which says how likely it is that an endpoint still has what it is known to have had, only ever makes it
dearer. So who is not among the best at its best need not be looked at, and a decision among 500 costs little more than
one among `MOST_REFINED`. Equals are taken from a place that chance chooses, so that replicas look at different ones.

Without the chance, replicas that see the same figures would all pick the same endpoint in the same instant (herding).
The chance is an argument: the same arguments give the same decision.
"""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence

from gateway.scheduling.cost import costs_s
from gateway.scheduling.thrift import Thrift, cheapest
from gateway.scheduling.types import Candidate, Decision, Demand, Filtered
from gateway.types import Reason

MOST_REFINED = 32


def decide_by_cost(  # noqa: PLR0913 - the candidates, and what a decision rests on
    candidates: Sequence[Candidate],
    filtered: Mapping[str, Filtered],
    *,
    demand: Demand,
    near_tie_s: float,
    chance: float,
    no_affinity: Reason | None = None,
    refine: Callable[[Candidate], Candidate] = lambda candidate: candidate,
    thrift: Thrift | None = None,
) -> Decision:
    """The endpoint of least cost. `chance` is uniform in [0, 1); `no_affinity` names why prefixes are not known;
    `thrift` prefers who is cheaper an hour among those that are nearly as quick.

    `candidates` must not be empty; `refine` gives one as it is rather than at its best. O(candidates log candidates).
    """
    all_costs = costs_s(candidates, demand)
    best = _best(candidates, all_costs, chance)
    refined = [refine(candidates[at]) for at in best]
    costs = costs_s(refined, demand)
    frugal = None if thrift is None else cheapest(refined, costs, thrift)
    near, near_costs = (refined, costs) if frugal is None else frugal
    chosen = _near_best(near, near_costs, near_tie_s, chance)
    looked_at = list(candidates)
    for at, candidate, cost in zip(best, refined, costs, strict=True):
        looked_at[at], all_costs[at] = candidate, cost
    reason = no_affinity or _reason(chosen, refined)
    if frugal is not None and no_affinity is None and near_costs[near.index(chosen)] > min(costs) + near_tie_s:
        reason = Reason.CHEAPER
    return Decision(chosen, reason, looked_at, filtered, demand, all_costs)


def _best(candidates: Sequence[Candidate], costs: Sequence[float], chance: float) -> list[int]:
    """Where the `MOST_REFINED` cheapest stand, at their best; equals in order from a place that chance chooses."""
    everyone = len(candidates)
    if everyone <= MOST_REFINED:
        return list(range(everyone))
    dearest = sorted(costs)[MOST_REFINED - 1]  # five times as fast as sorting places by their costs
    first = int(chance * everyone)
    cheaper = [at for at, cost in enumerate(costs) if cost < dearest]
    equal = [at for at, cost in enumerate(costs) if cost == dearest]
    turn = bisect_left(equal, first)
    return cheaper + [*equal[turn:], *equal[:turn]][: MOST_REFINED - len(cheaper)]


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
