"""Policies by name: each a `Chooser`, from what is asked to a decision. Made once, where the server is composed.

    prefix         least cost in seconds              decide.py, copies.py
    round_robin    ┐
    least_requests ├ look at no prefix                plain.py
    random         ┘
    observing      one of them routes; beside its decision stands what another would have chosen

A chooser may keep something of its own (whose turn it is), so each server makes its own.
"""

from collections.abc import Callable
from itertools import count

from msgspec.structs import replace

from gateway.scheduling.copies import copying
from gateway.scheduling.decide import decide_by_cost
from gateway.scheduling.plain import at_random, in_turn, least_requests
from gateway.scheduling.question import Chooser, Question
from gateway.scheduling.thrift import Thrift
from gateway.scheduling.types import Candidate, Decision
from gateway.types import Reason


def chooser_of(policy: str, near_tie_s: float, thrift: Thrift | None = None) -> Chooser:
    """The policy of that name: `prefix`, `round_robin`, `least_requests` or `random`; `thrift` is for the first.
    Raises `KeyError`."""
    turns = count()
    choosers: dict[str, Chooser] = {
        "prefix": copying(_by_cost(near_tie_s, thrift)),
        "round_robin": _plain(lambda asked: in_turn(asked.candidates, next(turns))),
        "least_requests": _plain(lambda asked: least_requests(asked.candidates, asked.chance())),
        "random": _plain(lambda asked: at_random(asked.candidates, asked.chance())),
    }
    return choosers[policy]


def observing(routes: Chooser, watched: Chooser) -> Chooser:
    """`routes` decides, beside what `watched` saw and would have done, which the decision keeps as `observed`."""

    def choose(asked: Question) -> Decision:
        made, observed = routes(asked), watched(asked)
        watched_only = replace(observed, candidates=(), costs_s=())  # they are the decision's own
        only_watched = replace(observed, copy_cost_s=0.0, copy_saved_s=0.0)
        return replace(only_watched, chosen=made.chosen, reason=made.reason, observed=watched_only)

    return choose


def _by_cost(near_tie_s: float, thrift: Thrift | None) -> Chooser:
    def choose(asked: Question) -> Decision:
        return decide_by_cost(
            asked.candidates,
            asked.filtered,
            demand=asked.demand,
            near_tie_s=near_tie_s,
            chance=asked.chance(),
            no_affinity=asked.no_affinity,
            refine=asked.refine,
            thrift=thrift,
        )

    return choose


def _plain(pick: Callable[[Question], Candidate]) -> Chooser:
    """Who is picked is looked at closer, since what it will most likely report is told and recorded."""

    def choose(asked: Question) -> Decision:
        picked = pick(asked)
        chosen = asked.refine(picked)
        looked_at = [chosen if candidate is picked else candidate for candidate in asked.candidates]
        return Decision(chosen, Reason.POLICY, looked_at, asked.filtered, asked.demand)

    return choose
