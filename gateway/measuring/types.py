"""The nouns of a measurement.

    Seen, Seen, ... --(a window of one load)--> Level --(one after the other)--> Study
    one request         who came in it               figures: rates, spreads,        knee, verdict
                                                     shares of time

Seconds count from the beginning of the measurement. What nobody told is None, never 0.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from msgspec import Struct

MOST_TOKENS: Final = 10_000_000
"""Of a prompt or an answer, and groups: beyond nothing is measured."""
MOST_CV: Final = 100.0
"""Of lengths, and of the gaps between requests."""


class Seen(Struct, frozen=True, gc=False):
    """One request. `asked_s` is when it was meant to be sent, so that a generator that comes late hides no waiting.

    `first_s` after that the first token came, in `decode_s` more the last, and `ended_s` is when it was over, well
    (`is_whole`) or not; None: it was cut off, or nobody saw it. `prefill_s` is what computing its prompt takes the
    engine alone, by a fitted speed. `endpoint`: who answered, "" where it was not told.
    """

    asked_s: float
    first_s: float | None
    decode_s: float | None
    ended_s: float | None
    is_whole: bool
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    prefill_s: float | None = None
    endpoint: str = ""

    @property
    def itl_s(self) -> float | None:
        """Seconds between two tokens of this answer, their mean; None of one token."""
        if self.decode_s is None or self.output_tokens is None or self.output_tokens < 2:
            return None
        return self.decode_s / (self.output_tokens - 1)


@dataclass(frozen=True, slots=True)
class Limits:
    """What nine of ten requests are to keep, as in `prefixgate plan`; None: no limit."""

    ttft_s: float | None = None
    itl_s: float | None = None

    @property
    def are_none(self) -> bool:
        """Whether anything goes."""
        return self.ttft_s is None and self.itl_s is None


@dataclass(frozen=True, slots=True)
class Spread:
    """Values of one kind, in its unit. Quantiles are by nearest rank."""

    count: int
    mean: float
    least: float
    p50: float
    p90: float
    p99: float
    most: float


@dataclass(frozen=True, slots=True)
class Window:
    """One load for a while: those asked in [from_s, to_s) are told of, those before warmed up, after it nobody came.

    `rate_per_s` or `clients` is what was offered, both None where it was what came. `gaps_s` are the pauses between two
    pieces of an answer, all answers together; `late_s` how late each request left. `ceiling_share` of prompt tokens
    could have been cached by what was asked before; None: nobody knows.
    """

    from_s: float
    to_s: float
    seen: Sequence[Seen]
    rate_per_s: float | None = None
    clients: int | None = None
    gaps_s: Sequence[float] = ()
    late_s: Sequence[float] = ()
    ceiling_share: float | None = None

    @property
    def asked(self) -> list[Seen]:
        """Those that are told of. O(n)."""
        return [one for one in self.seen if self.from_s <= one.asked_s < self.to_s]


@dataclass(frozen=True, slots=True)
class Level:
    """A load in figures: what was offered (`rate_per_s`, `clients`) for so many seconds, and what became of it.

    Of `requests` that came some `failed`, and some were `cut` off at the end. `in_flight` is the mean number under way.
    Rates are of what was answered in the window, a part of an answer by its part. `hit_share` of prompt tokens were
    cached, of `ceiling_share` at most. Spreads are seconds: `gap` between two pieces of text of all answers, `total` to
    the end of an answer, `prefill` what computing a prompt takes an engine alone, `late` how late requests left.
    `within_limits` is the share that kept both, `goodput_per_s` the rate of those that did. `busy_share` is of all
    engines' time, `prefill_share` of the busy time.
    """

    rate_per_s: float | None
    clients: int | None
    seconds: float
    requests: int
    failed: int
    cut: int
    in_flight: float
    requests_per_s: float
    input_tokens_per_s: float | None
    output_tokens_per_s: float | None
    output_tokens_per_s_per_gpu: float | None
    hit_share: float | None
    ceiling_share: float | None
    ttft: Spread | None
    itl: Spread | None
    gap: Spread | None
    total: Spread | None
    within_limits: float | None
    goodput_per_s: float | None
    busy_share: float | None
    prefill_share: float | None
    prefill: Spread | None
    late: Spread | None

    @property
    def decode_share(self) -> float | None:
        """Of the time in which engines were busy, what was not prefill."""
        return None if self.prefill_share is None else 1 - self.prefill_share


@dataclass(frozen=True, slots=True)
class Burstiness:
    """How requests came. `cv` is the coefficient of variation of the gaps between them (1: Poisson, 0: even);
    `dispersion` the variance over the mean of their number in spans of so many seconds (1: Poisson);
    `peak_over_mean` the fullest second over the mean one, None of less than five seconds."""

    requests_per_s: float
    cv: float
    dispersion: Mapping[float, float]
    peak_over_mean: float | None


@dataclass(frozen=True, slots=True)
class Knee:
    """Where more load stops being served faster. `in_flight` and `requests_per_s` there; `most_per_s` is what the fit
    says can be reached at all, at `most_in_flight` (None: ever more slowly, at no number).

    `contention` and `coherency` are the coefficients of the Universal Scalability Law, `alone_per_s` its slope for one
    request at a time, `error` the largest relative distance of a level from the fit. `is_reached`: a level was at or
    beyond it, so that it is no extrapolation.
    """

    in_flight: float
    requests_per_s: float
    most_per_s: float
    most_in_flight: float | None
    alone_per_s: float
    contention: float
    coherency: float
    error: float
    is_reached: bool


class Bottleneck(StrEnum):
    """What takes the time of busy engines."""

    PREFILL = "prefill"
    DECODE = "decode"
    BOTH = "both"
    UNKNOWN = "unknown"


class Binds(StrEnum):
    """Which limit is broken first as load rises."""

    TTFT = "ttft"
    ITL = "itl"
    NEITHER = "neither"
    NONE_GIVEN = "none_given"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What holds the engines up, why we say so, and what to turn, the likeliest first."""

    bottleneck: Bottleneck
    binds: Binds
    is_saturated: bool
    reasons: tuple[str, ...]
    turn: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EngineUse:
    """What an engine said of itself, means; None: it did not. `kv_use` is from 0 to 1."""

    endpoint: str
    running_requests: float | None
    waiting_requests: float | None
    kv_use: float | None


@dataclass(frozen=True, slots=True)
class Held:
    """A figure that was measured, and what arithmetic has for it, in the unit that the name says."""

    name: str
    measured: float
    computed: float


@dataclass(frozen=True, slots=True)
class Study:
    """All that was measured. `lengths` are by kind: prompt, output, cached, in tokens; `arrivals` those of the last
    load, or of the whole period of a ledger; `notes` what to know of the figures."""

    source: str
    limits: Limits
    gpus: int | None
    engines: int
    lengths: Mapping[str, Spread]
    arrivals: Burstiness | None
    hit_share: float | None
    ceiling_share: float | None
    levels: Sequence[Level]
    knee: Knee | None
    verdict: Verdict
    notes: Sequence[str] = field(default_factory=tuple)
    engine_use: Sequence[EngineUse] = field(default_factory=tuple)
    held_against: Sequence[Held] = field(default_factory=tuple)
