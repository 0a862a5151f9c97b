"""The nouns of costs: a call at an endpoint, who it was for, and what of the endpoint's hours was spent on it.

Money is integers of pico-units, times are microseconds since 1970 in UTC, spans are microseconds.
"""

from dataclasses import dataclass
from typing import NamedTuple


class Who(NamedTuple):
    """Whom a call was for; the finest grain of all figures. `end_user` and `job_id` are None where nobody said."""

    tenant_id: str
    model: str
    end_user: str | None = None
    job_id: str | None = None


class Measured(NamedTuple):
    """What the ledger knows of a call that was answered: seconds on the GPU, and the tokens they were for.

    `prefill_us` is the whole GPU's time for the prompt, as if it were alone; `decode_us` the time from the first token
    to the last, in which others were decoded too. `fresh_tokens` were computed, written ones among them.
    `is_carried`: the prompt was computed at another endpoint, where it is counted; here it is read in each step.
    """

    prefill_us: int
    decode_us: int
    fresh_tokens: int
    cached_tokens: int
    output_tokens: int
    is_carried: bool = False

    @property
    def context_tokens_x2(self) -> int:
        """Twice the tokens whose KV a step of decoding read, on average: all of the prompt, half of the answer."""
        return 2 * (self.fresh_tokens + self.cached_tokens) + self.output_tokens


@dataclass(frozen=True, slots=True)
class Call:
    """One upstream call, open in [start_us, end_us).

    `lost`: nobody was answered by it and nobody pays for it (it failed, or was tried again elsewhere). `measured` is
    None where seconds or tokens are unknown. `saved_pico` is the discount given for its cached tokens, None unknown.
    """

    who: Who
    start_us: int
    end_us: int
    measured: Measured | None
    lost: bool = False
    saved_pico: int | None = None
    saved_currency: str | None = None


@dataclass(slots=True)
class Spent:
    """Sums of what calls cost, in the busy time of their endpoint, and of what was got for it. Changed by `add` alone.

    prefill + context + cached + output    of measured calls: computing fresh tokens; keeping them for the decoding;
                                           the same for cached tokens; making output tokens
    unmeasured, lost                       of the others, by the time in which they were open
    """

    prefill_pico: int = 0
    context_pico: int = 0
    cached_pico: int = 0
    output_pico: int = 0
    unmeasured_pico: int = 0
    lost_pico: int = 0
    fresh_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    prefill_us: int = 0
    decode_us: int = 0
    fresh_squared: int = 0
    prefill_us_fresh: int = 0
    """Sums over calls of fresh tokens squared, and of prefill times fresh tokens: for a line through them."""
    measured_calls: int = 0
    unmeasured_calls: int = 0
    lost_calls: int = 0
    calls_without_rate: int = 0
    saved_pico: int = 0
    """Discount given on measured calls, in the currency of the costs."""

    @property
    def fresh_pico(self) -> int:
        """The cost of fresh tokens."""
        return self.prefill_pico + self.context_pico

    @property
    def tokens_pico(self) -> int:
        """What measured calls cost."""
        return self.fresh_pico + self.cached_pico + self.output_pico

    @property
    def busy_pico(self) -> int:
        """What all calls cost."""
        return self.tokens_pico + self.unmeasured_pico + self.lost_pico

    @property
    def calls(self) -> int:
        """All calls that ended in the period."""
        return self.measured_calls + self.unmeasured_calls + self.lost_calls

    def add(self, other: "Spent") -> "Spent":
        """Take another's sums into this one; returns itself. Written out, since it is most of the work of a report."""
        self.prefill_pico += other.prefill_pico
        self.context_pico += other.context_pico
        self.cached_pico += other.cached_pico
        self.output_pico += other.output_pico
        self.unmeasured_pico += other.unmeasured_pico
        self.lost_pico += other.lost_pico
        self.fresh_tokens += other.fresh_tokens
        self.cached_tokens += other.cached_tokens
        self.output_tokens += other.output_tokens
        self.prefill_us += other.prefill_us
        self.decode_us += other.decode_us
        self.fresh_squared += other.fresh_squared
        self.prefill_us_fresh += other.prefill_us_fresh
        self.measured_calls += other.measured_calls
        self.unmeasured_calls += other.unmeasured_calls
        self.lost_calls += other.lost_calls
        self.calls_without_rate += other.calls_without_rate
        self.saved_pico += other.saved_pico
        return self
