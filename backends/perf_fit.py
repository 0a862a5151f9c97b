"""The speed of one endpoint, fitted while it serves. Pure: the time is an argument.

    seconds of a prefill  =  φ₀ · base  +  φ₁ · u / rate  +  φ₂ · quad · u · n         base, rate, quad: the prior's

    sample ──> e = ln(measured / predicted) ──> clamped to ±gate ──> weighted least squares in φ ──> PerfModel
      │              │                            3 × the 80th percentile of the last 32 |e|
      │              └── 8 of the last 9 of a kind far to one side: no outliers, another speed
      └── kept with those of its size (u, by powers of two); the size with the most loses its oldest

*Relative errors.* A sample weighs 1 / predicted², so a hit of 20 ms says as much about `base` as a prompt of 20 s says
about `quad`, and hardly anything about what is a small part of its seconds.

*Robust.* Nothing moves the fit by more than its gate: a preempted request is a sample that is a little too slow. A
sample is never dropped for being far off, since a kind of prompt of which the fit is wrong looks just like that; the
gate opens when more than an eighth are.

*What is no longer asked stays known.* Once nearly all is cached, every prompt is short, and no number of them says what
a long one takes. So a few of each size are always kept: of 192, the oldest of the size with the most goes. A sample
counts for less as it ages (1/e in 120 samples, or in ten minutes), but never for less than a tenth. And as the base
moves (hits wait for a step that others' answers fill), what is older is taken to have had that base too.

*What cannot be told apart* (only hits, one length) stays near the prior, each coefficient by itself: least squares is
drawn, weakly, to (ln φ)² = 0 of each. So a surprise moves a coefficient by as much as it is part of the prediction: 16
tokens that take 50 ms and not 12 move the base, and leave the rate alone.

*Another speed* is looked for among prompts of which most is base, where it moves the base, and among the others, where
it moves the rest. What was measured before is taken to have been as much slower as the fit now says, and counts for as
much as ten samples from then on. Prompts of which the fit says about the same as before count as before, and so do long
ones if only the base has moved.

*Steady.* The rate and the quadratic term that are told never move by more than a factor of two in eight samples, unless
the samples are of prompts of which they are the greater part.

*Late insight.* Every 24th time all that is kept is weighed anew by the present fit: at the start it was weighed by a
prior that may have been a hundred times wrong.

A decode has one coefficient, the time between tokens: the median of the last 33 answers, the prior being five of them.
"""

import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

from backends.least_squares import NO_SUMS, Sums, Triple, drawn, logarithmic_step, minimum, plus, scaled
from backends.perf import PerfModel

MEMORY_SAMPLES: Final = 120.0
MEMORY_S: Final = 600.0
MOST_KEPT: Final = 192
_LEAST_KEPT: Final = 0.1
"""A sample that is kept never counts for less than this part of what it did."""
PRIOR_WEIGHT: Final = 3.0
"""Samples that the prior stands for: prompts of `TYPICAL_TOKENS` that took what it says."""
TYPICAL_TOKENS: Final = 512
JUMP: Final = 0.2
"""Where all but one of the latest `ln(measured / predicted)` are beyond this to one side, it is another speed."""
_JUMP_SAMPLES: Final = 9
_JUMPS = (-9.0, 9.0)
_KEPT_WEIGHT: Final = 10.0
_DOUBTED_WEIGHT: Final = 0.5
REFIT_EVERY: Final = 24
_EARLY_REFITS: Final = (4, 8, 12, 16, 32, 40)
_MOST_IDLE_S: Final = 4 * MEMORY_S
_MOST_ROUNDS: Final = 4
_POOL_ROUNDS: Final = 4
_MOST_OUTLIERS: Final = 0.12
"""Where more samples than this are far off, they are no outliers: the fit is wrong about prompts of a kind."""
_SCATTER_SAMPLES: Final = 32
_GATE_AT_START: Final = 2.0
_SCATTER_QUANTILE: Final = 0.8
_GATES = (0.25, 3.0)
_YOUNG: Final = 0.7
"""While this part of its weight is left, a sample's gate may open. Later, others' scatter says nothing of it."""
_STEADY_STEP: Final = math.log(2) / 8
"""By how much the logarithm of a rate that is told moves with any one sample."""
_LONG_STEP: Final = 3.0
"""And by how much more where all the seconds of the sample are that rate's."""
_DECODE_SAMPLES: Final = 33
_DECODE_PRIOR_SAMPLES: Final = 5

_BASE_S = (1e-6, 600.0)
_TOKEN_S = (1e-9, 10.0)
_PAIR_S = (1e-16, 1e-3)
_ITL_S = (1e-6, 60.0)
_SECONDS = (1e-9, 1e6)
_WEIGHTS = (1e-3, 1e3)
_MOST_TOKENS: Final = 1e9


