"""The configured names in use: which model a request is for, which is next, and which arms get nothing.

    request --name known?--> arm by its key --nobody there, or stopped?--> another arm
                 `--no--> as it is
    settled request --> the guard of its name --> stops an arm that does worse

What is stopped stays so until an operator lets it go on (`shared_stops`: on all replicas). Each process judges by the
requests that it has served itself. Costs: a look-up for requests under other names, some 20 µs under an alias, 40
where there are arms.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from prometheus_client import Gauge

from backends import NoEndpoint, ServedModel
from billing import ANSWERED, SettlementState
from gateway.errors import BadRequest, ModelNotFound
from gateway.exchange import CUT, Exchange
from gateway.fleet import Fleet
from gateway.log_lines import LOGGER
from gateway.model_routes.choice import arm_of, key_of
from gateway.model_routes.guarding import Guard, Side
from gateway.model_routes.types import Arm, ModelRoute
from gateway.relay import StreamTee
from gateway.response_owners import ResponseOwners
from gateway.route_metrics import RouteMetrics
from gateway.types import InferenceRequest, RequestId, Routed, Scopes, Trouble, is_named

FALLBACKS_HEADER: Final = b"x-prefixgate-fallbacks"
_NEVER: Final = b"never"
_NOBODY: Final[frozenset[str]] = frozenset()
"""Endpoints of an arm that is stopped, as all of its name are."""
_NOTHING: Final[frozenset[Trouble]] = frozenset()


class UnknownArm(Exception):
    """No configured name has such an arm."""


@dataclass(frozen=True, slots=True)
class RouteParts:
    """What names are led to models with."""

    fleet: Fleet
    responses: ResponseOwners
    metrics: RouteMetrics
    monotonic: Callable[[], float]


class ModelRoutes:
    """All names. One per process; plain calls but for `choose`."""

    def __init__(self, routes: Sequence[ModelRoute], parts: RouteParts) -> None:
        self._routes = {route.name: route for route in routes}
        self._parts = parts
        self._guards = {route.name: Guard(route.guard, parts.monotonic) for route in routes if route.guard is not None}
        self._stopped: dict[str, dict[str, str]] = {route.name: {} for route in routes}
        """By name and arm, why."""
        self._sent: dict[tuple[str, str], int] = {}
        self.stop_changed: Callable[[str, str, str | None], None] = lambda name, arm, why: None
        """Told of each arm that was stopped here, and why, or let go on."""
        self._show_stopped()

    async def choose(self, request: InferenceRequest) -> InferenceRequest:
        """The request with the served model that its name means, where it is a configured one. Never raises for what a
        client sent: whether it may use the name is asked where its key is."""
        route = self._routes.get(request.model or self._only_model())
        if route is None:
            return request
        owner = await self._owner_of(route, request)
        keeps = None if owner is None else self._stand_in_at(route, owner)
        if keeps is not None:
            number, model = keeps
            stood_in = f"fallback:{number}"
            self._count(route.name, stood_in)
            return replace(request, model=model, routed=Routed(route.name, stood_in))
        arm = self._arm(route, request, owner)
        rule = f"split:{arm.name}" if len(route.arms) > 1 else None if arm.model == route.name else "alias"
        falls_back_on = _NOTHING if _refuses_fallbacks(request) or not route.fallbacks else route.fall_back_on
        self._count(route.name, rule or "itself")
        return replace(
            request, model=arm.model, routed=Routed(route.name, rule, arm.name, arm.endpoints, falls_back_on)
        )

    def in_turn(self, request: InferenceRequest) -> Iterator[InferenceRequest]:
        """A request, and then the same for each model that answers in its place, each with an id of its own."""
        routed = request.routed
        assert routed is not None
        came = replace(request.marks)
        yield request
        fallbacks = self._routes[routed.asked].fallbacks
        for number, model in enumerate(fallbacks, 1):
            rule = f"fallback:{number}"
            falls_back_on = routed.falls_back_on if number < len(fallbacks) else _NOTHING
            self._count(routed.asked, rule)
            yield replace(
                request,
                id=RequestId(f"{request.id}-{number + 1}"),
                model=model,
                routed=Routed(routed.asked, rule, falls_back_on=falls_back_on),
                marks=replace(came, fell_back_s=self._parts.monotonic()),
            )

    def fell_back(self, asked: str, why: Trouble) -> None:
        """A model did not answer, and the next is asked."""
        self._parts.metrics.fallbacks(asked, why.value).inc()

    def served_name(self, name: str) -> str:
        """The model of the first arm that gets requests, where the name is a configured one; for paths that cost
        nothing and keep nothing."""
        route = self._routes.get(name)
        if route is None:
            return name
        stopped = self._stopped[name]
        usable = [arm.model for arm in route.arms if arm.weight and arm.name not in stopped]
        return usable[0] if usable else route.arms[0].model

    def aliases(self, served: Mapping[str, ServedModel]) -> Iterator[ServedModel]:
        """The names that some served model answers to, as models: as long as the shortest of them."""
        for route in self._routes.values():
            found = [served[arm.model] for arm in route.arms if arm.weight and arm.model in served]
            if found and route.name not in served:
                lengths = [model.max_model_len for model in found if model.max_model_len is not None]
                names = {model.id for model in found}
                alias_of = names.pop() if len(names) == 1 and len(route.arms) == 1 else None
                yield ServedModel(route.name, min(lengths, default=None), alias_of=alias_of)

    def settled(self, exchange: Exchange) -> None:
        """A request has ended; its arm is judged by it. Once for each."""
        routed = exchange.request.routed
        guard = None if routed is None else self._guards.get(routed.asked)
        if routed is None or guard is None or routed.arm is None or exchange.decision is None:
            return
        failed, left_s = _has_failed(exchange), None
        if exchange.request.stream and exchange.first_token_s is None and _was_cut(exchange):
            left_s = self._parts.monotonic() - exchange.dispatched_s
        why = guard.note(routed.arm, failed=failed, ttft_s=None if failed else exchange.ttft_s, left_s=left_s)
        if why is not None and guard.rule.arm not in self._stopped[routed.asked]:
            LOGGER.error("canary stopped", extra={"fields": {"route": routed.asked, "arm": guard.rule.arm, "why": why}})
            self.stop(routed.asked, guard.rule.arm, why)

    def stop(self, name: str, arm: str, why: str | None) -> None:
        """An arm gets nothing from now on, and why; None: it gets its share again. Raises `UnknownArm`."""
        if (name, arm) not in self.arms():
            raise UnknownArm(f"no name {name!r} with an arm {arm!r} is configured")
        self.take_over(name, arm, why)
        self.stop_changed(name, arm, why)

    def take_over(self, name: str, arm: str, why: str | None) -> None:
        """The same, where it was decided elsewhere; nothing where it is known already."""
        stopped = self._stopped[name]
        if stopped.get(arm) == why:
            return
        if why is None:
            del stopped[arm]
            if name in self._guards:
                self._guards[name].forget()
        else:
            stopped[arm] = why
        self._show_stopped()

    def why_stopped(self, name: str, arm: str) -> str | None:
        """Why an arm gets nothing; None where it gets its share."""
        return self._stopped[name].get(arm)

    def arms(self) -> list[tuple[str, str]]:
        """All names of several arms, with each of these."""
        return [(route.name, arm.name) for route in self._routes.values() if len(route.arms) > 1 for arm in route.arms]

    def problems(self) -> list[str]:
        """Arms that were stopped, and why; for `/health`."""
        return [f"{name}: arm {arm}: {why}" for name, arms in self._stopped.items() for arm, why in arms.items()]

    def show(self) -> None:
        """Bring the metrics up to date; of a side that had no requests of late there are none."""
        metrics = self._parts.metrics
        for name, guard in self._guards.items():
            for side, of in zip(("watched", "others"), guard.sides(), strict=True):
                _show(metrics.failed_share, of.error_share if of.requests else None, name, side)
                _show(metrics.ttft_s, of.ttft_s, name, side)

    def report(self) -> list[dict[str, object]]:
        """Each name with its arms, what they got, and how the watched one compares."""
        return [self._report_of(route) for route in self._routes.values()]

    async def _owner_of(self, route: ModelRoute, request: InferenceRequest) -> str | None:
        """Who has the response that a request continues, where that says which of a name's models it is for."""
        previous = request.previous_response_id
        if previous is None or (len(route.arms) == 1 and not route.fallbacks):
            return None
        holder = await self._parts.responses.holder_of(previous, request.tenant.id)
        return None if holder is None else self._parts.fleet.endpoint_of(holder)

    def _stand_in_at(self, route: ModelRoute, owner: str) -> tuple[int, str] | None:
        """The model, and its number among those that stand in, that an endpoint serves which serves no arm."""
        if any(owner in list(self._takers(arm)) for arm in route.arms):
            return None
        stand_ins = enumerate((Arm(model, model, 1) for model in route.fallbacks), 1)
        return next(((at, arm.model) for at, arm in stand_ins if owner in list(self._takers(arm))), None)

    def _arm(self, route: ModelRoute, request: InferenceRequest, owner: str | None) -> Arm:
        if len(route.arms) == 1:
            return route.arms[0]
        for arm in route.arms if owner is not None else ():
            if owner in list(self._takers(arm)):
                return arm
        key, stopped = key_of(request, route.sticky), self._stopped[route.name].keys()
        scopes = request.tenant.scopes
        nobody_there = {arm.name for arm in route.arms if next(self._takers(arm, scopes), None) is None}
        arm = arm_of(route, key, nobody_there | stopped)
        if arm.name in stopped:  # then nobody is there for the others: one of them, to say so
            arm = arm_of(route, key, stopped)
        return replace(arm, endpoints=_NOBODY) if arm.name in stopped else arm

    def _only_model(self) -> str:
        """What a request means that names no model; empty where that is for the pipeline to refuse."""
        try:
            return self._parts.fleet.only_model()
        except (BadRequest, NoEndpoint):
            return ""

    def _takers(self, arm: Arm, scopes: Scopes | None = None) -> Iterator[str]:
        """Endpoints that answer requests for an arm, of those that a key may use, as they are asked for. O(endpoints of
        its model)."""
        fleet = self._parts.fleet
        try:
            endpoints, _ = fleet.roles.answering(fleet.serving(arm.model))
        except (ModelNotFound, NoEndpoint):
            return
        for one in endpoints:
            if not one.healthy or one.draining or (scopes is not None and not scopes.allow_endpoint(one.id)):
                continue
            if arm.endpoints is None or is_named(one.id, arm.endpoints):
                yield one.id

    def _count(self, name: str, rule: str) -> None:
        self._parts.metrics.requests(name, rule).inc()
        self._sent[name, rule] = self._sent.get((name, rule), 0) + 1

    def _show_stopped(self) -> None:
        for route in self._routes.values():
            for arm in route.arms if len(route.arms) > 1 else ():
                stopped = arm.name in self._stopped[route.name]
                self._parts.metrics.stopped.labels(route.name, arm.name).set(stopped)

    def _report_of(self, route: ModelRoute) -> dict[str, object]:
        name, guard = route.name, self._guards.get(route.name)
        total = sum(arm.weight for arm in route.arms)
        canary = None
        if guard is not None:
            watched, others = guard.sides()
            canary = {"arm": guard.rule.arm, "watched": _side(watched), "others": _side(others)}
        return {
            "name": name,
            "sticky": route.sticky.value,
            "arms": [
                {
                    "arm": arm.name,
                    "model": arm.model,
                    "share": arm.weight / total,
                    "endpoints": list(self._takers(arm)),
                    "stopped": self._stopped[name].get(arm.name),
                }
                for arm in route.arms
            ],
            "fallbacks": list(route.fallbacks),
            "requests": {rule: count for (of, rule), count in self._sent.items() if of == name},
            "canary": canary,
        }


