"""The speed of one endpoint, fitted while it serves. Pure: the time is an argument.

    seconds of a prefill  =  φ₀ · base  +  φ₁ · u / rate  +  φ₂ · quad · u · n         base, rate, quad: the prior's

    sample ──> e = ln(measured / predicted) ──> clamped to ±gate ──> weighted least squares in φ ──> PerfModel
                     │                            3 × the 80th percentile of the last 32 |e|
                     └── 8 of the last 9 far to one side: no outliers, another speed. All of φ is scaled at once.

*Relative errors.* A sample weighs 1 / predicted², so a hit of 20 ms says as much about `base` as a prompt of 20 s says
about `quad`.

*Robust.* Nothing moves the fit by more than its gate: a preempted request is a sample that is a little too slow. A
sample is never dropped for being far off, since a kind of prompt of which the fit is wrong looks just like that; the
gate opens when more than an eighth of them are.

*What cannot be told apart* (only hits, one length) keeps the prior's proportions: least squares is drawn, weakly, to
L·(1, 1, 1), where L is the one factor by which this machine differs from the prior. So the sum is right from a few
samples on, and the split is the prior's until prompts of other lengths tell it.

*Forgetting.* A sample's weight falls by 1/e in 120 samples, or in ten minutes. A jump of the speed shows in nine
samples; what was learned of the split is kept and counts for as much as ten samples from then on.

*Late insight.* The last 128 samples are kept, and every 16th time all are weighed anew by the present fit: at the start
they were weighed by a prior that may have been a hundred times wrong.

A decode has one coefficient, the time between tokens: the median of the last 33 answers, the prior being five of them.
"""

import itertools
import math
from collections import deque
from dataclasses import dataclass, replace
from typing import Final

from backends.perf import PerfModel

MEMORY_SAMPLES: Final = 120.0
MEMORY_S: Final = 600.0
PRIOR_WEIGHT: Final = 3.0
"""Samples that the prior stands for: prompts of `TYPICAL_TOKENS` that took what it says."""
TYPICAL_TOKENS: Final = 512
SPLIT_WEIGHT: Final = 0.05
"""How strongly proportions are drawn to the prior's: as by a twentieth of a sample that tells nothing else."""
JUMP: Final = 0.2
"""Where all but one of the latest `ln(measured / predicted)` are beyond this to one side, it is another speed."""
_JUMP_SAMPLES: Final = 9
_JUMPS = (-9.0, 9.0)
_KEPT_WEIGHT: Final = 10.0
_DOUBTED_WEIGHT: Final = 0.5
REFIT_EVERY: Final = 16
_EARLY_REFITS: Final = (4, 8, 12)
_MOST_KNOWN: Final = 128
_MOST_IDLE_S: Final = 4 * MEMORY_S
_MOST_ROUNDS: Final = 4
_MOST_OUTLIERS: Final = 0.12
"""Where more samples than this are far off, they are no outliers: the fit is wrong about prompts of a kind."""
_SCATTER_SAMPLES: Final = 32
_GATE_AT_START: Final = 2.0
_SCATTER_QUANTILE: Final = 0.8
_GATES = (0.25, 3.0)
_FLOORS: Final = (0.01, 0.01, 0.001)
"""Each coefficient is at least this part of what the prior's proportions would make it: no work is free."""
_DECODE_SAMPLES: Final = 33
_DECODE_PRIOR_SAMPLES: Final = 5

_BASE_S = (1e-6, 600.0)
_TOKEN_S = (1e-9, 10.0)
_PAIR_S = (1e-16, 1e-3)
_ITL_S = (1e-6, 60.0)
_SECONDS = (1e-9, 1e6)
_WEIGHTS = (1e-3, 1e3)
_MOST_TOKENS: Final = 1e9

