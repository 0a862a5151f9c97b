"""Whether the cached price earns or loses money: the discount given against the prefill that was avoided. Pure.

    given            what the price took off for cached tokens
    avoided, s       cached tokens x seconds of prefill of one more fresh token at that endpoint and model
    avoided, busy    ... x what a second of prefill costs there in its busy time
    avoided, loaded  ... with the idle time that goes with it

    given <= busy            it earns: at this load a hit saves more than it is discounted by
    busy < given <= loaded   it earns only if the GPU time that hits free is sold, or machines are returned
    loaded < given           it loses

One more token: the slope of the least-squares line of prefill seconds over fresh tokens. Every prefill has a cost of
its own, however short; seconds by tokens would charge it to the cached ones, which avoid none of it.

Of calls that were measured, and charged in the currency of the costs, alone. Keeping and reading the tokens costs the
same whether they were cached or computed, so it is on neither side.
"""

from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

from billing.economics.account import Account, EndpointAccount
from billing.economics.types import Spent


class Worth(StrEnum):
    """What a discount does."""

    EARNS = "earns"
    EARNS_IF_SOLD = "earns if sold"
    LOSES = "loses"
    UNKNOWN = "unknown"
    """Where the tokens were found cached, too little was computed to say what they would have cost."""


@dataclass(slots=True)
class Discount:
    """Sums of a tenant and model. Tokens of which the prefill's cost is unknown are in none of the avoided figures."""

    tenant_id: str
    model: str
    given_pico: int = 0
    cached_tokens: int = 0
    unknown_tokens: int = 0
    avoided_us: Fraction = Fraction(0)
    busy_pico: Fraction = Fraction(0)
    loaded_pico: Fraction = Fraction(0)

    @property
    def worth(self) -> Worth:
        """The verdict."""
        if self.unknown_tokens:
            return Worth.UNKNOWN
        if self.given_pico > self.loaded_pico:
            return Worth.LOSES
        return Worth.EARNS if self.given_pico <= self.busy_pico else Worth.EARNS_IF_SOLD


@dataclass(frozen=True, slots=True)
class OneMore:
    """What one more fresh token of a model costs at an endpoint: microseconds of prefill, pico-units of busy time."""

    prefill_us: Fraction
    pico: Fraction


def one_more(spent: Spent) -> OneMore | None:
    """By the calls of a model at an endpoint; None where they are too few or alike for a line, or it does not rise."""
    calls, tokens = spent.measured_calls, spent.fresh_tokens
    spread = calls * spent.fresh_squared - tokens**2
    rise = calls * spent.prefill_us_fresh - tokens * spent.prefill_us
    if spread <= 0 or rise <= 0:
        return None
    slope_us = Fraction(rise, spread)
    return OneMore(slope_us, slope_us * Fraction(spent.prefill_pico, spent.prefill_us))


def discounts(account: Account) -> list[Discount]:
    """By tenant and model, sorted; those with cached tokens alone."""
    found: dict[tuple[str, str], Discount] = {}
    for endpoint in account.endpoints:
        by_model = {model: one_more(spent) for model, spent in _by_model(endpoint).items()}
        busy_pico = endpoint.busy_pico
        loaded = Fraction(endpoint.cost_pico, busy_pico) if busy_pico else Fraction(1)
        for who, spent in endpoint.spent.items():
            if not spent.cached_tokens:
                continue
            one = found.setdefault((who.tenant_id, who.model), Discount(who.tenant_id, who.model))
            one.given_pico += spent.saved_pico
            one.cached_tokens += spent.cached_tokens
            more = by_model[who.model]
            if more is None:
                one.unknown_tokens += spent.cached_tokens
            else:
                one.avoided_us += spent.cached_tokens * more.prefill_us
                one.busy_pico += spent.cached_tokens * more.pico
                one.loaded_pico += spent.cached_tokens * more.pico * loaded
    return [found[key] for key in sorted(found)]


def prefill_pico_per_token(account: Account) -> dict[str, Fraction]:
    """What one more fresh token of a model cost in busy time, over the endpoints that tell, by the tokens computed."""
    sums: dict[str, tuple[Fraction, int]] = {}
    for endpoint in account.endpoints:
        for model, spent in _by_model(endpoint).items():
            more = one_more(spent)
            if more is not None:
                pico, tokens = sums.get(model, (Fraction(0), 0))
                sums[model] = (pico + more.pico * spent.fresh_tokens, tokens + spent.fresh_tokens)
    return {model: pico / tokens for model, (pico, tokens) in sums.items()}


def _by_model(endpoint: EndpointAccount) -> dict[str, Spent]:
    found: dict[str, Spent] = {}
    for who, spent in endpoint.spent.items():
        found.setdefault(who.model, Spent()).add(spent)
    return found