def _refuses_fallbacks(request: InferenceRequest) -> bool:
    """What continues a response is nowhere else; and who says so, by key or header, wants the model or nothing."""
    scopes = request.tenant.scopes
    if request.previous_response_id is not None or (scopes is not None and not scopes.fallbacks):
        return True
    return any(name == FALLBACKS_HEADER and value.lower() == _NEVER for name, value in request.headers)


def _was_cut(exchange: Exchange) -> bool:
    """Whether a request ended because its client left, or the gateway stopped."""
    return not exchange.attempts or exchange.attempts[-1].outcome == CUT


def _has_failed(exchange: Exchange) -> bool:
    """Whether the arm is to blame for how a request ended: with an error of its own, or a stream that broke off."""
    status, tee = exchange.http_status or 0, exchange.tee
    if status >= 400:
        return status >= 500
    if isinstance(tee, StreamTee) and tee.failed:
        return True
    if _was_cut(exchange):
        return False
    return exchange.attempts[-1].outcome != ANSWERED or exchange.final_state() is SettlementState.PARTIAL


def _show(gauge: Gauge, value: float | None, *labels: str) -> None:
    if value is None:
        gauge.remove(*labels)
    else:
        gauge.labels(*labels).set(value)


def _side(side: Side) -> dict[str, object]:
    return {"requests": side.requests, "failed": side.failed, "median_ttft_s": side.ttft_s}
