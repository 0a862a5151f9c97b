"""Whether the cached price earns or loses money: the discount given against the prefill that was avoided. Pure.

    given            what the price took off for cached tokens
    avoided, s       cached tokens x seconds of prefill that a fresh token took at that endpoint and model
    avoided, busy    ... x what a second of prefill costs there in its busy time
    avoided, loaded  ... with the idle time that goes with it

    given <= busy            it earns: at this load a hit saves more than it is discounted by
    busy < given <= loaded   it earns only if the GPU time that hits free is sold, or machines are returned
    loaded < given           it loses

Of calls that were measured, and charged in the currency of the costs, alone. Keeping and reading the tokens costs the
same whether they were cached or computed, so it is on neither side.
"""

from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

from billing.economics.account import Account
from billing.economics.types import Spent


class Worth(StrEnum):
    """What a discount does."""

    EARNS = "earns"
    EARNS_IF_SOLD = "earns if sold"
    LOSES = "loses"
    UNKNOWN = "unknown"
    """No call computed a fresh token where the cached ones were found: nothing says what they would have cost."""


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


def discounts(account: Account) -> list[Discount]:
    """By tenant and model, sorted; those with cached tokens alone."""
    found: dict[tuple[str, str], Discount] = {}
    for endpoint in account.endpoints:
        by_model: dict[str, Spent] = {}
        for who, spent in endpoint.spent.items():
            by_model.setdefault(who.model, Spent()).add(spent)
        busy_pico = endpoint.busy_pico
        loaded = Fraction(endpoint.cost_pico, busy_pico) if busy_pico else Fraction(1)
        for who, spent in endpoint.spent.items():
            if not spent.cached_tokens:
                continue
            one = found.setdefault((who.tenant_id, who.model), Discount(who.tenant_id, who.model))
            one.given_pico += spent.saved_pico
            one.cached_tokens += spent.cached_tokens
            here = by_model[who.model]
            if not here.fresh_tokens:
                one.unknown_tokens += spent.cached_tokens
                continue
            one.avoided_us += Fraction(spent.cached_tokens * here.prefill_us, here.fresh_tokens)
            avoided_pico = Fraction(spent.cached_tokens * here.prefill_pico, here.fresh_tokens)
            one.busy_pico += avoided_pico
            one.loaded_pico += avoided_pico * loaded
    return [found[key] for key in sorted(found)]


def prefill_pico_per_token(account: Account) -> dict[str, Fraction]:
    """What computing a fresh token of a model cost in busy time, over all endpoints; those with any."""
    sums: dict[str, Spent] = {}
    for _, who, spent, _ in account.lines():
        sums.setdefault(who.model, Spent()).add(spent)
    return {model: Fraction(one.prefill_pico, one.fresh_tokens) for model, one in sums.items() if one.fresh_tokens}
