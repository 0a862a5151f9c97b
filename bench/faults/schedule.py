"""Which faults, in which order: a function of the seed. Pure.

singles    each kind on each sort of part that it can be done to, the parts taken at random
pairs      two singles at a time, on two parts; each single is in at least two pairs, as far as they reach
"""

import itertools
import random
from collections.abc import Sequence
from typing import Final

from bench.faults.fleet import LEDGER, VALKEY
from bench.faults.types import Fault, Kind

_ENGINE: Final = (
    Kind.KILL,
    Kind.RESTART,
    Kind.FREEZE,
    Kind.RESET,
    Kind.SLOW,
    Kind.FLAP,
    Kind.PARTITION,
    Kind.CUT,
)
_GATEWAY: Final = (Kind.KILL, Kind.RESTART, Kind.FREEZE, Kind.CLOCK)
_SERVER: Final = (Kind.KILL, Kind.FREEZE, Kind.RESET, Kind.SLOW, Kind.FLAP, Kind.PARTITION)


def singles(
    engines: Sequence[str], gateways: Sequence[str], rng: random.Random, *, has_server: bool = True
) -> list[Fault]:
    """Every sort of fault once, shuffled; `has_server`: the ledger is a server of its own."""
    found = [Fault(kind, rng.choice(engines)) for kind in _ENGINE]
    found += [Fault(kind, rng.choice(gateways)) for kind in _GATEWAY]
    found += [Fault(Kind.PARTITION, rng.choice(engines), rng.choice(gateways))]
    found += [Fault(kind, VALKEY) for kind in _SERVER]
    found += [Fault(Kind.PARTITION, VALKEY, rng.choice(gateways))]
    if has_server:
        found += [Fault(kind, LEDGER) for kind in _SERVER]
        found += [Fault(Kind.PARTITION, LEDGER, rng.choice(gateways))]
    found.append(Fault(Kind.DISK_FULL, LEDGER))
    rng.shuffle(found)
    return found


def pairs(
    engines: Sequence[str], gateways: Sequence[str], count: int, rng: random.Random, *, has_server: bool = True
) -> list[tuple[Fault, Fault]]:
    """`count` different pairs on two parts each. Kinds are spread evenly: who was in fewer pairs goes first."""
    used: dict[tuple[Kind, str], int] = {}
    seen: set[frozenset[tuple[Kind, str]]] = set()
    found: list[tuple[Fault, Fault]] = []
    while len(found) < count:
        deck = singles(engines, gateways, rng, has_server=has_server)
        able = [pair for pair in itertools.combinations(deck, 2) if pair[0].part != pair[1].part]
        fresh = [pair for pair in able if frozenset(map(_sort, pair)) not in seen]
        if not fresh:
            return found
        pair = min(fresh, key=lambda pair: sum(used.get(_sort(one), 0) for one in pair))
        seen.add(frozenset(map(_sort, pair)))
        for one in pair:
            used[_sort(one)] = used.get(_sort(one), 0) + 1
        found.append(pair)
    return found


def _sort(fault: Fault) -> tuple[Kind, str]:
    """What a fault is, whichever engine or gateway it is done to."""
    part = fault.part.partition("-")[0]
    return fault.kind, part + ("" if fault.gateway is None else " of one")
