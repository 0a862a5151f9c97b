"""Levels of load against one address, one after the other.

probe ──> level 1 ──> level 2 ──> ...        given: all of them
                                             not given: clients double until output grows by less than a twentieth,
                                             or, where there are limits, half of the requests do not keep them

A level is to be in its steady state: where clients double, it lasts as long as three answers of the level before took,
if that is more than was asked for. Where levels are given and answers take longer than they last, that is said.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Final

from backends.client import UpstreamClient
from backends.types import EndpointConfig
from gateway.measuring.asking import Asker
from gateway.measuring.driving import Phase, drive_closed, drive_open
from gateway.measuring.levels import level_of
from gateway.measuring.probing import probe
from gateway.measuring.types import Level, Limits, Seen, Window
from gateway.measuring.wording import Wording
from gateway.sim.ceiling import ceiling_of
from gateway.sim.loads import arrivals
from gateway.sim.types import SimRequest, Workload

MOST_CLIENTS: Final = 256
_GREW: Final = 1.05
"""Output over that of half as many clients, below which more of them gain nothing."""
_STILL_WITHIN: Final = 0.5
"""Of the requests: where fewer keep the limits, more clients tell nothing."""
_ANSWERS_LONG: Final = 3.0
"""Answers one after the other: what a level lasts at least."""
_EVEN: Final = 1e-3
"""Variation of gaps that nobody can tell from none."""
_CHANCE: Final = 0.1
"""Of the prompt tokens: borders of blocks, and requests that were asked before the window."""
_LATE_S: Final = 0.01
"""From here on the generator is part of what it measures."""
CONNECTIONS: Final = 65_536
"""No bound of ours but that of the ports of a machine: as many as the load has requests in flight."""

Told = Callable[[int, int | None], None]
"""Told how many levels are done, and of how many (None: nobody knows)."""


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
class Swept:
    """Levels that were driven, and what to know of them."""

    notes: list[str]
    windows: list[Window] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Offer:
    """What one level offers: clients, or an open loop of a rate and a variation as `Rates` has them."""

    number: int
    clients: int | None = None
    rate: float = 1.0
    cv: float | None = None

    def __str__(self) -> str:
        if self.clients is not None:
            return f"{self.clients} client{'s' * (self.clients != 1)}"
        return f"{self.rate:g} times as fast" if self.cv is None else f"{self.rate:g} requests/s"


async def sweep(url: EndpointConfig, wording: Wording, plan: Plan, told: Told) -> Swept:
    """Probe an address and drive every level. Raises `AddressRefuses`."""
    async with UpstreamClient(CONNECTIONS) as client:
        found = await probe(Asker(client, url, time.monotonic()), wording, plan.prompt_tokens)
        swept = Swept(list(found.notes))
        if found.speed is None:
            swept.notes.append("shares of time are not known: the address does not tell how long prompts are")
        levels: list[Level] = []
        for offer in _offers(plan, levels):
            told(offer.number, _known(plan))
            asker = Asker(client, url, time.monotonic(), found.prefill_s)
            window = await _level(asker, found.wording, replace(plan, phase=_phase(plan, levels)), offer)
            if not window.seen:
                swept.notes.append(f"at {offer} no request was due: measure longer with --seconds")
                continue
            swept.windows.append(window)
            levels.append(level_of(window, plan.limits))
            swept.notes.extend(_remarks(offer, levels[-1], asker))
            swept.notes.extend(_of_caches(offer, levels[-1], found.wording.word_tokens.fixed))
        return swept


def _offers(plan: Plan, levels: Sequence[Level]) -> Iterator[_Offer]:
    """Of each level; `levels` grows meanwhile."""
    offered = plan.offered
    if isinstance(offered, Rates):
        yield from (_Offer(number, rate=rate, cv=offered.cv) for number, rate in enumerate(offered.rates))
    elif offered.clients is not None:
        yield from (_Offer(number, clients=clients) for number, clients in enumerate(offered.clients))
    else:
        for power in count():
            if 2**power > MOST_CLIENTS or len(levels) < power or not _gains(levels, plan.limits):
                return
            yield _Offer(power, clients=2**power)


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


async def _level(asker: Asker, wording: Wording, plan: Plan, offer: _Offer) -> Window:
    """Drive one level."""
    sent: list[SimRequest] = []
    salt = f"{plan.seed} {offer.number}"

    def bodies(load: Workload) -> Iterator[tuple[float, bytes]]:
        """Each is written when the one before has left, and before its own time."""
        for request in load.requests:
            own = None if plan.bodies is None else plan.bodies[request.number % len(plan.bodies)]
            at_s = request.at_s if offer.clients is None else asker.clock() - asker.began_s
            sent.append(replace(request, at_s=at_s))
            yield request.at_s, wording.body(request, salt) if own is None else own

    if offer.clients is None:
        from_s, to_s = await drive_open(asker, bodies(_timed(plan.load, offer, plan.seed)), plan.phase)
    else:
        texts = (body for _, body in bodies(plan.load))
        from_s, to_s = await drive_closed(asker, texts, offer.clients, plan.phase)
    return Window(
        from_s=from_s,
        to_s=to_s,
        seen=asker.seen,
        rate_per_s=None if offer.clients is not None else _rate_per_s(offer, asker.seen, from_s, to_s),
        clients=offer.clients,
        gaps_s=asker.gaps_s,
        late_s=asker.late_s,
        ceiling_share=None if plan.bodies is not None else _ceiling(plan.load, sent[: len(asker.seen)], from_s),
    )


def _ceiling(load: Workload, sent: Sequence[SimRequest], from_s: float) -> float | None:
    """Of what was sent after the warm-up, at most; None where nothing was."""
    if not sent:
        return None
    return ceiling_of(replace(load, requests=sent), skip_s=max(from_s - sent[0].at_s, 0.0)).hit_share


def _rate_per_s(offer: _Offer, seen: Sequence[Seen], from_s: float, to_s: float) -> float:
    """Requests a second: those that were asked for, or, of recorded times, those that were due."""
    if offer.cv is not None:
        return offer.rate
    return sum(from_s <= one.asked_s < to_s for one in seen) / (to_s - from_s)


def _timed(load: Workload, offer: _Offer, seed: int) -> Workload:
    """The load at the times of an open loop."""
    rate, cv = offer.rate, offer.cv
    if cv is None:
        return arrivals.at_speed(load, rate)
    if cv < _EVEN:
        return arrivals.constant(load, rate)
    return arrivals.poisson(load, rate, seed) if cv == 1 else arrivals.bursty(load, rate, cv, seed)


def _of_caches(offer: _Offer, level: Level, template_tokens: float) -> Iterator[str]:
    """Whether more was cached than the texts have in common, and a template around them."""
    hit, ceiling = level.hit_share, level.ceiling_share
    if hit is None or ceiling is None or not level.input_tokens_per_s or not level.requests_per_s:
        return
    template = template_tokens * level.requests_per_s / level.input_tokens_per_s
    if hit > ceiling + template + _CHANCE:
        yield (
            f"at {offer} {hit:.0%} of prompt tokens were cached, of texts that share {ceiling:.0%}: they were asked "
            "before, as by a run with the same seed, so that first tokens come too soon"
        )


def _remarks(offer: _Offer, level: Level, asker: Asker) -> Iterator[str]:
    """What to know of a level that `asker` asked for."""
    if level.failed:
        yield f"at {offer} {level.failed} of {level.requests} requests failed: {asker.why}"
    if asker.odd:
        yield f"at {offer} {asker.odd} answers had a usage that cannot be: what is wrong of it is not counted"
    if level.cut:
        yield f"at {offer} {level.cut} of {level.requests} answers were not waited for to their end"
    if level.total is not None and level.total.p90 > level.seconds:
        yield f"at {offer} answers take longer than the level lasts: measure longer with --seconds"
    if level.late is not None and level.late.p99 > _LATE_S:
        yield (
            f"at {offer} this machine sent late, by {level.late.p99 * 1e3:.0f} ms for one in a hundred: "
            "times count from when a request was due"
        )
