"""Endpoints that stand far from their peers: who is left out for a while. Pure: the time is an argument.

    share of failed requests   0.00  0.01  0.00  0.42        far from the median, and surely so: left out, for base_s,
    time of a token, ratio     1.0   1.1   0.9   1.0         each further time for twice as long, up to most_s
                                                             a slow fleet has a slow median: nobody stands out

How far is far is said by the peers: the median, and the median distance from it (MAD, times 1.4826, which is a standard
deviation where things scatter normally). Times are compared by their logarithms, so twice as slow is as far as twice as
fast, which is never held against anyone.

    failed:   rate - median > distance · max(1.4826 · MAD, 0.02),  and the rate is at least `least_rate` even at the
              lower end of its 95 % interval (Wilson, J. Am. Stat. Assoc. 22, 1927): three failures of three are few
    slow:     ln t - median > max(distance · 1.4826 · MAD, ln least_factor)

Invariants:
- Of a group never more than `most_share` is left out, those that are away for other reasons counted too, whatever is
  measured. So of two nobody ever is: which of them is the odd one out cannot be told.
- Only endpoints with `least_samples` since they came back are judged, and only where two others have as many.
- A look costs O(endpoints log endpoints); nothing is done for a request.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median
from typing import Final

_MAD_TO_SIGMA: Final = 1.4826
"""1 / Φ⁻¹(3/4): the median distance from the median of a normal distribution is so much smaller than its deviation."""
_LEAST_SIGMA: Final = 0.02
"""Of shares of failed requests: where all peers fail alike, two requests in a hundred more are no sign of anything."""
_Z_95: Final = 1.96
"""Φ⁻¹(0.975)."""
_LEAST_PEERS: Final = 2
"""Of two one cannot tell which is the odd one."""


class Oddity(StrEnum):
    """In what an endpoint stands out."""

    FAILS = "fails"
    SLOW_PREFILL = "slow_prefill"
    SLOW_DECODE = "slow_decode"


@dataclass(frozen=True, slots=True)
class Measured:
    """One endpoint over the last while: requests and its own faults among them (older ones may count for less).

    `prefill_ratio` is the time of computing an uncached token, `decode_ratio` that of giving one, each in times of what
    is expected of a machine of its kind, None where not measured; with their samples. `available`: it takes requests,
    as far as others than the ejector say.
    """

    endpoint_id: str
    requests: float = 0
    faults: float = 0
    prefill_ratio: float | None = None
    decode_ratio: float | None = None
    prefill_samples: int = 0
    decode_samples: int = 0
    available: bool = True


@dataclass(frozen=True, slots=True)
class OutlierRules:
    """How far is far, and for how long: see the module. `slow`: whether times are judged at all."""

    most_share: float = 0.34
    distance: float = 4.0
    least_rate: float = 0.1
    least_factor: float = 3.0
    least_samples: int = 20
    base_s: float = 30.0
    most_s: float = 600.0
    fails: bool = True
    slow: bool = False


@dataclass(frozen=True, slots=True)
class Odd:
    """An endpoint that stands out: in what, what was measured of it and of the median, and by how many times of what
    would have been enough."""

    endpoint_id: str
    oddity: Oddity
    value: float
    usual: float
    excess: float


def odd_ones(group: Sequence[Measured], rules: OutlierRules) -> list[Odd]:
    """Who stands out among endpoints that should be alike, the oddest first; one line for each endpoint."""
    found: list[Odd] = []
    here = [one for one in group if one.available]
    if rules.fails:
        judged = [one for one in here if one.requests >= rules.least_samples]
        found += _failing(judged, rules)
    if rules.slow:
        prefills = [(one.endpoint_id, one.prefill_ratio, one.prefill_samples) for one in here]
        decodes = [(one.endpoint_id, one.decode_ratio, one.decode_samples) for one in here]
        found += _slow(prefills, Oddity.SLOW_PREFILL, rules) + _slow(decodes, Oddity.SLOW_DECODE, rules)
    found.sort(key=lambda odd: (-odd.excess, odd.endpoint_id))
    first: dict[str, Odd] = {}
    for odd in found:
        first.setdefault(odd.endpoint_id, odd)
    return list(first.values())


def _failing(judged: Sequence[Measured], rules: OutlierRules) -> list[Odd]:
    if len(judged) <= _LEAST_PEERS:
        return []
    rates = [min(one.faults / one.requests, 1.0) for one in judged]
    middle, sigma = _spread(rates)
    enough = rules.distance * max(sigma, _LEAST_SIGMA)
    return [
        Odd(one.endpoint_id, Oddity.FAILS, rate, middle, (rate - middle) / enough)
        for one, rate in zip(judged, rates, strict=True)
        if rate - middle > enough and least_share(min(one.faults, one.requests), one.requests) >= rules.least_rate
    ]


def _slow(measured: Sequence[tuple[str, float | None, int]], oddity: Oddity, rules: OutlierRules) -> list[Odd]:
    """Of ids, their times against what is expected, and how many samples these are of."""
    enough_samples = [(one, time) for one, time, samples in measured if samples >= rules.least_samples]
    times = [(endpoint_id, time) for endpoint_id, time in enough_samples if time is not None and time > 0]
    if len(times) <= _LEAST_PEERS:
        return []
    logs = [math.log(time) for _, time in times]
    middle, sigma = _spread(logs)
    enough = max(rules.distance * sigma, math.log(rules.least_factor))
    return [
        Odd(endpoint_id, oddity, time, math.exp(middle), (log - middle) / enough)
        for (endpoint_id, time), log in zip(times, logs, strict=True)
        if log - middle > enough
    ]


def _spread(values: Sequence[float]) -> tuple[float, float]:
    middle = median(values)
    return middle, _MAD_TO_SIGMA * median(abs(value - middle) for value in values)


def least_share(faults: float, requests: float) -> float:
    """The lower end of the 95 % interval of a share of which `faults` in `requests` were seen (Wilson's)."""
    share, z2 = faults / requests, _Z_95 * _Z_95
    centre = share + z2 / (2 * requests)
    width = _Z_95 * math.sqrt(share * (1 - share) / requests + z2 / (4 * requests * requests))
    return max((centre - width) / (1 + z2 / requests), 0.0)


@dataclass(slots=True)
class _Past:
    """What is remembered of an endpoint that was left out."""

    until_s: float
    for_s: float
    odd: Odd | None


class Ejector:
    """Who is left out now, and until when; of one fleet. Plain calls."""

    def __init__(self, rules: OutlierRules) -> None:
        self._rules = rules
        self._past: dict[str, _Past] = {}

    @property
    def ejected(self) -> dict[str, Odd]:
        """Who is left out, and for what."""
        return {endpoint_id: past.odd for endpoint_id, past in self._past.items() if past.odd is not None}

    def look(self, groups: Sequence[Sequence[Measured]], now_s: float) -> tuple[list[Odd], list[str]]:
        """Who is left out from now on, and who comes back. Each group is of endpoints that should be alike."""
        back = [one for one, past in self._past.items() if past.odd is not None and past.until_s <= now_s]
        for endpoint_id in back:
            self._past[endpoint_id].odd = None
        out: list[Odd] = []
        for group in groups:
            room = self._room(group)
            # Who comes back is judged at the next look, by what it has done since.
            judged = [one for one in group if not self._is_out(one.endpoint_id) and one.endpoint_id not in back]
            for odd in odd_ones(judged, self._rules):
                if room <= 0:
                    break
                room -= 1
                self._eject(odd, now_s)
                out.append(odd)
        return out, back

    def until_s(self, endpoint_id: str) -> float | None:
        """When an endpoint comes back; None where it is not left out."""
        return self._past[endpoint_id].until_s if self._is_out(endpoint_id) else None

    def removed(self, endpoint_id: str) -> None:
        """An endpoint is none of the fleet any more, or another engine: nothing is held against it."""
        self._past.pop(endpoint_id, None)

    def _is_out(self, endpoint_id: str) -> bool:
        past = self._past.get(endpoint_id)
        return past is not None and past.odd is not None

    def _room(self, group: Sequence[Measured]) -> int:
        gone = sum(not one.available or self._is_out(one.endpoint_id) for one in group)
        return math.floor(self._rules.most_share * len(group)) - gone

    def _eject(self, odd: Odd, now_s: float) -> None:
        """For longer than last time, unless it then stayed in for as long as the longest."""
        past, rules = self._past.get(odd.endpoint_id), self._rules
        for_s = rules.base_s
        if past is not None and now_s - past.until_s < rules.most_s:
            for_s = min(past.for_s * 2, rules.most_s)
        self._past[odd.endpoint_id] = _Past(now_s + for_s, for_s, odd)
