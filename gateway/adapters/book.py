"""Which adapters are loaded where, and what loading one takes: the part of a decision's cost that is theirs.

    engine's metrics   slots 4, at work {a, b}     ┐   resident: at work, or among the last `slots` that were sent there
    what we sent       a  b  c  d | e  f           ┴─> else: load_s, and load_s * P(f' is wanted) for who is pushed out
                       latest        oldest

vLLM tells which adapters are at work, not which are loaded; SGLang how many. Engines push out the one that was used
longest ago, so the last that were sent there are those that are loaded: a stand-in, until the engine's word. Where
nobody says how many it keeps, what was sent once counts as loaded. What nobody has sent yet is not known to be there.
The engine's word is as old as its last sample: it counts no more once as many others as it keeps were sent there since.

Heat is the number of requests of the last minute, fading: an adapter that has `h` of them is wanted again within the
next with probability 1 - exp(-h) (Poisson). One that nobody asks for costs nothing to push out, one in steady use a
load.

What a first use takes more than its prefill is what loading takes: the middle one of the last uses, and of two votes
for what was believed. So one slow disk decides nothing, and three say more than the configuration. They count for
`LEARNED_S`: who was slow is avoided, so nothing else would show that it is not any more.

Costs: O(1) a request but for the copy of candidates that would load; `MOST_KEPT` names a place.
"""

import math
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from statistics import median
from typing import Final

from msgspec.structs import replace

from backends import AdapterSample, LoadSample
from gateway.adapter_metrics import AdapterMetrics
from gateway.scheduling import Candidate, endpoint_at

MOST_KEPT: Final = 256
"""Adapters that are remembered of a place: more than any engine keeps on its GPU."""
HEAT_S: Final = 60.0
"""After so long a request counts 1/e."""
LEARNED_S: Final = 600.0
"""How long what a first use took is believed."""
_SAMPLES: Final = 15
"""First uses of an endpoint that are remembered."""
_VOTES_OF_PRIOR: Final = 2
"""Of what was believed before any of them."""
_NOTHING: Final = AdapterSample()


class Residency(StrEnum):
    """Whether an adapter is loaded at a place."""

    AT_WORK = "at_work"
    """The engine says so."""
    SENT_LATELY = "sent_lately"
    """It was sent there, and as far as is known, nothing has pushed it out."""
    ABSENT = "absent"
    """Nothing says that it is there."""


class _Place:
    """Of one endpoint or rank: heat by adapter as of a time, oldest use first."""

    __slots__ = ("heats",)

    def __init__(self) -> None:
        self.heats: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def heat(self, adapter: str, now_s: float) -> float:
        heat, at_s = self.heats.get(adapter, (0.0, now_s))
        return heat * math.exp((at_s - now_s) / HEAT_S)

    def use(self, adapter: str, now_s: float) -> None:
        self.heats[adapter] = self.heat(adapter, now_s) + 1, now_s
        self.heats.move_to_end(adapter)
        if len(self.heats) > MOST_KEPT:
            self.heats.popitem(last=False)

    def loaded(self, slots: int | None) -> list[str]:
        """Those that were used last, oldest first, as many as fit."""
        return list(self.heats) if slots is None else list(self.heats)[-slots:]


