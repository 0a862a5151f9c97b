"""What answers requests: how they are planned and changed, whose turn it is, where they go, how they are settled."""

import random
from dataclasses import dataclass
from functools import partial

from gateway.composition.followed import Followed
from gateway.composition.opened import Opened
from gateway.composition.types import Setting
from gateway.decision_log import DecisionLog
from gateway.disaggregation import Disaggregating, DisaggregationParts
from gateway.engine_tokens import RemoteTokenizer
from gateway.fixes.setup import Fixing, fixing_of
from gateway.model_routes import ModelRoutes, Serves, model_routes_of
from gateway.next_turn import NextTurns
from gateway.options import chooser_for
from gateway.outcomes import Outcomes
from gateway.pipeline import Pipeline
from gateway.pipeline_parts import Parts
from gateway.planning import Planner
from gateway.queue_setup import QueueingParts, turns_of
from gateway.response_owners import ResponseOwners
from gateway.settling import Settler, SettlerParts
from gateway.starting import observe_turn
from gateway.templates.setup import Templates, templates_of
from gateway.turns import Turns


@dataclass(frozen=True, slots=True)
class Served:
    """`pipeline` is what the data plane makes of it."""

    planner: Planner
    next_turns: NextTurns
    fixing: Fixing
    decisions: DecisionLog
    templates: Templates
    responses: ResponseOwners
    routes: ModelRoutes | None
    turns: Turns | None
    splitting: Disaggregating
    settler: Settler
    pipeline: Serves


def served_in(setting: Setting, opened: Opened, followed: Followed) -> Served:
    """Compose them."""
    config, telemetry, clocks, fleet = setting.config, setting.telemetry, setting.clocks, followed.fleet
    engines = RemoteTokenizer(opened.client, fleet.config_of)
    planner = Planner(opened.texts, engines, followed.parity, salted=config.isolation == "salt")
    next_turns = NextTurns(planner.text_of, partial(observe_turn, opened.index, fleet), telemetry)
    fixing = fixing_of(config, planner, fleet, opened.redis, telemetry, clocks)
    decisions, templates = DecisionLog(), templates_of(config, telemetry)
    responses = ResponseOwners(opened.redis, config.index.pool)
    routes = model_routes_of(config, fleet, responses, telemetry, clocks.monotonic)
    turns = turns_of(config, QueueingParts(opened.registry, fleet, opened.index, telemetry, clocks, setting.stopping))
    splitting = _splitting(setting, opened, followed, turns)
    ended = (splitting.truth.ended, fixing.settled, None if routes is None else routes.settled)
    settler = Settler(
        SettlerParts(
            ledger=opened.ledger,
            fleet=fleet,
            planner=planner,
            parity=followed.parity,
            telemetry=telemetry,
            clocks=clocks,
            receipts=followed.receipts,
            outcomes=Outcomes(decisions, telemetry),
            perf=followed.perf,
            misses=followed.misses,
            worked=followed.feeds.worked,
            tracer=opened.tracer,
            after=tuple(one for one in ended if one is not None),
        )
    )
    parts = Parts(
        planner=planner,
        index=opened.index,
        fleet=fleet,
        perf=followed.perf,
        receipts=followed.receipts,
        client=setting.plane.engines(opened.client, fleet),
        ledger=opened.ledger,
        limits=opened.limits,
        settler=settler,
        next_turns=next_turns,
        prewarmer=followed.prewarmer,
        telemetry=telemetry,
        decisions=decisions,
        responses=responses,
        attempts=followed.health.attempts,
        clocks=clocks,
        rng=random.Random(),  # noqa: S311 - spreads near-ties, keeps no secret
        tracer=opened.tracer,
        turns=turns,
        splitter=splitting.splitter,
    )
    return Served(
        planner=planner,
        next_turns=next_turns,
        fixing=fixing,
        decisions=decisions,
        templates=templates,
        responses=responses,
        routes=routes,
        turns=turns,
        splitting=splitting,
        settler=settler,
        pipeline=setting.plane.serving(Pipeline(parts, followed.options)),
    )


def _splitting(setting: Setting, opened: Opened, followed: Followed, turns: Turns | None) -> Disaggregating:
    options = followed.options
    parts = DisaggregationParts(
        *(opened.registry, followed.fleet, followed.perf, followed.receipts, opened.client, setting.telemetry),
        *(setting.clocks, options.deadlines, chooser_for(setting.config.scheduling, options.costs), turns),
        *(followed.health.attempts, followed.feeds.worked),
    )
    return Disaggregating(setting.config, parts)
