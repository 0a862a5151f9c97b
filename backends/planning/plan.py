"""A plan: everything there is to say of a model on GPUs for a request, a load, limits and prices, each figure with its
formula. Pure.

    machine, request, limits ──> figures      weights, KV cache, batch, prefill, step, TTFT, ITL, tokens/s, what binds
    load                     ──> replicas     together, and apart where the link between machines is known
    price of an hour         ──> costs        a million tokens, fresh, cached, made; a month of the fleet
    price of an API          ──> break-even   tokens a month, and whether the fleet makes as many
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Final

from backends.planning.apart import Apart, apart
from backends.planning.figures import Figure
from backends.planning.machine import Machine
from backends.planning.money import (
    HOURS_OF_A_MONTH,
    ApiPrice,
    TokenCosts,
    break_even_tokens,
    mix_price,
    token_costs,
)
from backends.planning.serving import Limits, Request, Served, best
from backends.planning.sizes import capacity, kv_per_token, most_sequences, weights

__all__ = ["Asked", "Plan", "fewest_gpus", "plan"]

_SIZES: Final = (1, 2, 4, 8, 16)
"""GPUs that work as one in practice; 16 are two machines."""
_MONTH_S: Final = HOURS_OF_A_MONTH * 3600


@dataclass(frozen=True, slots=True)
class Asked:
    """What is to be planned for. `requests_per_s`: the load at its peak. `per_gpu_hour`, `api`: in one currency.
    `utilisation`: the mean load over the peak, 0 to 1. `link_bytes_per_s`: between machines, for prefill and decode
    apart; None: they are not planned apart."""

    request: Request
    limits: Limits = field(default_factory=Limits)
    requests_per_s: float | None = None
    per_gpu_hour: float | None = None
    utilisation: float = 1.0
    api: ApiPrice | None = None
    link_bytes_per_s: float | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """`served`: None where the model does not fit, or no load keeps the limits. The rest is None where it was not asked
    for, or cannot be said without `served`."""

    machine: Machine
    asked: Asked
    served: Served | None
    replicas: int | None
    apart: Apart | None
    costs: TokenCosts | None
    figures: tuple[Figure, ...]

    @property
    def why_not(self) -> str | None:
        """Why nothing can be served, in words."""
        if self.served is not None:
            return None
        machine, request = self.machine, self.asked.request
        if request.whole_tokens > machine.model.context_tokens:
            return f"{request.whole_tokens:,} tokens are more than the {machine.model.context_tokens:,} of its context"
        if machine.gpus > machine.model.heads:
            return f"no more GPUs work as one than the model has heads, {machine.model.heads}"
        if machine.weight_bytes > machine.room_bytes:
            return "the weights do not fit"
        if most_sequences(machine, request.whole_tokens).value < 1:
            return "the KV cache of one request does not fit"
        return "not even one request at a time keeps the limits"


def fewest_gpus(machine: Machine, asked: Asked) -> Plan | None:
    """The plan that takes the fewest GPUs in all, of machines of 1, 2, 4, 8 and 16; of as many the smaller one. Where
    none serves what is asked, the fewest that do apart, else the smallest that the model fits on, with the reason; None
    where it fits on none."""
    request, found = asked.request, list[Plan]()
    if request.whole_tokens > machine.model.context_tokens:
        return plan(machine, asked)
    for gpus in _SIZES:
        sized = replace(machine, gpus=gpus)
        if most_sequences(sized, request.whole_tokens).value >= 1:
            found.append(plan(sized, asked))
    serving = [one for one in found if one.served is not None]
    least = min(serving, key=lambda one: (one.replicas or 1) * one.machine.gpus, default=None)
    if least is None:
        split = [(one.apart.replicas * one.machine.gpus, one) for one in found if one.apart is not None]
        least = min(split, key=lambda sized: sized[0])[1] if split else None
    return least or (found[0] if found else None)


def plan(machine: Machine, asked: Asked) -> Plan:
    """Work all of it out."""
    model, load = machine.model, asked.requests_per_s
    can_be = asked.request.whole_tokens <= model.context_tokens and machine.gpus <= model.heads
    served = best(machine, asked.request, asked.limits) if can_be else None
    replicas = None if served is None or load is None else max(1, ceil(load / served.requests_per_s))
    two = None
    if can_be and load is not None and asked.link_bytes_per_s is not None:
        two = apart(machine, asked.request, load, asked.limits, asked.link_bytes_per_s)
    costs, used = None, 1.0 if served is None else _used(asked, served, replicas)
    if served is not None and asked.per_gpu_hour is not None and used > 0:
        costs = token_costs(machine, served, asked.per_gpu_hour, used)
    figures = (
        *_sizes(machine, asked.request),
        *(() if served is None else _serving(served)),
        *_fleet(machine, asked, served, replicas),
        *_costs(machine, asked, costs, used),
        *_money(machine, asked, replicas),
    )
    return Plan(machine, asked, served, replicas, two, costs, figures)


def _used(asked: Asked, served: Served, replicas: int | None) -> float:
    """What is made over what the machines could make, 0 to 1: they are paid for whole, and at all hours."""
    if asked.requests_per_s is None or replicas is None:
        return asked.utilisation
    return asked.utilisation * min(1.0, asked.requests_per_s / (replicas * served.requests_per_s))


def _sizes(machine: Machine, request: Request) -> Iterator[Figure]:
    yield weights(machine)
    yield kv_per_token(machine)
    yield capacity(machine)
    yield most_sequences(machine, request.whole_tokens)


def _serving(served: Served) -> Iterator[Figure]:
    request, count = served.request, served.sequences
    prefill_s, step_s = served.prefill.seconds, served.step.seconds
    yield Figure("answers at once", count, "sequences", f"the most that fit and keep the limits; {served.binds} binds")
    yield served.prefill.figure("prefill")
    yield served.step.figure("step of decoding")
    made = f"{count} / ({request.output_tokens:,} × {step_s:.4g} s + {count} × {prefill_s:.4g} s)"
    yield Figure("requests a second", served.requests_per_s, "requests/s", made)
    yield Figure(
        "output", served.output_tokens_per_s, "tokens/s", f"{served.requests_per_s:.4g} × {request.output_tokens:,}"
    )
    share = f"{served.requests_per_s:.4g} × {prefill_s:.4g} s"
    yield Figure("share of time in prefills", served.prefill_share, "", share)
    yield Figure("ITL", served.itl_s, "s", f"{step_s:.4g} s / (1 − {served.prefill_share:.3g})")
    yield Figure("TTFT, mean", served.ttft_s, "s", "base + prefill + step + mean wait for other prefills")
    yield Figure("TTFT, p90", served.ttft_p90_s, "s", "the same with the wait that nine of ten stay below")


def _fleet(machine: Machine, asked: Asked, served: Served | None, replicas: int | None) -> Iterator[Figure]:
    if served is None or replicas is None or asked.requests_per_s is None:
        return
    how = f"{asked.requests_per_s:g} requests/s / {served.requests_per_s:.4g}, rounded up"
    yield Figure("replicas", replicas, "", how)
    yield Figure("GPUs", replicas * machine.gpus, "", f"{replicas} × {machine.gpus}")


def _costs(machine: Machine, asked: Asked, costs: TokenCosts | None, used: float) -> Iterator[Figure]:
    if costs is None:
        return
    if asked.requests_per_s is not None:
        how = "mean load / (replicas × requests a second of one): the rest of the time is paid for too"
        yield Figure("use of the GPUs", used, "", how)
    second = f"{machine.gpus} × {asked.per_gpu_hour:g} / 3600 / {used:.4g} a second"
    yield Figure("a million fresh tokens", costs.fresh, "", f"(prefill / fresh tokens + reading) × {second}")
    yield Figure("a million cached tokens", costs.cached, "", f"reading their KV in each step × {second}")
    yield Figure("a million output tokens", costs.output, "", f"(step / sequences − reading of prompts) × {second}")


def _money(machine: Machine, asked: Asked, replicas: int | None) -> Iterator[Figure]:
    request, hour = asked.request, asked.per_gpu_hour
    if hour is None:
        return
    gpus = machine.gpus * (replicas or 1)
    month = gpus * hour * HOURS_OF_A_MONTH
    yield Figure("a month of the GPUs", month, "", f"{gpus} × {hour:g} × {HOURS_OF_A_MONTH:g} h")
    if asked.api is None:
        return
    even = break_even_tokens(request, asked.api, gpus, hour)
    yield Figure("one request at the API", mix_price(request, asked.api), "", "its tokens at the API's prices")
    yield Figure("break-even", even, "tokens a month", "a month of the GPUs / price of a token at the API")
    if asked.requests_per_s is not None and even > 0:
        tokens = asked.requests_per_s * asked.utilisation * _MONTH_S * request.whole_tokens
        share = f"{tokens:.4g} tokens a month at {asked.utilisation:g} of the peak / {even:.4g}; above 1: own"
        yield Figure("load over break-even", tokens / even, "", share)
