"""Which endpoint gets the request: pure functions over a snapshot, one unit (seconds), every reason kept."""

from gateway.scheduling.cost import costs_s, expected_cached_tokens, terms_of
from gateway.scheduling.decide import decide_by_cost, decide_in_turn
from gateway.scheduling.expectation import Coverage, expectation
from gateway.scheduling.recent_work import RecentWork
from gateway.scheduling.types import Candidate, Decision, Filtered, Terms

__all__ = [
    "Candidate",
    "Coverage",
    "Decision",
    "Filtered",
    "RecentWork",
    "Terms",
    "costs_s",
    "decide_by_cost",
    "decide_in_turn",
    "expectation",
    "expected_cached_tokens",
    "terms_of",
]