Triple = tuple[float, float, float]
Matrix = tuple[float, float, float, float, float, float]
_NOTHING: Final[Matrix] = (0.0,) * 6


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
    """The fit of one endpoint. A prefill takes 10 µs, each `REFIT_EVERY`th 150 µs more."""

    __slots__ = (
        "_at_s",
        "_decodes",
        "_forgotten",
        "_gate",
        "_known",
        "_latest",
        "_matrix",
        "_phi",
        "_prior",
        "_scales",
        "_vector",
        "clamped",
        "model",
        "samples",
    )

    def __init__(self, prior: PerfModel) -> None:
        self._prior = prior
        token_s = 1 / prior.prefill_tokens_per_s
        # Where the prior says 0 there is no proportion; these are small ones.
        self._scales: Triple = (prior.base_s or token_s, token_s, prior.quad_s_per_token2 or token_s / 1e6)
        self.samples = 0
        """Prefills that were measured."""
        self.clamped = 0
        """Of them, those beyond the gate."""
        self.model = prior
        """The speed as fitted: finite, positive and within bounds, whatever was measured."""
        self._decodes: deque[float] = deque(maxlen=_DECODE_SAMPLES)
        self._latest: deque[float] = deque(maxlen=_JUMP_SAMPLES)
        self._gate = _GATE_AT_START
        self._phi: Triple = (1.0, 1.0, 1.0)
        self._at_s = self._forgotten = 0.0
        typical = self._features(1, TYPICAL_TOKENS, TYPICAL_TOKENS**2)
        self._known: deque[_Known] = deque([_Known(typical, sum(typical), PRIOR_WEIGHT, 0.0)], maxlen=_MOST_KNOWN)
        self._matrix: Matrix = _NOTHING
        self._vector: Triple = (0.0, 0.0, 0.0)
        self._refit()

    def prefill(self, sample: PrefillSample, now_s: float) -> bool:
        """Learn from a prefill; False, and nothing changes, where it cannot have been one. Amortised O(1)."""
        if not _is_possible(sample):
            return False
        features = self._features(sample.prompts, sample.tokens, sample.pairs)
        known = _Known(features, sample.seconds, sample.weight, self._forget(now_s))
        self.samples += 1
        self._known.append(known)
        self._latest.append(self._add(known, 1.0))
        if abs(self._latest[-1]) > self._gate:
            self.clamped += 1
        if self._jump() or self.samples % REFIT_EVERY == 0 or self.samples in _EARLY_REFITS:
            self._refit()
        self._solve()
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
        kept = min(_DOUBTED_WEIGHT / self._weight_of(len(self._known)), 1.0)
        self._known = deque(
            (replace(known, weight=known.weight * kept) for known in self._known), maxlen=self._known.maxlen
        )
        self._latest.clear()
        self._refit()
        self._gate = _GATE_AT_START

    def _features(self, prompts: float, tokens: float, pairs: float) -> Triple:
        """Seconds of each term by the prior."""
        base_s, token_s, pair_s = self._scales
        return prompts * base_s, tokens * token_s, pairs * pair_s

    def _add(self, known: "_Known", part: float) -> float:
        """Add a sample to the sums, `part` of its weight; how far off it is, as a logarithm."""
        x, y, z = known.features
        p0, p1, p2 = self._phi
        predicted_s = p0 * x + p1 * y + p2 * z
        error = math.log(known.seconds / predicted_s)
        gate = self._gate
        by = part * known.weight / predicted_s
        b_by = by * math.exp(-gate if error < -gate else gate if error > gate else error)
        by /= predicted_s
        xx, xy, xz, yy, yz, zz = self._matrix
        x_by, y_by, z_by = x * by, y * by, z * by
        self._matrix = (xx + x_by * x, xy + x_by * y, xz + x_by * z, yy + y_by * y, yz + y_by * z, zz + z_by * z)
        b0, b1, b2 = self._vector
        self._vector = (b0 + x * b_by, b1 + y * b_by, b2 + z * b_by)
        return error

    def _forget(self, now_s: float) -> float:
        """Make what is known so far count for less; how much has been forgotten since the start, as a logarithm."""
        passed_s = min(max(now_s - self._at_s, 0.0), _MOST_IDLE_S) if self.samples and math.isfinite(now_s) else 0.0
        self._at_s = now_s if math.isfinite(now_s) else self._at_s
        forgotten = 1 / MEMORY_SAMPLES + passed_s / MEMORY_S
        self._forgotten += forgotten
        kept = math.exp(-forgotten)
        xx, xy, xz, yy, yz, zz = self._matrix
        self._matrix = (xx * kept, xy * kept, xz * kept, yy * kept, yz * kept, zz * kept)
        b0, b1, b2 = self._vector
        self._vector = (b0 * kept, b1 * kept, b2 * kept)
        return self._forgotten

    def _refit(self) -> None:
        """Weigh all that is known anew, by the present fit: what was unlikely when it came may be likely now."""
        for _ in range(_MOST_ROUNDS):
            self._matrix, self._vector = _NOTHING, (0.0, 0.0, 0.0)
            errors = [self._add(known, math.exp(known.forgotten - self._forgotten)) for known in self._known]
            self._solve()
            if self.samples < _EARLY_REFITS[0]:
                return
            off = list(map(abs, errors))
            latest = sorted(off[-_SCATTER_SAMPLES:])
            self._gate = _within(3 * latest[int(_SCATTER_QUANTILE * len(latest))], _GATES)
            for at in range(-len(self._latest), 0):
                self._latest[at] = errors[at]
            if sum(error > self._gate for error in off) <= _MOST_OUTLIERS * len(off):
                return

    def _jump(self) -> bool:
        """Where most of the latest samples are off to one side, the speed is another one.

        What is known from before then counts as if it had been so fast as well, but for no more than `_KEPT_WEIGHT`.
        """
        if len(self._latest) < _JUMP_SAMPLES:
            return False
        ordered = sorted(self._latest)
        middle = ordered[_JUMP_SAMPLES // 2]
        # All but one: where they are off to both sides, the split is wrong, which least squares will find.
        if ordered[1] < JUMP and ordered[-2] > -JUMP:
            return False
        slower = math.exp(_within(middle, _JUMPS))
        before = len(self._known) - len(self._latest)
        kept = _KEPT_WEIGHT / max(self._weight_of(before), _KEPT_WEIGHT)
        for at in range(before):
            known = self._known[at]
            self._known[at] = replace(known, seconds=known.seconds * slower, weight=known.weight * kept)
        half = middle / 2
        for at, error in enumerate(self._latest, before):
            known = self._known[at]
            if abs(error) < abs(half) or error * middle < 0:  # it was of the old speed
                self._known[at] = replace(known, seconds=known.seconds * slower)
        p0, p1, p2 = self._phi
        self._phi = (p0 * slower, p1 * slower, p2 * slower)
        self._latest.clear()
        return True

    def _weight_of(self, first: int) -> float:
        """What the `first` samples that are known weigh together."""
        known = itertools.islice(self._known, first)
        return sum(one.weight * math.exp(one.forgotten - self._forgotten) for one in known)

    def _solve(self) -> None:
        """The φ of least squares, none below its floor, drawn weakly to the prior's proportions."""
        xx, xy, xz, yy, yz, zz = self._matrix
        b0, b1, b2 = self._vector
        level = (b0 + b1 + b2) / (xx + yy + zz + 2 * (xy + xz + yz))
        p0, p1, p2 = self._phi
        prior = self._prior
        draw0, to0 = _draw(p0, level if prior.base_s else 0.0, level)
        draw1, to1 = _draw(p1, level, level)
        draw2, to2 = _draw(p2, level if prior.quad_s_per_token2 else 0.0, level)
        phi = _bounded_minimum(
            (xx + draw0, xy, xz, yy + draw1, yz, zz + draw2),
            (b0 + to0, b1 + to1, b2 + to2),
            (level * _FLOORS[0], level * _FLOORS[1], level * _FLOORS[2]),
        )
        by_base_s, by_token_s, by_pair_s = self._scales
        base_s = _within(phi[0] * by_base_s, _BASE_S)
        token_s = _within(phi[1] * by_token_s, _TOKEN_S)
        pair_s = _within(phi[2] * by_pair_s, _PAIR_S)
        self._phi = (base_s / by_base_s, token_s / by_token_s, pair_s / by_pair_s)
        if self.samples:
            self.model = PerfModel(
                base_s=base_s,
                prefill_tokens_per_s=1 / token_s,
                quad_s_per_token2=pair_s,
                itl_s=self.model.itl_s,
                itl_s_per_request=prior.itl_s_per_request,
                itl_s_per_context_token=prior.itl_s_per_context_token,
            )


@dataclass(frozen=True, slots=True)
class _Known:
    """A sample as it is kept: its terms by the prior, and how much had been forgotten when it came."""

    features: Triple
    seconds: float
    weight: float
    forgotten: float


def _is_possible(sample: PrefillSample) -> bool:
    """Whether this can have been a prefill: a clock that went back, or an answer from nowhere, is none."""
    return (
        _SECONDS[0] <= sample.seconds <= _SECONDS[1]
        and 0 < sample.tokens <= _MOST_TOKENS
        and 0 <= sample.pairs <= _MOST_TOKENS * _MOST_TOKENS
        and 0 < sample.prompts <= _MOST_TOKENS
        and _WEIGHTS[0] <= sample.weight <= _WEIGHTS[1]
    )


def _draw(phi: float, towards: float, level: float) -> tuple[float, float]:
    """What draws a coefficient to the prior's proportions: a square whose value at `phi` is that of a logarithm's.

    By a plain square a proportion that is really twenty times the prior's would be drawn as by forty samples.
    """
    ratio = phi / level
    if not towards:
        return SPLIT_WEIGHT / (level * level * max(ratio, 1.0) ** 2), 0.0
    slope = math.log(ratio) / (ratio - 1) if abs(ratio - 1) > 1e-3 else 1.0
    draw = SPLIT_WEIGHT * slope * slope / (level * level)
    return draw, draw * towards


def _bounded_minimum(matrix: Matrix, vector: Triple, floors: Triple) -> Triple:
    """The p >= floors that makes pᵀMp/2 - vᵀp least, M symmetric and positive definite: by its upper triangle.

    Coordinate by coordinate from the unbounded one, which is exact where no bound holds.
    """
    xx, xy, xz, yy, yz, zz = matrix
    b0, b1, b2 = vector
    f0, f1, f2 = floors
    c0, c1, c2 = yy * zz - yz * yz, xz * yz - xy * zz, xy * yz - xz * yy
    det = xx * c0 + xy * c1 + xz * c2
    if det > 0:
        d1, d2, d3 = xx * zz - xz * xz, xy * xz - xx * yz, xx * yy - xy * xy
        p0 = (c0 * b0 + c1 * b1 + c2 * b2) / det
        p1 = (c1 * b0 + d1 * b1 + d2 * b2) / det
        p2 = (c2 * b0 + d2 * b1 + d3 * b2) / det
        if p0 >= f0 and p1 >= f1 and p2 >= f2:
            return p0, p1, p2
        p0, p1, p2 = max(p0, f0), max(p1, f1), max(p2, f2)
    else:
        p0, p1, p2 = f0, f1, f2
    for _ in range(_SWEEPS):
        p0 = max((b0 - xy * p1 - xz * p2) / xx, f0)
        p1 = max((b1 - xy * p0 - yz * p2) / yy, f1)
        p2 = max((b2 - xz * p0 - yz * p1) / zz, f2)
    return p0, p1, p2


_SWEEPS: Final = 8


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def _within(value: float, bounds: tuple[float, float]) -> float:
    return min(max(value, bounds[0]), bounds[1])
