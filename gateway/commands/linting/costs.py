"""What findings cost a day: tokens that are computed again, and what they are sold for.

    tokens a day = tokens lost a call x calls a day x share of calls that lose them
    money a day  = tokens a day x (input price - cached price)

A source cannot tell which share of calls repeats its fixed text: `--repeat` says so, or the captures that were read
with it; else it is taken that all do. A date is lost once a day. How often sessions or tenants begin, nobody said: then
the cost is unknown, which is not zero.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from billing.money import PICO
from prefix_index.lint import Every, Finding


@dataclass(frozen=True, slots=True)
class Costs:
    """Calls a day, the share of them that repeats fixed text, and the price difference in pico-units a token."""

    calls_per_day: int | None = None
    repeat: Fraction = Fraction(1)
    saved_pico: int | None = None
    currency: str = ""
    at_most: bool = False
    """Whether no cached price is known, so that money is an upper bound."""

    def tokens_a_day(self, finding: Finding) -> int | None:
        """Tokens that a day computes again for it; None: unknown."""
        if finding.lost_tokens is None or self.calls_per_day is None:
            return None
        if finding.every is Every.DAY and finding.calls is None:
            return finding.lost_tokens
        if finding.calls is not None:
            share = Fraction(finding.calls, max(finding.of or 1, 1))
        elif finding.every is Every.CALL:
            share = self.repeat
        else:
            return None
        return int(finding.lost_tokens * self.calls_per_day * share)

    def money_a_day(self, tokens: int | None) -> Fraction | None:
        """What those tokens are sold for, in units of the currency; None: unknown."""
        if tokens is None or self.saved_pico is None:
            return None
        return Fraction(tokens * self.saved_pico, PICO)


def total_lost(findings: Iterable[Finding]) -> int:
    """Tokens a call over all prompts: of the faults of one prompt the dearest counts, since the rest is in it."""
    return sum(max(one.lost_tokens or 0 for one in group) for group in _by_prompt(findings))


def total_a_day(findings: Iterable[Finding], costs: Costs) -> int | None:
    """Tokens a day over all prompts; None where it is known of none."""
    known = [
        max(tokens)
        for group in _by_prompt(findings)
        if (tokens := [found for one in group if (found := costs.tokens_a_day(one)) is not None])
    ]
    return sum(known) if known else None


def measured_repeat(total: int, distinct: int) -> Fraction:
    """Of captured requests, the share whose fixed head was seen before."""
    return Fraction(total - distinct, total) if total else Fraction(1)


def _by_prompt(findings: Iterable[Finding]) -> Iterable[list[Finding]]:
    groups: dict[str, list[Finding]] = defaultdict(list)
    for one in findings:
        groups[one.prompt or one.place.text()].append(one)
    return groups.values()
