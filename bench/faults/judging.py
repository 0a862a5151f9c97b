"""Who could have been served: the definition that a run is held to. Pure.

An endpoint is *at hand* for a gateway at an instant if neither of them, nor the way between them, had a fault that
disturbs it within the `settled_s` before that instant. A request *could have been served* if at some instant from its
beginning to its end an endpoint of its model was at hand for some gateway, and it had not got its first byte by then.
If such a request was not served, that is a fault of ours, whatever else was down: Valkey, the ledger and a full disk
are no excuse, nor is an endpoint or gateway that is slow, or a clock that jumps.

    engine-0   ----|#### killed ####|~~ settled_s ~~|-----------
    engine-1   --------------------------|### frozen ###|~~~~~~~
    request                                   |-----------|       engine-0 could have served it, from its beginning on
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from bench.faults.types import Acted, Asked, Kind

DISTURBING: Final = frozenset({Kind.KILL, Kind.RESTART, Kind.FREEZE, Kind.RESET, Kind.FLAP, Kind.PARTITION, Kind.CUT})
_LATE_S: Final = 0.5
"""How long after a fault an answer that it broke may still come to its end."""


@dataclass(frozen=True, slots=True)
class World:
    """What there was: endpoints by model, gateways, all faults. `settled_s`: after a fault, until it should be over;
    `epoch_s`: from when people count."""

    endpoints: Mapping[str, Sequence[str]]
    gateways: Sequence[str]
    acted: Sequence[Acted]
    settled_s: float
    epoch_s: float = 0.0


def could_be_served(asked: Asked, world: World) -> bool:
    """By the definition above. O(gateways · endpoints · faults²)."""
    return any(
        _at_hand_within(asked.began_s, asked.ended_s, gateway, endpoint, world)
        for gateway in world.gateways
        for endpoint in world.endpoints[asked.model]
    )


def _at_hand_within(from_s: float, to_s: float, gateway: str, endpoint: str, world: World) -> bool:
    away = [
        (one.from_s, one.until_s + world.settled_s)
        for one in world.acted
        if one.fault.kind in DISTURBING
        and one.fault.part in (gateway, endpoint)
        and one.fault.gateway in (None, gateway)
    ]
    instants = [from_s, *(until_s for _, until_s in away if from_s <= until_s <= to_s)]
    return any(not any(begins_s <= at_s < ends_s for begins_s, ends_s in away) for at_s in instants)


def is_explained(asked: Asked, acted: Sequence[Acted]) -> bool:
    """Whether an answer that broke off was under way at what was disturbed meanwhile."""
    one = asked.last
    return one is not None and any(
        fault.fault.kind in DISTURBING
        and fault.fault.part in (one.endpoint, one.gateway)
        and fault.fault.gateway in (None, one.gateway)
        and fault.from_s - _LATE_S <= one.ended_s
        and one.began_s <= fault.until_s + _LATE_S
        for fault in acted
    )
