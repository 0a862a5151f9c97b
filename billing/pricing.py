"""What usage costs: pure arithmetic on integers. Nothing is rounded here; rounding is for the invoice line.

    full     = (fresh + cached + written) x input         + output x output rate    as if nothing were cached
    charged  =  fresh x input + cached x cached rate
                              + written x write rate      + output x output rate
    saved    = full - charged

A rate that the price does not have is the input rate, with a flag. A count that is unknown is not in the amount, with
a flag; where all are unknown, or there is no price, the amount is None: unknown is never zero.
"""

from dataclasses import dataclass
from datetime import datetime

from billing.types import Buckets, SettlementState, Usage, UsageFlag


@dataclass(frozen=True, slots=True)
class Price:
    """Rates of one model in pico-units a token, for requests opened in [valid_from, valid_to), UTC."""

    id: str
    model: str
    currency: str
    input_pico: int
    output_pico: int
    valid_from: datetime
    valid_to: datetime | None = None
    cached_input_pico: int | None = None
    cache_write_pico: int | None = None


@dataclass(frozen=True, slots=True)
class Charge:
    """An amount at full price and as charged, pico-units; None = unknown. `flags` say what it rests on."""

    full_pico: int | None
    charged_pico: int | None
    flags: frozenset[UsageFlag] = frozenset()

    @property
    def saved_pico(self) -> int | None:
        """What caching took off the bill; negative only where writes cost more than reads saved."""
        if self.full_pico is None or self.charged_pico is None:
            return None
        return self.full_pico - self.charged_pico


def charge(buckets: Buckets, price: Price | None) -> Charge:
    """Price disjoint buckets of one billable request. Never negative for buckets that are not."""
    flags = _unknowns(buckets)
    if price is None:
        return Charge(None, None, flags | {UsageFlag.UNPRICED})
    known = (buckets.fresh_tokens, buckets.cached_tokens, buckets.cache_write_tokens, buckets.output_tokens)
    if all(tokens is None for tokens in known):
        return Charge(None, None, flags)
    fresh, cached, written, output = (tokens or 0 for tokens in known)
    cached_rate, write_rate = price.cached_input_pico, price.cache_write_pico
    if cached_rate is None and cached:
        flags |= {UsageFlag.NO_CACHED_PRICE}
    if write_rate is None and written:
        flags |= {UsageFlag.NO_WRITE_PRICE}
    answer = output * price.output_pico
    full = (fresh + cached + written) * price.input_pico + answer
    charged = (
        fresh * price.input_pico
        + cached * (price.input_pico if cached_rate is None else cached_rate)
        + written * (price.input_pico if write_rate is None else write_rate)
        + answer
    )
    return Charge(full, charged, flags)


def bill(state: SettlementState, usage: Usage | None, price: Price | None) -> Charge:
    """The charge of a request that ended in `state`: nothing where it failed, unknown where it was interrupted."""
    if state is SettlementState.INTERRUPTED:
        return Charge(None, None)
    if not state.billable:
        return Charge(0, 0, frozenset({UsageFlag.NOT_BILLABLE}))
    return charge(Buckets(None, None, None, None) if usage is None else Buckets.of(usage), price)


def _unknowns(buckets: Buckets) -> frozenset[UsageFlag]:
    flags = set()
    if buckets.cached_tokens is None:
        flags.add(UsageFlag.UNREPORTED)
    if buckets.fresh_tokens is None or buckets.output_tokens is None:
        flags.add(UsageFlag.INCOMPLETE)
    return frozenset(flags)
