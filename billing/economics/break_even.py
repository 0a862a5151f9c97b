"""API or own machines: what the measured traffic would have cost at an API, and where the two meet. Pure.

    mix          fresh, cached and output tokens of the period, as billed
    api          fresh x input + cached x the API's own cached price + output x output
    own          what the endpoints cost in the period, idle time included
    blended      api / tokens of the mix
    break-even   tokens a month = cost of the endpoints a month / (blended - variable cost of a token)
                 utilisation    = busy cost / api: at this mix and batch; above 1 own machines never get there

An API discounts hits too: leaving that out flatters own machines, and so does peak throughput. The variable cost of own
machines is 0 here, as power is in the hour's rate. An API without a cached price is charged at its input price.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from typing import Final

from billing.economics.account import Account
from billing.economics.margin import Margin
from billing.economics.rates import HOUR_US, HOURS_OF_A_YEAR
from billing.prices.public_apis import api_prices

MONTH_US: Final = HOURS_OF_A_YEAR / 12 * HOUR_US


@dataclass(frozen=True, slots=True)
class ComparedPrice:
    """Prices of an API in pico-units a token. `as_of` says of when they are."""

    name: str
    currency: str
    input_pico: int
    output_pico: int
    cached_input_pico: int | None = None
    as_of: str = ""


def public_prices(at: datetime) -> list[ComparedPrice]:
    """The prices of public APIs that come with us, those that hold at a time. Their tiers by length, minimum lengths
    and steps of cached tokens are left out: the mix is of sums, not of prompts."""
    return [
        ComparedPrice(
            name=one.price.model,
            currency=one.price.currency,
            input_pico=one.price.input_pico,
            output_pico=one.price.output_pico,
            cached_input_pico=one.price.cached_input_pico,
            as_of=one.as_of,
        )
        for one in api_prices()
        if one.price.valid_from <= at and (one.price.valid_to is None or at < one.price.valid_to)
    ]


@dataclass(frozen=True, slots=True)
class Mix:
    """Tokens of a period."""

    fresh_tokens: int
    cached_tokens: int
    output_tokens: int

    @property
    def tokens(self) -> int:
        """All of them."""
        return self.fresh_tokens + self.cached_tokens + self.output_tokens


@dataclass(frozen=True, slots=True)
class BreakEven:
    """An API against own machines. Figures are None where nothing can be divided by: no traffic, no busy time."""

    price: ComparedPrice
    mix: Mix
    api_pico: int
    own_busy_pico: int
    own_pico: int
    month_pico: Fraction
    """What the endpoints cost in an average month."""

    @property
    def own_is_cheaper(self) -> bool:
        """At the load of the period."""
        return self.own_pico < self.api_pico

    @property
    def tokens_a_month(self) -> Fraction | None:
        """From so many tokens on, own machines are cheaper, if they can make them."""
        if not self.mix.tokens or not self.api_pico:
            return None
        return self.month_pico / Fraction(self.api_pico, self.mix.tokens)

    @property
    def utilisation(self) -> Fraction | None:
        """From this part of the time busy on, own machines are cheaper; above 1 they never are."""
        return Fraction(self.own_busy_pico, self.api_pico) if self.api_pico and self.own_busy_pico else None


def mix_of(whole: Margin) -> Mix:
    """Tokens as billed: where an engine did not say what was cached, all of the prompt is fresh."""
    earned = whole.earned
    return Mix(max(earned.prompt_tokens - earned.cached_tokens, 0), earned.cached_tokens, earned.output_tokens)


def break_evens(account: Account, mix: Mix, prices: Iterable[ComparedPrice]) -> list[BreakEven]:
    """One for each price in the currency of the costs, cheapest first."""
    month = MONTH_US / (account.end_us - account.start_us)
    found = [
        BreakEven(
            price=price,
            mix=mix,
            api_pico=_api_pico(mix, price),
            own_busy_pico=account.cost_pico - account.idle_pico,
            own_pico=account.cost_pico,
            month_pico=account.cost_pico * month,
        )
        for price in prices
        if price.currency == account.currency
    ]
    return sorted(found, key=lambda one: (one.api_pico, one.price.name))


def _api_pico(mix: Mix, price: ComparedPrice) -> int:
    cached_pico = price.input_pico if price.cached_input_pico is None else price.cached_input_pico
    return mix.fresh_tokens * price.input_pico + mix.cached_tokens * cached_pico + mix.output_tokens * price.output_pico
