"""A month's sums, and what volume tiers make of them. Pure.

    tokens of a bucket in a month   0 ---------- 10 M ------------ 100 M ----------->
                                      at the price    at the first tier    at the second      each token at its own

A request that ends cannot know how much its tenant will have used by the end of the month, and replicas do not tell
each other; so it is billed at the plain rate, and these lines are added when the month is billed. Tokens count in the
order of the sums: by the periods of the prices, and within one price from the shortest prompts' tier up.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from billing.prices.pricing import Bucket, VolumeTier

Heaps = tuple[int, int, int, int]
"""A number for each bucket, in the order of `Bucket`: input, cached input, cache write, output."""

BUCKETS = tuple(Bucket)


class StatementKind(StrEnum):
    """What a line of a month's bill is for."""

    FEE = "fee"
    USAGE = "usage"
    """What the requests were charged, at the rates in their rows."""
    INCLUDED = "included"
    """Tokens that the plan includes, given back at the rate at which they were charged."""
    OVERAGE = "overage"
    """Tokens beyond it, where the plan has a rate of its own: the difference to what was charged."""
    VOLUME = "volume"
    """Tokens beyond a volume tier of the price: the difference to what was charged."""
    COMMITMENT = "commitment"
    """What is missing to the minimum."""


@dataclass(frozen=True, slots=True)
class MonthSum:
    """What a tenant's billable requests of one month had at one price and one set of rates, as their rows say.

    `tokens` are disjoint and `rates_pico` a token, by bucket; a bucket billed at the input rate for want of one of its
    own is in the input. What was charged beyond tokens times rates (a count that was unknown) is never given back.
    """

    model: str
    price_id: str
    tokens: Heaps
    rates_pico: Heaps
    charged_pico: int
    volume_tiers: tuple[VolumeTier, ...] = ()


@dataclass(frozen=True, slots=True)
class StatementLine:
    """An amount of a month, signed. Where it has `tokens`, it is tokens times `rate_pico`."""

    kind: StatementKind
    pico: int
    model: str | None = None
    price_id: str | None = None
    bucket: Bucket | None = None
    tokens: int | None = None
    rate_pico: int | None = None
    over_tokens: int | None = None
    """The threshold, or what was included."""


def volume_lines(sums: Sequence[MonthSum], counted: Sequence[Heaps] | None = None) -> list[StatementLine]:
    """The adjustments of graduated volume tiers; `counted` are the tokens of each sum that count, all by default.

    Each token is adjusted once, so with tiers below the price the total stays at or above zero. O(sums × tiers).
    """
    lines = []
    before: dict[tuple[str, Bucket], int] = {}
    for total, heaps in zip(sums, [one.tokens for one in sums] if counted is None else counted, strict=True):
        for bucket, tokens, rate in zip(BUCKETS, heaps, total.rates_pico, strict=True):
            start = before.get((total.model, bucket), 0)
            end = before[total.model, bucket] = start + tokens
            tiers = [tier for tier in total.volume_tiers if tier.bucket is bucket]
            for place, tier in enumerate(tiers):
                upper = min(end, tiers[place + 1].over_tokens) if place + 1 < len(tiers) else end
                within = upper - max(start, tier.over_tokens)
                if within > 0 and tier.rate_pico != rate:
                    lines.append(_volume_line(total, tier, within, tier.rate_pico - rate))
    return lines


def _volume_line(total: MonthSum, tier: VolumeTier, tokens: int, difference_pico: int) -> StatementLine:
    return StatementLine(
        kind=StatementKind.VOLUME,
        pico=tokens * difference_pico,
        model=total.model,
        price_id=total.price_id,
        bucket=tier.bucket,
        tokens=tokens,
        rate_pico=difference_pico,
        over_tokens=tier.over_tokens,
    )
