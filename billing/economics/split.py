r"""An hour of an endpoint, split among the calls that were open in it. Pure, and exact to the last pico-unit.

    hour    |-------------- busy --------------|------- idle -------|
    calls   |== prefill ==|~~~~ decode ~~~~~~~~|                       measured
                  |========= open =========|                           not measured: its seconds are unknown

    1  cost of the hour   = idle + time of calls not measured + time of measured calls
       idle               no call is open
       not measured       of every moment 1/n of it, n calls being open: all that is known of them
       measured           the rest of the busy time
    2  that rest          in the proportion of weights, prefill and decode apart:
       prefill            its seconds: fitted as if it had the GPU alone
       decode             the integral of dt / n over its decoding, n answers being decoded at the time
    3  decode, of a call  f of it reads the KV of the context, and belongs to the tokens there: each token of the
                          prompt, fresh or cached, counts 1, one of the answer 1/2, being there half of the time on
                          average; the rest of it makes output tokens

Why so: a prefill has the GPU's arithmetic to itself, so its seconds are its cost. A step of decoding takes about as
long for one answer as for many (it is bound by reading the weights), so those that share it share its cost. The two run
mixed (chunked prefill), so the seconds overlap and add up to more or less than the time that passed; the proportion of
them is used, not their sum. A token that was cached costs no prefill, but is read in every step: a little, not nothing.

Where measured calls are open and none of them was computed (they wait), they share as the unmeasured do.
Weights are whole picoseconds. Costs: O(n log n) an hour for n calls.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

from billing.economics.rates import KvReading
from billing.economics.types import Call, Measured, Spent

_PS = 10**6
"""Picoseconds of a microsecond: shares of a moment are whole numbers of them."""
_PPM = 10**6


@dataclass(frozen=True, slots=True)
class Hour:
    """What became of an hour, or a part of one. `spent` stands in the order of the calls; only costs are set in it.

    `idle_pico` and the busy costs of `spent` add up to `cost_pico`.
    """

    cost_pico: int
    idle_pico: int
    busy_us: int
    idle_us: int
    spent: tuple[Spent, ...]


def shared(amount: int, weights: Sequence[int]) -> list[int]:
    """`amount` in the proportion of the weights, in whole numbers that add up to it. Raises `ValueError` without any.

    A share is off by less than 1: it is the difference of two rounded-down running sums.
    """
    total = sum(weights)
    if total <= 0 or min(weights) < 0:
        raise ValueError("weights must be 0 or more, and one of them more")
    found, so_far, given = [], 0, 0
    for weight in weights:
        so_far += weight
        until = amount * so_far // total
        found.append(until - given)
        given = until
    return found


def split(start_us: int, end_us: int, cost_pico: int, calls: Sequence[Call], kv: KvReading) -> Hour:
    """Split the cost of [start_us, end_us) among the calls, each of which overlaps it or touches it."""
    opened = _Overlaps([(max(call.start_us, start_us), min(call.end_us, end_us)) for call in calls])
    busy_us = opened.union_us
    idle_us = end_us - start_us - busy_us
    if not busy_us:
        return Hour(cost_pico, cost_pico, 0, idle_us, tuple(Spent() for _ in calls))
    decoding = _Overlaps([_decoding(call, start_us, end_us) for call in calls])
    weights = [
        (_prefill_ps(call, start_us, end_us), decode_ps)
        for call, decode_ps in zip(calls, decoding.shares_ps, strict=True)
    ]
    computed = sum(prefill + decode for prefill, decode in weights) > 0
    is_known = [computed and call.measured is not None and not call.lost for call in calls]
    others_ps = [0 if known else ps for known, ps in zip(is_known, opened.shares_ps, strict=True)]
    known_ps = max(busy_us * _PS - sum(others_ps), 0) if any(is_known) else 0
    idle_pico, known_pico, *others_pico = shared(cost_pico, [idle_us * _PS, known_ps, *others_ps])
    by_weight = shared(known_pico, [ps for pair in weights for ps in pair]) if known_pico else [0] * (2 * len(calls))
    kv_ppm = int(kv.of(_context_tokens(calls, decoding)) * _PPM)
    spent = []
    for at, call in enumerate(calls):
        one = _of_call(call, by_weight[2 * at], by_weight[2 * at + 1], kv_ppm)
        one.lost_pico, one.unmeasured_pico = (others_pico[at], 0) if call.lost else (0, others_pico[at])
        spent.append(one)
    return Hour(cost_pico, idle_pico, busy_us, idle_us, tuple(spent))


def _of_call(call: Call, prefill_pico: int, decode_pico: int, kv_ppm: int) -> Spent:
    measured = call.measured
    if measured is None or not (prefill_pico or decode_pico):
        return Spent()
    context_x2 = measured.context_tokens_x2
    kv_pico = decode_pico * kv_ppm // _PPM if context_x2 else 0
    fresh_pico = kv_pico * 2 * measured.fresh_tokens // context_x2 if context_x2 else 0
    cached_pico = kv_pico * 2 * measured.cached_tokens // context_x2 if context_x2 else 0
    return Spent(
        prefill_pico=prefill_pico,
        context_pico=fresh_pico,
        cached_pico=cached_pico,
        output_pico=decode_pico - fresh_pico - cached_pico,
    )


def _decoding(call: Call, start_us: int, end_us: int) -> tuple[int, int]:
    """The part of its decoding inside: the last `decode_us` before its end."""
    if call.measured is None or call.lost:
        return (start_us, start_us)
    began_us = max(call.end_us - call.measured.decode_us, call.start_us)
    return (max(began_us, start_us), min(call.end_us, end_us))


def _prefill_ps(call: Call, start_us: int, end_us: int) -> int:
    """What of its prefill is inside, if it lay right before its decoding; all of it where it took no time."""
    measured = call.measured
    if measured is None or call.lost:
        return 0
    until_us = max(call.end_us - measured.decode_us, call.start_us)
    from_us = max(until_us - measured.prefill_us, call.start_us)
    whole_ps = measured.prefill_us * _PS
    if from_us == until_us:
        return whole_ps if start_us <= until_us < end_us else 0
    done_us, before_us = (min(max(at, from_us), until_us) - from_us for at in (end_us, start_us))
    return whole_ps * done_us // (until_us - from_us) - whole_ps * before_us // (until_us - from_us)


def _context_tokens(calls: Iterable[Call], decoding: "_Overlaps") -> Fraction:
    """Tokens in the contexts that were decoded together, on average over the time in which any was."""
    if not decoding.union_us:
        return Fraction(0)
    measured: list[tuple[Measured, int]] = [
        (call.measured, length_us)
        for call, length_us in zip(calls, decoding.lengths_us, strict=True)
        if call.measured is not None
    ]
    return Fraction(sum(one.context_tokens_x2 * us for one, us in measured), 2 * decoding.union_us)


class _Overlaps:
    """Spans over one another: how long any was open, and each one's share of that, 1/n of a moment at which n are."""

    def __init__(self, spans: Sequence[tuple[int, int]]) -> None:
        steps: dict[int, int] = {}
        for start_us, end_us in spans:
            if end_us > start_us:
                steps[start_us] = steps.get(start_us, 0) + 1
                steps[end_us] = steps.get(end_us, 0) - 1
        self.union_us = 0
        self.lengths_us = [max(end_us - start_us, 0) for start_us, end_us in spans]
        reached_ps: dict[int, int] = {}
        marks, n, passed_ps = sorted(steps), 0, 0
        for at, then in pairwise(marks):
            reached_ps[at] = passed_ps
            n += steps[at]
            if n:
                self.union_us += then - at
                passed_ps += (then - at) * _PS // n
        if marks:
            reached_ps[marks[-1]] = passed_ps
        self.shares_ps = [
            reached_ps[end_us] - reached_ps[start_us] if end_us > start_us else 0 for start_us, end_us in spans
        ]