class AdapterBook:
    """Of one process. Plain calls, no I/O. `load_s` and `slots` are believed where nothing is told or learned."""

    def __init__(
        self, metrics: AdapterMetrics, clock: Callable[[], float], *, load_s: float, slots: int | None = None
    ) -> None:
        self._metrics = metrics
        self._clock = clock
        self._load_s = load_s
        self._slots = slots
        self._places: dict[str, _Place] = {}
        self._samples: dict[str, deque[tuple[float, float]]] = {}
        """When loads were seen, and their seconds, by endpoint: its ranks load from the same disk."""

    def load_s(self, endpoint_id: str) -> float:
        """What loading an adapter takes there. O(1)."""
        samples = self._samples.get(endpoint_id)
        if samples is None:
            return self._load_s
        since_s = self._clock() - LEARNED_S
        while samples and samples[0][0] < since_s:
            samples.popleft()
        return median([*(load_s for _, load_s in samples), *[self._load_s] * _VOTES_OF_PRIOR])

    def residency(self, place: str, adapter: str, load: LoadSample | None) -> Residency:
        """Whether an adapter is loaded at a place, whose engine has last said this. O(slots)."""
        kept, slots = self._places.get(place), self._slots_of(load)
        loaded = [] if kept is None else kept.loaded(slots)
        if kept is not None and adapter in loaded:
            return Residency.AT_WORK if adapter in _at_work(load) else Residency.SENT_LATELY
        if adapter not in _at_work(load) or load is None:
            return Residency.ABSENT
        since = 0 if kept is None else sum(kept.heats[name][1] > load.fetched_at_s for name in loaded)
        return Residency.AT_WORK if slots is None or since < slots else Residency.ABSENT  # as many have come since

    def weighed(
        self, candidates: Iterable[Candidate], adapter: str, loads: Mapping[str, LoadSample | None]
    ) -> list[Candidate]:
        """The candidates with what an adapter costs at each; `loads` are the last samples of the endpoints that would
        have to load it."""
        now_s = self._clock()
        return [
            self._weighed(one, adapter, loads[one.endpoint_id], now_s) if one.endpoint_id in loads else one
            for one in candidates
        ]

    def sent(self, place: str, adapter: str, load: LoadSample | None) -> Residency:
        """A request for an adapter is sent to a place; how it stood there before. O(slots)."""
        now_s, endpoint_id = self._clock(), endpoint_at(place)
        found = self.residency(place, adapter, load)
        kept = self._places.get(place)
        if kept is None:
            kept = self._places[place] = _Place()
        self._metrics.load_s(endpoint_id).set(self.load_s(endpoint_id))
        if found is Residency.ABSENT and self._victim(place, load) is not None:
            self._metrics.evictions(place).inc()
        kept.use(adapter, now_s)
        self._metrics.requests(place, found.value).inc()
        return found

    def learn(self, place: str, load_s: float) -> None:
        """A first use at a place took so much longer than its prefill."""
        endpoint_id = endpoint_at(place)
        samples = self._samples.setdefault(endpoint_id, deque(maxlen=_SAMPLES))
        samples.append((self._clock(), max(load_s, 0.0)))
        self._metrics.load_s(endpoint_id).set(self.load_s(endpoint_id))

    def listed(self, endpoint_id: str, adapters: frozenset[str]) -> None:
        """An endpoint lists these adapters now: others were unloaded there. O(ranks × kept)."""
        for place in self._places_of(endpoint_id):
            heats = self._places[place].heats
            for name in [name for name in heats if name not in adapters]:
                del heats[name]

    def new_generation(self, endpoint_id: str, _generation: int) -> None:
        """The engine is another one now: nothing is loaded there."""
        for place in self._places_of(endpoint_id):
            del self._places[place]

    def removed(self, endpoint_id: str) -> None:
        """An endpoint is none of the fleet any more."""
        self.new_generation(endpoint_id, 0)
        self._samples.pop(endpoint_id, None)

    def _weighed(self, one: Candidate, adapter: str, load: LoadSample | None, now_s: float) -> Candidate:
        place = one.place
        if self.residency(place, adapter, load) is not Residency.ABSENT:
            return one
        load_s, victim = self.load_s(one.endpoint_id), self._victim(place, load)
        wanted = 0.0 if victim is None else 1 - math.exp(-self._places[place].heat(victim, now_s))
        return replace(one, adapter_load_s=load_s, adapter_evicts_s=load_s * wanted)

    def _victim(self, place: str, load: LoadSample | None) -> str | None:
        """Who is pushed out by one more: of a full place, the one that was used longest ago and is not at work."""
        kept, slots, told = self._places.get(place), self._slots_of(load), _told(load)
        if kept is None or slots is None:
            return None
        loaded = kept.loaded(slots)
        if max(len(loaded), told.used or 0) < slots or not loaded:
            return None
        at_work = _at_work(load)
        return next((name for name in loaded if name not in at_work), loaded[0])

    def _slots_of(self, load: LoadSample | None) -> int | None:
        told = _told(load).slots
        return self._slots if told is None else told

    def _places_of(self, endpoint_id: str) -> list[str]:
        return [place for place in self._places if endpoint_at(place) == endpoint_id]


def _told(load: LoadSample | None) -> AdapterSample:
    return _NOTHING if load is None or load.adapters is None else load.adapters


def _at_work(load: LoadSample | None) -> frozenset[str]:
    return _told(load).in_use or frozenset()
