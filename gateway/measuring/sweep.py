"""Levels of load against one address, one after the other.

probe ──> level 1 ──> level 2 ──> ...        given: all of them
                                             not given: clients double until output grows by less than a twentieth,
                                             or, where there are limits, half of the requests do not keep them

A level is to be in its steady state: where clients double, it lasts as long as three answers of the level before took,
if that is more than was asked for. Where levels are given and answers take longer than they last, that is said.
"""

import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Final

from backends.client import UpstreamClient
from backends.types import EndpointConfig
from gateway.measuring.asking import Asker
from gateway.measuring.driving import Phase, drive_closed, drive_open
from gateway.measuring.levels import level_of
from gateway.measuring.probing import Address, probe
from gateway.measuring.types import Level, Limits, Window
from gateway.measuring.wording import Wording
from gateway.sim.ceiling import ceiling_of
from gateway.sim.loads import arrivals
from gateway.sim.types import SimRequest, Workload

MOST_CLIENTS: Final = 256
_GREW: Final = 1.05
_STILL_WITHIN: Final = 0.5
_ANSWERS_LONG: Final = 3.0
_LATE_S: Final = 0.01
"""From here on the generator is part of what it measures."""
_CONNECTIONS: Final = 65_536

Told = Callable[[str, int, int | None], None]
"""Told what level is under way, how many are done, and of how many (None: nobody knows)."""


@dataclass(frozen=True, slots=True)
class Rates:
    """An open loop. `cv` of the gaps between requests: 1 is Poisson, 0 evenly; None is as the load itself has them, in
    which case a rate is how many times as fast."""

    rates: Sequence[float]
    cv: float | None = 1.0


@dataclass(frozen=True, slots=True)
class Clients:
    """A closed loop; None: doubled until nothing is gained."""

    clients: Sequence[int] | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """What to offer: `load` again for each level; `bodies`, in place of its texts, are sent in turn."""

    load: Workload
    offered: Rates | Clients
    phase: Phase
    limits: Limits = field(default_factory=Limits)
    prompt_tokens: int = 512
    bodies: Sequence[bytes] | None = None
    seed: int = 0


@dataclass(slots=True)
class Sweep:
    """Levels that were driven, and what to know of them."""

    address: Address
    windows: list[Window] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


async def sweep(url: EndpointConfig, wording: Wording, plan: Plan, told: Told) -> Sweep:
    """Probe an address and drive every level. Raises `AddressRefuses`."""
    async with _client() as client:
        found = await probe(Asker(client, url, time.monotonic()), wording, plan.prompt_tokens, plan.seed)
        swept = Sweep(found, notes=list(found.notes))
        if found.speed is None:
            swept.notes.append("shares of time are not known: the address does not tell how long prompts are")
        levels: list[Level] = []
        for number, (rate, clients) in enumerate(_offers(plan, levels)):
            told(f"{clients} clients" if rate is None else f"{rate:g} requests/s", number, _known(plan))
            phase = _phase(plan, levels)
            window, why = await _level(client, url, found, replace(plan, phase=phase), (number, rate, clients))
            if not window.seen:
                swept.notes.append(f"no request was sent at level {number + 1}: the load has none for it")
                break
            swept.windows.append(window)
            levels.append(level_of(window, plan.limits))
            _remark(swept.notes, levels[-1], why)
        return swept


@asynccontextmanager
async def _client() -> AsyncIterator[UpstreamClient]:
    async with UpstreamClient(_CONNECTIONS) as client:
        yield client


def _offers(plan: Plan, levels: Sequence[Level]) -> Iterator[tuple[float | None, int | None]]:
    """Rate or clients of each level; `levels` grows meanwhile."""
    offered = plan.offered
    if isinstance(offered, Rates):
        yield from ((rate, None) for rate in offered.rates)
    elif offered.clients is not None:
        yield from ((None, clients) for clients in offered.clients)
    else:
        for power in count():
            if 2**power > MOST_CLIENTS or not _gains(levels, plan.limits):
                return
            yield None, 2**power