@dataclass(frozen=True, slots=True)
class PrefillSample:
    """Seconds in which an endpoint computed prompts: one, or several whose shares are not known.

    `tokens` are the uncached ones of all of them, `pairs` the sum of uncached · prompt tokens, `weight` how many
    undisturbed single prompts the sample is worth.
    """

    seconds: float
    tokens: float
    pairs: float
    prompts: int = 1
    weight: float = 1.0


class PerfFit:
    """The fit of one endpoint. A prefill takes 10 µs, each `REFIT_EVERY`th 300 µs more."""

    __slots__ = (
        "_aged",
        "_at_s",
        "_decodes",
        "_forgotten",
        "_gate",
        "_kept",
        "_latest",
        "_prior",
        "_recent",
        "_start",
        "clamped",
        "model",
        "phi",
        "samples",
        "scales",
        "sums",
    )

    def __init__(self, prior: PerfModel) -> None:
        self._prior = prior
        token_s = 1 / prior.prefill_tokens_per_s
        # Where the prior says 0 there is no scale; these are small ones.
        self.scales: Triple = (prior.base_s or token_s, token_s, prior.quad_s_per_token2 or token_s / 1e6)
        """What each coefficient is told in."""
        self.samples = 0
        """Prefills that were measured."""
        self.clamped = 0
        """Of them, those beyond the gate."""
        self.model = prior
        """The speed as fitted: finite, positive and within bounds, whatever was measured."""
        self._decodes: deque[float] = deque(maxlen=_DECODE_SAMPLES)
        self._gate = _GATE_AT_START
        self.phi: Triple = (1.0, 1.0, 1.0)
        """The coefficients."""
        self._at_s = self._forgotten = 0.0
        self._aged = self.phi
        typical = self._features(1, TYPICAL_TOKENS, TYPICAL_TOKENS**2)
        self._start = _Known(typical, sum(typical), PRIOR_WEIGHT, 0.0, is_long=True)
        self._kept: dict[int, deque[_Known]] = {}
        self._latest: tuple[deque[_Known], deque[_Known]] = (deque(maxlen=_JUMP_SAMPLES), deque(maxlen=_JUMP_SAMPLES))
        """Of the prompts that are mostly base, and of the others."""
        self._recent: deque[_Known] = deque(maxlen=_SCATTER_SAMPLES)
        self.sums: Sums = NO_SUMS
        """The square that they make least."""
        self._refit()

    def prefill(self, sample: PrefillSample, now_s: float) -> bool:
        """Learn from a prefill; False, and nothing changes, where it cannot have been one. Amortised O(1)."""
        if not _is_possible(sample):
            return False
        features = self._features(sample.prompts, sample.tokens, sample.pairs)
        is_long = 2 * self.phi[0] * features[0] < _seconds(self.phi, features)
        known = _Known(features, sample.seconds, sample.weight, self._forget(now_s), is_long)
        self.samples += 1
        self._keep(known, int(sample.tokens / sample.prompts).bit_length())
        if abs(known.error) > self._gate:
            self.clamped += 1
        self._recent.append(known)
        latest = self._latest[known.is_long]
        latest.append(known)
        if self._jump(latest) or self.samples % REFIT_EVERY == 0 or self.samples in _EARLY_REFITS:
            self._refit()
        self._solve()
        self._tell(sample)
        return True

    def decode(self, itl_s: float) -> bool:
        """Learn the time between the tokens of an answer; False where it cannot have been one. O(1)."""
        if not (math.isfinite(itl_s) and itl_s > 0):
            return False
        self._decodes.append(itl_s)
        prior = [self._prior.itl_s] * max(min(_DECODE_PRIOR_SAMPLES, _DECODE_SAMPLES - len(self._decodes)), 0)
        self.model = replace(self.model, itl_s=_within(_median([*self._decodes, *prior]), _ITL_S))
        return True

    def doubt(self) -> None:
        """What is known may have changed unseen: it stays, but counts for half a sample. O(samples known)."""
        self._limit(list(self._all()), _DOUBTED_WEIGHT)
        for latest in self._latest:
            latest.clear()
        self._refit()
        self._gate = _GATE_AT_START

    def _features(self, prompts: float, tokens: float, pairs: float) -> Triple:
        """Seconds of each term by the prior."""
        base_s, token_s, pair_s = self.scales
        return prompts * base_s, tokens * token_s, pairs * pair_s

    def _all(self) -> Iterator["_Known"]:
        return chain((self._start,), *self._kept.values())

    def _keep(self, known: "_Known", size: int) -> None:
        """Take a sample in, and where they are too many, the oldest of the size with the most out."""
        kept = self._kept.get(size)
        if kept is None:
            kept = self._kept[size] = deque()
        kept.append(known)
        if self.samples > MOST_KEPT:
            self.sums = plus(self.sums, max(self._kept.values(), key=len).popleft().sums, -1.0)
        self._add(known, 1.0)

    def _add(self, known: "_Known", part: float) -> None:
        """Add a sample to the sums, `part` of its weight."""
        x, y, z = known.features
        p0, p1, p2 = self.phi
        predicted_s = p0 * x + p1 * y + p2 * z
        known.error = error = math.log(known.seconds / predicted_s)
        gate = known.gate = self._gate if part > _YOUNG else min(self._gate, known.gate)
        by = part * known.weight / predicted_s
        b_by = by * math.exp(-gate if error < -gate else gate if error > gate else error)
        by /= predicted_s
        x_by, y_by = x * by, y * by
        known.sums = (x_by * x, x_by * y, x_by * z, y_by * y, y_by * z, z * by * z, x * b_by, y * b_by, z * b_by)
        self.sums = plus(self.sums, known.sums, 1.0)

    def _forget(self, now_s: float) -> float:
        """How much has been forgotten since the start, as a logarithm."""
        passed_s = min(max(now_s - self._at_s, 0.0), _MOST_IDLE_S) if self.samples and math.isfinite(now_s) else 0.0
        self._at_s = now_s if math.isfinite(now_s) else self._at_s
        self._forgotten += 1 / MEMORY_SAMPLES + passed_s / MEMORY_S
        return self._forgotten

    def _part(self, known: "_Known") -> float:
        """What is left of the weight of a sample. Nothing, at last, is left of the prior's."""
        left = math.exp(known.forgotten - self._forgotten)
        return left if known is self._start else max(left, _LEAST_KEPT)

    def _limit(self, of: list["_Known"], most: float) -> None:
        """Let these samples weigh no more than this together."""
        weight = sum(known.weight * self._part(known) for known in of)
        if weight > most:
            for known in of:
                known.weight *= most / weight

    def _age(self, everything: list[tuple["_Known", float]]) -> None:
        """Let what is old have taken as much longer as a hit does now, beside what it did when this was last asked."""
        hits = self._latest[0]
        if not hits:
            return
        more_s = sum(_seconds(self.phi, hit.features) - _seconds(self._aged, hit.features) for hit in hits)
        grown = more_s / sum(hit.features[0] for hit in hits)
        self._aged = self.phi
        for known, part in everything:
            now_s = _seconds(self.phi, known.features)
            known.seconds *= now_s / max(now_s - (1 - part) * grown * known.features[0], now_s / 4)

    def _refit(self) -> None:
        """Weigh all that is known anew, by the present fit: what was unlikely when it came may be likely now."""
        everything = [(known, self._part(known)) for known in self._all()]
        self._age(everything)
        for _ in range(_MOST_ROUNDS):
            self.sums = NO_SUMS
            for known, part in everything:
                self._add(known, part)
            self._solve()
            if self.samples < _EARLY_REFITS[0]:
                return
            off = sorted(abs(known.error) for known in self._recent)
            self._gate = _within(3 * off[int(_SCATTER_QUANTILE * len(off))], _GATES)
            outliers = sum(abs(known.error) > self._gate for known, _ in everything)
            if outliers <= _MOST_OUTLIERS * len(everything):
                return

    def _jump(self, latest: deque["_Known"]) -> bool:
        """Where most of the latest samples of a kind are off to one side, the speed is another one.

        What is known from before then counts as if it had been so fast as well, but for no more than `_KEPT_WEIGHT`.
        """
        if len(latest) < _JUMP_SAMPLES:
            return False
        ordered = sorted(known.error for known in latest)
        # All but one: where they are off to both sides, the split is wrong, which least squares will find.
        if ordered[1] < JUMP and ordered[-2] > -JUMP:
            return False
        middle = _within(ordered[_JUMP_SAMPLES // 2], _JUMPS)
        before, is_base = self.phi, latest is self._latest[0]
        self.phi = logarithmic_step(before, [known.features for known in latest], middle, base=is_base)
        news = {id(known) for known in chain(*self._latest) if known.error * middle > middle * middle / 2}
        moved = []
        for known in self._all():
            if id(known) not in news:
                slower = _seconds(self.phi, known.features) / _seconds(before, known.features)
                known.seconds *= slower
                if abs(math.log(slower)) > JUMP / 2 and not (is_base and known.is_long):
                    moved.append(known)
        self._limit(moved, _KEPT_WEIGHT)
        latest.clear()
        self._aged = self.phi
        return True

    def _solve(self) -> None:
        """The φ of least squares for what this fit knows."""
        self.phi = self.solved(self.phi, self.sums)

    def solved(self, phi: Triple, sums: Sums) -> Triple:
        """The φ of least squares, each drawn weakly to the prior's, and none less than a quarter of what it was."""
        prior = self._prior
        draw0, to0 = drawn(phi[0], prior.base_s > 0)
        draw1, to1 = drawn(phi[1], True)
        draw2, to2 = drawn(phi[2], prior.quad_s_per_token2 > 0)
        drawn_sums = plus(sums, (draw0, 0.0, 0.0, draw1, 0.0, draw2, to0, to1, to2), 1.0)
        phi = minimum(drawn_sums, (phi[0] / 4, phi[1] / 4, phi[2] / 4))
        by_base_s, by_token_s, by_pair_s = self.scales
        return (
            _within(phi[0] * by_base_s, _BASE_S) / by_base_s,
            _within(phi[1] * by_token_s, _TOKEN_S) / by_token_s,
            _within(phi[2] * by_pair_s, _PAIR_S) / by_pair_s,
        )

    def _tell(self, sample: PrefillSample) -> None:
        """Move the model to the fit: as far as this sample is evidence of it."""
        told, prior = self.model, self._prior
        long_s = sample.tokens / told.prefill_tokens_per_s + sample.pairs * told.quad_s_per_token2
        step = math.exp(_STEADY_STEP + _LONG_STEP * (long_s / (long_s + sample.prompts * told.base_s)) ** 3)
        phi, (by_base_s, by_token_s, by_pair_s) = self.phi, self.scales
        token_s, pair_s = 1 / told.prefill_tokens_per_s, told.quad_s_per_token2 or by_pair_s
        token_s = _within(phi[1] * by_token_s, (token_s / step, token_s * step))
        pair_s = _within(phi[2] * by_pair_s, (pair_s / step, pair_s * step))
        self.model = PerfModel(
            base_s=_within(phi[0] * by_base_s, _BASE_S),
            prefill_tokens_per_s=1 / _within(token_s, _TOKEN_S),
            quad_s_per_token2=_within(pair_s, _PAIR_S),
            itl_s=told.itl_s,
            itl_s_per_request=prior.itl_s_per_request,
            itl_s_per_context_token=prior.itl_s_per_context_token,
        )


def fit_of_all(fits: Sequence[PerfFit]) -> PerfModel:
    """The speed that the samples of all these fits say together; the prior is the first one's. O(fits).

    The square that each fit makes least is a sum over its samples, so the sum of theirs is that of all samples.
    """
    first = fits[0]
    if len(fits) == 1:
        return first.model
    by_base_s, by_token_s, by_pair_s = first.scales
    sums, phi = NO_SUMS, first.phi
    for fit in fits:
        base_s, token_s, pair_s = fit.scales
        sums = plus(sums, scaled(fit.sums, (by_base_s / base_s, by_token_s / token_s, by_pair_s / pair_s)), 1.0)
    for _ in range(_POOL_ROUNDS):
        phi = first.solved(phi, sums)
    return replace(
        first.model,
        base_s=phi[0] * by_base_s,
        prefill_tokens_per_s=1 / (phi[1] * by_token_s),
        quad_s_per_token2=phi[2] * by_pair_s,
        itl_s=_median([fit.model.itl_s for fit in fits]),
    )


@dataclass(slots=True)
class _Known:
    """A sample as it is kept: its terms by the prior, how much had been forgotten when it came, and what it adds to
    the sums by the fit that weighed it last."""

    features: Triple
    seconds: float
    weight: float
    forgotten: float
    is_long: bool
    gate: float = math.inf
    error: float = 0.0
    sums: Sums = NO_SUMS


def _is_possible(sample: PrefillSample) -> bool:
    """Whether this can have been a prefill: a clock that went back, or an answer from nowhere, is none."""
    return (
        _SECONDS[0] <= sample.seconds <= _SECONDS[1]
        and 0 < sample.tokens <= _MOST_TOKENS
        and 0 <= sample.pairs <= _MOST_TOKENS * _MOST_TOKENS
        and 0 < sample.prompts <= _MOST_TOKENS
        and _WEIGHTS[0] <= sample.weight <= _WEIGHTS[1]
    )


def _seconds(phi: Triple, features: Triple) -> float:
    return phi[0] * features[0] + phi[1] * features[1] + phi[2] * features[2]


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def _within(value: float, bounds: tuple[float, float]) -> float:
    return min(max(value, bounds[0]), bounds[1])
