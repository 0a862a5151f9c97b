"""What a million tokens cost at a load, and from how many on own GPUs beat an API. Pure; money in units of a currency.

A request takes P seconds of the GPUs for its prompt and o · S(B) / B for its answer, o steps shared by B. Of a step,
reading the KV cache belongs to the tokens that are read, the rest to those that are made (as `billing.economics` has it
for what was measured):

    a token of the prompt, cached or not   r = o · (its part of a step's reading)
    fresh    P / u + r        cached    r        output    S / B − what its prompt's tokens pay

so that u · fresh + c · cached + o · output = P + o · S / B: all of the time, once.

    break-even tokens a month = GPUs · price of an hour · 730.5 / price of the API's mix
"""

from dataclasses import dataclass
from typing import Final

from backends.planning.machine import Machine
from backends.planning.serving import Request, Served

__all__ = ["HOURS_OF_A_MONTH", "ApiPrice", "TokenCosts", "break_even_tokens", "mix_price", "token_costs"]

HOURS_OF_A_MONTH: Final = 365.25 * 24 / 12
_HOUR_S: Final = 3600
_MILLION: Final = 1e6


@dataclass(frozen=True, slots=True)
class TokenCosts:
    """Of a million tokens. `fresh` and `cached` are input."""

    fresh: float
    cached: float
    output: float


@dataclass(frozen=True, slots=True)
class ApiPrice:
    """Of a million tokens at an API; without a cached price hits cost what input costs."""

    input: float
    output: float
    cached_input: float | None = None


def token_costs(machine: Machine, served: Served, per_gpu_hour: float, utilisation: float = 1.0) -> TokenCosts:
    """At the load of `served` for that share of the time, at none for the rest.

    Raises `ValueError` where `utilisation` is not above 0 and at most 1.
    """
    if not 0 < utilisation <= 1:
        raise ValueError("utilisation is above 0 and at most 1")
    request = served.request
    price_a_s = machine.gpus * per_gpu_hour / _HOUR_S / utilisation
    share_s = served.step.seconds / served.sequences
    reading_s = _reading_of_prompt_s(served)
    read_a_token_s = request.output_tokens * reading_s / request.prompt_tokens
    return TokenCosts(
        fresh=(served.prefill.seconds / request.uncached_tokens + read_a_token_s) * price_a_s * _MILLION,
        cached=read_a_token_s * price_a_s * _MILLION,
        output=(share_s - reading_s) * price_a_s * _MILLION,
    )


def _reading_of_prompt_s(served: Served) -> float:
    """Of one sequence's part of a step, what reading its prompt takes; where arithmetic binds, reading is free."""
    request, step = served.request, served.step
    share = step.kv_reading_s / served.sequences * request.prompt_tokens / request.context_tokens
    return share if step.bound == "memory bandwidth" else 0.0


def mix_price(request: Request, price: ApiPrice) -> float:
    """What an API asks for one such request."""
    cached = price.input if price.cached_input is None else price.cached_input
    return (
        request.uncached_tokens * price.input + request.cached_tokens * cached + request.output_tokens * price.output
    ) / _MILLION


def break_even_tokens(request: Request, price: ApiPrice, gpus: int, per_gpu_hour: float) -> float:
    """Tokens a month, prompts and answers, from which so many GPUs cost less than the API. They may not be able to
    serve as many: hold it against what they serve."""
    price_a_token = mix_price(request, price) / request.whole_tokens
    return gpus * per_gpu_hour * HOURS_OF_A_MONTH / price_a_token