def _gains(levels: Sequence[Level], limits: Limits) -> bool:
    """Whether twice as many clients may still tell something."""
    if not levels:
        return True
    last = levels[-1]
    if last.requests_per_s == 0:
        return False
    if last.within_limits is not None and last.within_limits < _STILL_WITHIN:
        return False
    return len(levels) < 2 or (last.output_tokens_per_s or 0.0) >= _GREW * (levels[-2].output_tokens_per_s or 0.0)


def _phase(plan: Plan, levels: Sequence[Level]) -> Phase:
    """How long the next level lasts."""
    doubles = isinstance(plan.offered, Clients) and plan.offered.clients is None
    if not doubles or not levels or levels[-1].total is None:
        return plan.phase
    answer_s = levels[-1].total.p90
    asked = plan.phase
    return replace(asked, warm_s=max(asked.warm_s, answer_s), seconds=max(asked.seconds, _ANSWERS_LONG * answer_s))


def _known(plan: Plan) -> int | None:
    offered = plan.offered
    levels = offered.rates if isinstance(offered, Rates) else offered.clients
    return None if levels is None else len(levels)


async def _level(
    client: UpstreamClient,
    url: EndpointConfig,
    found: Address,
    plan: Plan,
    offer: tuple[int, float | None, int | None],
) -> tuple[Window, str | None]:
    """One level, and what its last refusal said."""
    number, rate, clients = offer
    asker = Asker(client, url, time.monotonic(), None if found.speed is None else found.speed.prefill_s)
    sent: list[SimRequest] = []
    salt = f"{plan.seed} {number}"

    def bodies(load: Workload) -> Iterator[tuple[float, bytes]]:
        """Each is written when the one before has left, and before its own time."""
        for request in load.requests:
            own = None if plan.bodies is None else plan.bodies[request.number % len(plan.bodies)]
            at_s = request.at_s if clients is None else asker.clock() - asker.began_s
            sent.append(replace(request, at_s=at_s))
            yield request.at_s, found.wording.body(request, salt) if own is None else own

    if rate is not None and isinstance(plan.offered, Rates):
        from_s, to_s = await drive_open(asker, bodies(_timed(plan.load, rate, plan.offered.cv, plan.seed)), plan.phase)
    else:
        from_s, to_s = await drive_closed(asker, (body for _, body in bodies(plan.load)), clients or 1, plan.phase)
    asked = replace(plan.load, requests=sent[: len(asker.seen)])
    window = Window(
        from_s=from_s,
        to_s=to_s,
        seen=asker.seen,
        rate_per_s=rate,
        clients=clients,
        gaps_s=asker.gaps_s,
        late_s=asker.late_s,
        ceiling_share=None if plan.bodies is not None or not sent else _ceiling(asked, from_s - sent[0].at_s),
    )
    return window, asker.why


def _ceiling(asked: Workload, skip_s: float) -> float | None:
    """Of what was sent after the warm-up, at most."""
    return ceiling_of(asked, skip_s=max(skip_s, 0.0)).hit_share


def _timed(load: Workload, rate: float, cv: float | None, seed: int) -> Workload:
    if cv is None:
        return arrivals.at_speed(load, rate)
    if cv == 0:
        return arrivals.constant(load, rate)
    return arrivals.poisson(load, rate, seed) if cv == 1 else arrivals.bursty(load, rate, cv, seed)


def _remark(notes: list[str], level: Level, why: str | None) -> None:
    offered = f"{level.clients} clients" if level.rate_per_s is None else f"{level.rate_per_s:g} requests/s"
    if level.failed:
        notes.append(f"at {offered} {level.failed} of {level.requests} requests failed: {why}")
    if level.cut:
        notes.append(f"at {offered} {level.cut} of {level.requests} answers were not waited for to their end")
    if level.total is not None and level.total.p90 > level.seconds:
        notes.append(f"at {offered} answers take longer than the level lasts: measure longer with --seconds")
    if level.late is not None and level.late.p99 > _LATE_S:
        notes.append(
            f"at {offered} this machine sent late, by {level.late.p99 * 1e3:.0f} ms for one in a hundred: "
            "times count from when a request was due"
        )
