"""A decision, looked back at: what the chosen endpoint cost, and how much less another would have. Pure.

    decided        wait ──── prefill ──────────────── others' terms      from what the index and the loads said
    observed       |<─────────── TTFT ───────────>|                      from the dispatch to the first token
    in hindsight   wait ─────────────── prefill ─── others' terms        prefill by the cached tokens *reported*,
                                                                         wait the rest of the TTFT

    predicted TTFT   = wait + prefill, as decided
    prefill'         = prefill(prompt - reported, prompt)      as decided where nothing was reported
    wait'            = max(TTFT - prefill', 0)                 as decided where the TTFT is not known
    cost'            = the cost with wait' and prefill' in place of wait and prefill
    regret           = max(cost' - least cost of all the others as decided, 0)

Nobody knows what the others would have done, so they are taken at the costs that the decision saw: at their best where
it did not look closer. A decision that looked at all of them, and about which all was true, regrets no more than a
near-tie.

The seconds of `prefill'` come from the endpoint's `PerfModel`, as do the others' costs. So a model that is wrong about
all endpoints alike is no regret by itself: where it thinks them slower than they are, it can hide a wait (wait' is 0
then), and where it thinks them faster, what its prediction is short of is taken for a wait. That is why the error of
the prediction is measured beside the regret.
"""

import msgspec
from msgspec.structs import replace

from gateway.scheduling.cost import costs_s, terms_of
from gateway.scheduling.types import Decision, Terms


class Evidence(msgspec.Struct, frozen=True):
    """What came of a decision; None is unknown.

    `reported_cached_tokens` is the engine's word, in tokens of the same prompt that the decision was about. `ttft_s`
    runs from the dispatch to the chosen endpoint to the first token of its answer.
    """

    reported_cached_tokens: int | None = None
    ttft_s: float | None = None


class Hindsight(msgspec.Struct, frozen=True):
    """What was thought and what came of it, in seconds. `least_other_s` is None where there was no other endpoint."""

    predicted: Terms
    """The terms of the chosen endpoint, as decided."""
    actual: Terms
    """The same in hindsight."""
    least_other_s: float | None

    @property
    def predicted_ttft_s(self) -> float:
        """When the first token was thought to come."""
        return self.predicted.wait_s + self.predicted.adapter_load_s + self.predicted.prefill_s

    @property
    def regret_s(self) -> float:
        """How much less another endpoint would have cost; 0 where none would."""
        return 0.0 if self.least_other_s is None else max(self.actual.cost_s - self.least_other_s, 0.0)


def hindsight(decision: Decision, evidence: Evidence) -> Hindsight:
    """Look back at a decision. O(candidates), mostly in C where the decision has its costs (`with_costs`)."""
    chosen, prompt_tokens = decision.chosen, decision.prompt_tokens
    predicted = terms_of(chosen, decision.demand)
    cached_tokens: float | None = evidence.reported_cached_tokens
    if cached_tokens is None:
        cached_tokens = chosen.cached_tokens
    prefill_s = chosen.speed.prefill_s(max(prompt_tokens - cached_tokens, 0), prompt_tokens)
    wait_s = predicted.wait_s if evidence.ttft_s is None else max(evidence.ttft_s - prefill_s, 0.0)
    load_s = predicted.adapter_load_s if evidence.ttft_s is None else 0.0  # what it took is in the wait
    return Hindsight(
        predicted=predicted,
        actual=replace(predicted, wait_s=wait_s, prefill_s=prefill_s, adapter_load_s=load_s),
        least_other_s=_least_other_s(decision),
    )


def with_costs(decision: Decision) -> Decision:
    """The decision with the costs of all candidates: those that it went by, else computed now (0.4 us each)."""
    if decision.costs_s:
        return decision
    costs = costs_s(decision.candidates, decision.demand)
    return replace(decision, costs_s=costs)


def _least_other_s(decision: Decision) -> float | None:
    costs, chosen = list(with_costs(decision).costs_s), decision.chosen
    for at, candidate in enumerate(decision.candidates):
        if candidate.endpoint_id == chosen.endpoint_id and candidate.rank == chosen.rank:
            del costs[at]
            break
    return min(costs, default=None)
