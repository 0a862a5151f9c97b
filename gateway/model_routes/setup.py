"""The configured names, composed."""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace

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


async def works_of(config: Config, routes: ModelRoutes | None, redis: RedisClient | None) -> tuple[Work, ...]:
    """What is to run until the server stops: where there is a Redis, stopped arms are the same for all who share it,
    from the first request on."""
    if routes is None or redis is None or all(len(one.all_arms) == 1 for one in config.model_routes):
        return ()
    stops = SharedStops(routes, redis, config.index.pool)
    await stops.look()
    return (stops.run,)


def routes_from(configured: Sequence[Configured]) -> tuple[ModelRoute, ...]:
    """As they are chosen by. A name of a served model that has fallbacks has the same, unless it says its own."""
    routes = [_route(one) for one in configured]
    served = {route.name: route for route in routes if _models(route) == {route.name}}
    return tuple(_with_fallbacks(*pair, served) for pair in zip(configured, routes, strict=True))


def _with_fallbacks(one: Configured, route: ModelRoute, served: Mapping[str, ModelRoute]) -> ModelRoute:
    models = _models(route)
    its_model = served.get(models.pop()) if len(models) == 1 else None
    if its_model is None or "fallbacks" in one.model_fields_set:
        return route
    reasons = route.fall_back_on if "fall_back_on" in one.model_fields_set else its_model.fall_back_on
    return replace(route, fallbacks=its_model.fallbacks, fall_back_on=reasons)


def _models(route: ModelRoute) -> set[str]:
    return {arm.model for arm in route.arms}


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
