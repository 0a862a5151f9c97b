"""What reports count: sums over requests, in which unknown is never zero.

Only billable requests (complete and partial) bring tokens and money; the others are counted.
  unreported   the engine did not say what was cached; billed at the input price; left out of the hit share
  incomplete   some count is unknown and so not in the amount
  unpriced     no price for the model at that time; the amount is unknown, and so is a sum that has no other
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from billing.types import SettlementState, UsageFlag, Verdict

IN_FLIGHT = "in_flight"
"""State of a request that has no settlement yet."""

STATES = (*(state.value for state in SettlementState), IN_FLIGHT)

COUNTED_FLAGS = (
    UsageFlag.UNREPORTED,
    UsageFlag.INCOMPLETE,
    UsageFlag.UNPRICED,
    UsageFlag.ESTIMATED,
    UsageFlag.CLAMPED,
    UsageFlag.INVALID,
    UsageFlag.DISPUTED,
)
"""Flags whose requests a report counts."""

TOKEN_SUMS = (
    "prompt_tokens",
    "cached_tokens",
    "discounted_tokens",
    "cache_write_tokens",
    "output_tokens",
    "reasoning_tokens",
    "expected_cached_tokens",
    "reported_prompt_tokens",
    "reported_cached_tokens",
)
"""Sums that rows, roll-ups and tallies have in common, by name."""


@dataclass(frozen=True, slots=True)
class Tally:
    """Sums over requests. Tokens, flags, verdicts and money are of billable ones only.

    An amount is None where none is known. `discounted_tokens` are those billed at the cached rate; the reported ones
    are of requests whose engine said how much was cached. `list_pico` is the amount without a tenant's own price.
    """

    states: Mapping[str, int]
    flags: Mapping[UsageFlag, int]
    prompt_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    output_tokens: int = 0
    reported_prompt_tokens: int = 0
    reported_cached_tokens: int = 0
    full_pico: int | None = None
    charged_pico: int | None = None
    list_pico: int | None = None
    discounted_tokens: int = 0
    reasoning_tokens: int = 0
    expected_cached_tokens: int = 0
    verdicts: Mapping[Verdict, int] = field(default_factory=dict)
    """Requests by verdict."""
    verified_cached_tokens: int = 0
    disputed_cached_tokens: int = 0
    unknown_amounts: int = 0
    """Requests whose amount is unknown and so in no sum."""

    @property
    def requests(self) -> int:
        """All of them, however they ended."""
        return sum(self.states.values())

    @property
    def saved_pico(self) -> int | None:
        """Amount at full price less amount charged."""
        return None if self.full_pico is None or self.charged_pico is None else self.full_pico - self.charged_pico

    @property
    def hit_share(self) -> float | None:
        """Cached over prompt tokens, where the engine reported both; None where it never did. No estimates."""
        return self.reported_cached_tokens / self.reported_prompt_tokens if self.reported_prompt_tokens else None

    @property
    def coverage(self) -> float | None:
        """The part of the prompt tokens for which the engine reported what was cached; None without any."""
        return self.reported_prompt_tokens / self.prompt_tokens if self.prompt_tokens else None

    def plus(self, other: "Tally") -> "Tally":
        """Both together."""
        return total_of((self, other))


NOTHING = Tally(dict.fromkeys(STATES, 0), dict.fromkeys(COUNTED_FLAGS, 0), verdicts=dict.fromkeys(Verdict, 0))


def total_of(tallies: Sequence[Tally]) -> Tally:
    """All of them together. O(tallies)."""
    if len(tallies) == 1:
        return tallies[0]
    return Tally(
        states={state: sum(tally.states[state] for tally in tallies) for state in STATES},
        flags={flag: sum(tally.flags[flag] for tally in tallies) for flag in COUNTED_FLAGS},
        prompt_tokens=sum(tally.prompt_tokens for tally in tallies),
        cached_tokens=sum(tally.cached_tokens for tally in tallies),
        cache_write_tokens=sum(tally.cache_write_tokens for tally in tallies),
        output_tokens=sum(tally.output_tokens for tally in tallies),
        reported_prompt_tokens=sum(tally.reported_prompt_tokens for tally in tallies),
        reported_cached_tokens=sum(tally.reported_cached_tokens for tally in tallies),
        full_pico=_sum_of_known(tally.full_pico for tally in tallies),
        charged_pico=_sum_of_known(tally.charged_pico for tally in tallies),
        list_pico=_sum_of_known(tally.list_pico for tally in tallies),
        discounted_tokens=sum(tally.discounted_tokens for tally in tallies),
        reasoning_tokens=sum(tally.reasoning_tokens for tally in tallies),
        expected_cached_tokens=sum(tally.expected_cached_tokens for tally in tallies),
        verdicts={verdict: sum(tally.verdicts.get(verdict, 0) for tally in tallies) for verdict in Verdict},
        verified_cached_tokens=sum(tally.verified_cached_tokens for tally in tallies),
        disputed_cached_tokens=sum(tally.disputed_cached_tokens for tally in tallies),
        unknown_amounts=sum(tally.unknown_amounts for tally in tallies),
    )


def _sum_of_known(amounts: Iterable[int | None]) -> int | None:
    known = [amount for amount in amounts if amount is not None]
    return sum(known) if known else None
