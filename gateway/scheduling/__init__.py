"""Which endpoint gets the request: pure functions over a snapshot, one unit (seconds), every reason kept."""

from gateway.scheduling.choosers import chooser_of, observing
from gateway.scheduling.cost import behind, costs_s, expected_cached_tokens, terms_of
from gateway.scheduling.decide import decide_by_cost
from gateway.scheduling.expectation import Coverage, expectation
from gateway.scheduling.explain import Shortened, is_short, shortened
from gateway.scheduling.explain import as_json as decision_as_json
from gateway.scheduling.hindsight import Evidence, Hindsight, hindsight, with_costs
from gateway.scheduling.plain import at_random, in_turn, least_requests
from gateway.scheduling.question import Chooser, Question
from gateway.scheduling.recent_work import RecentWork
from gateway.scheduling.splitting import as_handed_over, carried_tokens, cheapest_decode, split_terms
from gateway.scheduling.thrift import Thrift, cheapest
from gateway.scheduling.types import (
    Candidate,
    Decision,
    Demand,
    Filtered,
    SplitPart,
    SplitReason,
    SplitTerms,
    Terms,
    endpoint_at,
    place_name,
)

__all__ = [
    "Candidate",
    "Chooser",
    "Coverage",
    "Decision",
    "Demand",
    "Evidence",
    "Filtered",
    "Hindsight",
    "Question",
    "RecentWork",
    "Shortened",
    "SplitPart",
    "SplitReason",
    "SplitTerms",
    "Terms",
    "Thrift",
    "as_handed_over",
    "at_random",
    "behind",
    "carried_tokens",
    "cheapest",
    "cheapest_decode",
    "chooser_of",
    "costs_s",
    "decide_by_cost",
    "decision_as_json",
    "endpoint_at",
    "expectation",
    "expected_cached_tokens",
    "hindsight",
    "in_turn",
    "is_short",
    "least_requests",
    "observing",
    "place_name",
    "shortened",
    "split_terms",
    "terms_of",
    "with_costs",
]
