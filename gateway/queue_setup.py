"""The configured queue, composed: which endpoints have bounds, which classes there are, and what keeps them."""

from collections.abc import Callable
from dataclasses import dataclass

from backends import Registry
from gateway.config import Backend, Config
from gateway.exchange import Clocks
from gateway.fleet import Fleet
from gateway.queueing import ClassRule, OrderRules
from gateway.queueing.asking import ClassBook
from gateway.queueing.fullness import Bound
from gateway.queueing.gate import Gate, GateParts, GateRules
from gateway.queueing.places import Bounds, Places
from gateway.telemetry import Telemetry
from gateway.turns import TurnParts, Turns
from prefix_index import SharedIndex

_STALE_POLLS = 5
"""A sample older than so many polls says nothing any more."""


@dataclass(frozen=True, slots=True)
class QueueingParts:
    """What the queue works with."""

    registry: Registry
    fleet: Fleet
    index: SharedIndex
    telemetry: Telemetry
    clocks: Clocks
    stopping: Callable[[], bool]


def turns_of(config: Config, parts: QueueingParts) -> Turns | None:
    """Whose turn it is; None where no endpoint has a bound or is told of priorities, and none may come that has.

    The fleet tells its loads to the gate from now on.
    """
    bounds, told = bounds_of(config), {one.name for one in config.backends if one.pass_priority}
    others_may = config.discovery.finds
    if not told and not others_may and all(bound.is_none for bound in (bounds.others, *bounds.of.values())):
        return None
    queue, monotonic = config.queue, parts.clocks.monotonic
    rules = GateRules(
        OrderRules(class_rules(config), queue.weights, queue.quantum_tokens, queue.most_passed),
        queue.tenant_requests,
        queue.tenant_bytes,
        drain_s=config.limits.drain_s,
    )
    places = Places(bounds, parts.registry, parts.index.others, monotonic)
    gate = Gate(rules, GateParts(places, parts.telemetry.queue, monotonic, parts.stopping))
    parts.fleet.load_changed = gate.load_changed
    book, share = class_book(config), queue.output_share
    return Turns(TurnParts(gate, book, parts.fleet, parts.index, parts.clocks, output_share=share, told=told))


def bounds_of(config: Config) -> Bounds:
    """The bound of each endpoint."""
    stale_s = max(_STALE_POLLS * config.poll_interval_s, 1.0)
    return Bounds({one.name: bound_of(config, one) for one in config.backends}, bound_of(config, None), stale_s)


def class_rules(config: Config) -> tuple[ClassRule, ...]:
    """The classes, the highest first."""
    return tuple(
        ClassRule(one.name, one.max_wait_s, one.max_requests, one.max_bytes, one.share) for one in config.queue.classes
    )


def class_book(config: Config) -> ClassBook:
    """Whose requests are of which class."""
    classes = config.queue.classes
    rules = class_rules(config)
    return ClassBook(
        classes=rules,
        others=next(rank for rank, one in enumerate(classes) if one.name == config.queue.class_of_others),
        tenants={name: rank for rank, one in enumerate(classes) for name in one.tenants},
        keys={name: rank for rank, one in enumerate(classes) for name in one.keys},
        tiers={name: rank for rank, one in enumerate(classes) for name in one.service_tiers},
        asked_by={rank: frozenset(one.asked_by) for rank, one in enumerate(classes)},
    )


def joins(config: Config, turns: Turns | None, backend: Backend) -> None:
    """An endpoint is one of the fleet from now on, or has another bound."""
    if turns is not None:
        turns.join(backend.name, bound_of(config, backend), told=backend.pass_priority)


def bound_of(config: Config, backend: Backend | None) -> Bound:
    """The bound of an endpoint; of one that has none of its own where there is None."""
    of_all = config.queue.max_running
    running = of_all if backend is None or backend.max_running is None else backend.max_running
    return Bound(
        requests=running if isinstance(running, int) else None,
        learns=running == "auto",
        queued_tokens=None if backend is None else backend.max_queued_tokens,
        kv_use=None if backend is None else backend.max_kv_use,
    )
