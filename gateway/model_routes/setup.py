"""The configured names, composed."""

from collections.abc import Callable, Coroutine, Sequence

from gateway.config import Config
from gateway.fleet import Fleet
from gateway.model_routes.routes import ModelRoutes, RouteParts
from gateway.model_routes.shared_stops import SharedStops
from gateway.model_routes.types import Arm, GuardRule, ModelRoute, Sticky
from gateway.response_owners import ResponseOwners
from gateway.routes_config import ModelRoute as Configured
from gateway.telemetry import Telemetry
from gateway.types import Trouble
from prefix_index import RedisClient

Work = Callable[[], Coroutine[object, object, None]]


def model_routes_of(
    config: Config, fleet: Fleet, responses: ResponseOwners, telemetry: Telemetry, monotonic: Callable[[], float]
) -> ModelRoutes | None:
    """The names in use; None where none is configured."""
    if not config.model_routes:
        return None
    return ModelRoutes(routes_from(config.model_routes), RouteParts(fleet, responses, telemetry.routes, monotonic))


def works_of(config: Config, routes: ModelRoutes | None, redis: RedisClient | None) -> tuple[Work, ...]:
    """What is to run until the server stops: where there is a Redis, stopped arms are the same for all who share it."""
    if routes is None or redis is None or all(len(one.all_arms) == 1 for one in config.model_routes):
        return ()
    return (SharedStops(routes, redis, config.index.pool).run,)


def routes_from(configured: Sequence[Configured]) -> tuple[ModelRoute, ...]:
    """As they are chosen by."""
    return tuple(_route(one) for one in configured)


def _route(one: Configured) -> ModelRoute:
    canary = one.canary
    return ModelRoute(
        name=one.name,
        arms=tuple(
            Arm(arm.called, arm.model, arm.weight, frozenset(arm.endpoints) if arm.endpoints else None)
            for arm in one.all_arms
        ),
        sticky=Sticky(one.sticky),
        fallbacks=one.fallbacks,
        fall_back_on=frozenset(map(Trouble, one.fall_back_on)),
        guard=None
        if canary is None
        else GuardRule(canary.arm, canary.most_errors, canary.most_ttft, canary.min_requests, canary.window_s),
    )
