"""What holds the engines up, and what to turn: rules, written as a table. Pure.

    share of busy time in prefill   ≥ 60 %: prefill   ≤ 40 %: decode   between: both
    which 90 % quantile is over its limit at the least load: that limit binds

Twice as fast a prefill at a share p of the time serves 1 / (1 − p / 2) times as many (Amdahl, 1967): at 60 % that is
1.43 times, and twice as fast a decode 1.25. Between 40 % and 60 % it makes little difference which of both is turned.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final, TypeGuard

from gateway.measuring.knee import LEAST_LEVELS
from gateway.measuring.types import Binds, Bottleneck, Knee, Level, Limits, Spread, Verdict

PREFILL_FROM: Final = 0.6
DECODE_TO: Final = 0.4
_SERVED: Final = 0.95
"""Of what came: less is a queue that grows."""
_REUSE_LEFT: Final = 0.05
"""Prompt tokens that are computed again, from which on they are worth a line."""
_SAME_ITL: Final = 1.1
"""Times as long between tokens, up to which the batch has not grown."""
_LATER: Final = 1.5
"""Times as late a first token, from which on it is no chance."""
_MORE: Final = 1.25
"""Times as many in flight, from which on two levels can be held against each other."""


@dataclass(frozen=True, slots=True)
class Situation:
    """What the rules look at. `queues`: first tokens come later while tokens come as fast: requests wait before the
    batch. `reuse_left`: cached tokens that could have been, and were not."""

    bottleneck: Bottleneck
    binds: Binds
    is_saturated: bool
    queues: bool
    reuse_left: bool


@dataclass(frozen=True, slots=True)
class Rule:
    """What to turn where all that is named is so; None: whatever it is."""

    says: str
    bottleneck: frozenset[Bottleneck] | None = None
    binds: frozenset[Binds] | None = None
    is_saturated: bool | None = None
    queues: bool | None = None
    reuse_left: bool | None = None

    def fits(self, at: Situation) -> bool:
        """Whether the rule is for this situation."""
        flags = ((self.is_saturated, at.is_saturated), (self.queues, at.queues), (self.reuse_left, at.reuse_left))
        return (
            (self.bottleneck is None or at.bottleneck in self.bottleneck)
            and (self.binds is None or at.binds in self.binds)
            and all(wanted is None or wanted is found for wanted, found in flags)
        )


_PREFILL, _DECODE, _BOTH = (frozenset((one,)) for one in (Bottleneck.PREFILL, Bottleneck.DECODE, Bottleneck.BOTH))
_PROMPTS: Final = _PREFILL | _BOTH
_TTFT, _ITL = frozenset((Binds.TTFT,)), frozenset((Binds.ITL,))
_NO_LIMIT: Final = frozenset((Binds.NEITHER, Binds.NONE_GIVEN))

RULES: Final = (
    Rule(
        "keep more prefixes where they are asked for again: routing by prefix, a larger KV cache or a tier below it, "
        "fixed text before changing text (prefixgate lint)",
        _PROMPTS,
        reuse_left=True,
    ),
    Rule(
        "larger steps (max_num_batched_tokens, chunked-prefill-size), as far as the ITL allows", _PREFILL, binds=_TTFT
    ),
    Rule("8-bit weights and activations: prefill is arithmetic", _PROMPTS, binds=_TTFT | _NO_LIMIT),
    Rule(
        "smaller chunks of prefill (max_num_batched_tokens, chunked-prefill-size): each one holds up all answers",
        _PROMPTS,
        binds=_ITL,
    ),
    Rule("prefill and decode on engines of their own (docs/disaggregation.md)", _PROMPTS, binds=_ITL),
    Rule("fewer answers at once (max_num_seqs), and more replicas", _DECODE | _BOTH, binds=_ITL),
    Rule(
        "more answers at once (max_num_seqs) and the KV cache that they take: requests wait before the batch",
        _DECODE | _BOTH,
        binds=_TTFT | _NO_LIMIT,
        queues=True,
    ),
    Rule(
        "less to read in each step: 8- or 4-bit weights, an 8-bit KV cache, tensor parallel; or fewer steps: "
        "speculative decoding",
        _DECODE | _BOTH,
    ),
    Rule("larger batches while the ITL allows it (max_num_seqs)", _DECODE, binds=_NO_LIMIT, queues=False),
    Rule("more replicas", binds=_TTFT | _NO_LIMIT, is_saturated=True),
    Rule("nothing yet: offer more load, no limit is broken and no knee reached", binds=_NO_LIMIT, is_saturated=False),
)
"""In the order in which they are told."""


def verdict_of(
    levels: Sequence[Level], knee: Knee | None, limits: Limits, hit_share: float | None, ceiling_share: float | None
) -> Verdict:
    """The verdict on levels in order of what was in flight, at least one. What takes the time is told of the first at
    which a limit is broken, since there it must be mended, else of the busiest."""
    known = [one for one in levels if one.prefill_share is not None] or levels[-1:]
    judged = next((one for one in known if _breaks(one, limits)), known[-1])
    left = None if hit_share is None or ceiling_share is None else ceiling_share - hit_share
    at = Situation(
        bottleneck=bottleneck_of(judged.prefill_share),
        binds=binds_of(levels, limits),
        is_saturated=_is_saturated(levels, knee),
        queues=_queues(levels),
        reuse_left=_is_worth(left),
    )
    return Verdict(
        bottleneck=at.bottleneck,
        binds=at.binds,
        is_saturated=at.is_saturated,
        reasons=(*_of_time(judged), *_of_limits(levels, limits), *_of_load(levels, knee, at), *_of_reuse(left)),
        turn=tuple(rule.says for rule in RULES if rule.fits(at)),
    )


def bottleneck_of(prefill_share: float | None) -> Bottleneck:
    """By the share of busy time that goes into prefill."""
    if prefill_share is None:
        return Bottleneck.UNKNOWN
    if prefill_share >= PREFILL_FROM:
        return Bottleneck.PREFILL
    return Bottleneck.DECODE if prefill_share <= DECODE_TO else Bottleneck.BOTH


def binds_of(levels: Sequence[Level], limits: Limits) -> Binds:
    """Whose 90 % quantile is over its limit first as load rises; of both at one level, by how many times it is over."""
    if limits.are_none:
        return Binds.NONE_GIVEN
    for level in levels:
        over = {Binds.TTFT: _times_over(level.ttft, limits.ttft_s), Binds.ITL: _times_over(level.itl, limits.itl_s)}
        worst = max(over, key=lambda limit: over[limit])
        if over[worst] > 1:
            return worst
    return Binds.NEITHER


def _breaks(level: Level, limits: Limits) -> bool:
    return max(_times_over(level.ttft, limits.ttft_s), _times_over(level.itl, limits.itl_s)) > 1


def _is_worth(left: float | None) -> TypeGuard[float]:
    return left is not None and left >= _REUSE_LEFT


def _times_over(spread: Spread | None, limit_s: float | None) -> float:
    """The 90 % quantile over its limit; 0 where either is not there."""
    if spread is None or limit_s is None:
        return 0.0
    return spread.p90 / limit_s if limit_s > 0 else inf


def _is_saturated(levels: Sequence[Level], knee: Knee | None) -> bool:
    return any(map(_fell_behind, levels)) or (knee is not None and knee.is_reached)


def _fell_behind(level: Level) -> bool:
    """Held against the requests that came: of arrivals by chance they are now more and now fewer than the rate."""
    return (
        level.rate_per_s is not None
        and level.requests_per_s < _SERVED * level.requests / level.seconds
        and level.in_flight > 1
    )


def _queues(levels: Sequence[Level]) -> bool:
    """Whether from the last level but one to the last first tokens came later while tokens came as fast."""
    if len(levels) < 2:
        return False
    before, last = levels[-2], levels[-1]
    if before.ttft is None or last.ttft is None or before.itl is None or last.itl is None:
        return False
    # Where all prompts that are under way, computed one after the other, take as long, it is them that are waited for.
    prefills_s = last.in_flight * last.prefill.mean if last.prefill is not None else 0.0
    return (
        last.ttft.p50 >= _LATER * prefills_s
        and last.in_flight >= _MORE * before.in_flight
        and last.ttft.p50 >= _LATER * before.ttft.p50
        and last.itl.p50 <= _SAME_ITL * before.itl.p50
    )


def _of_time(judged: Level) -> Iterator[str]:
    share = judged.prefill_share
    if share is None:
        yield "how fast prompts are computed is not known, so neither is what takes the time"
        return
    what, part = ("prefill", share) if share >= 0.5 else ("decode", 1 - share)
    yield f"at {judged.in_flight:.1f} in flight, busy engines spend {share:.0%} of their time in prefill"
    yield f"twice as fast a {what} would serve {1 / (1 - part / 2):.2f} times as many"


def _of_limits(levels: Sequence[Level], limits: Limits) -> Iterator[str]:
    if limits.ttft_s is not None:
        yield _against("TTFT", limits.ttft_s, levels, [level.ttft for level in levels])
    if limits.itl_s is not None:
        yield _against("ITL", limits.itl_s, levels, [level.itl for level in levels])


def _against(name: str, limit_s: float, levels: Sequence[Level], spreads: Sequence[Spread | None]) -> str:
    for level, spread in zip(levels, spreads, strict=True):
        if spread is not None and spread.p90 > limit_s:
            return f"{name} p90 is {spread.p90:.3g} s at {level.in_flight:.1f} in flight, over {limit_s:g} s"
    if not any(spreads):
        return f"{name} is not known, so neither is whether it stays within {limit_s:g} s"
    return f"{name} p90 stays within {limit_s:g} s at every load"


def _of_load(levels: Sequence[Level], knee: Knee | None, at: Situation) -> Iterator[str]:
    if knee is not None:
        seen = "reached" if knee.is_reached else "beyond what was offered"
        yield f"the knee is at {knee.in_flight:.1f} in flight and {knee.requests_per_s:.3g} requests/s, {seen}"
    elif len(levels) < LEAST_LEVELS:
        yield f"a knee takes {LEAST_LEVELS} levels of load or more to be seen"
    elif not at.is_saturated:
        yield "more load was served in proportion: no knee"
    if at.queues:
        yield "at the last level first tokens come later and tokens as fast: requests wait before the batch"


def _of_reuse(left: float | None) -> Iterator[str]:
    if _is_worth(left):
        yield f"{left:.0%} of prompt tokens had been computed before, and were not found again"
