"""A replica under load: how long until a first token, between two, how many requests a second, and what ends it. Pure.

Requests arrive at random, λ a second, each with a prompt of n tokens of which c are cached, and an answer of o tokens.

    together   prefills and steps take turns on the same GPUs
               ρ = λ · P                       the share of time that prefills take
               ITL = S(B) / (1 − ρ)            a step waits for the prefills between
               B = λ · o · ITL                 requests being answered (Little)
               so λ = B / (o · S(B) + B · P)   for each B there is one load

    apart      some replicas only compute prompts, others only write answers
               λ = 1 / P of one that computes, B / (o · S(B)) of one that writes; ITL = S(B)
               and the KV cache of a prompt is carried: n · bytes of a token / link

    TTFT       = base + P + wait;    wait = P · ρ / (2 (1 − ρ)) on average (one server, equal work: Pollaczek-Khinchine)
                                     its q-quantile ≈ P / (2 (1 − ρ)) · ln(ρ / (1 − q)), the tail in heavy traffic
               + S(B) where a step must end first

P and S are `steps.prefill` and `steps.decode_step`; the context of a step is n + o/2, halfway through the answer. All
grow with B, so the largest B within the limits is found by halves. What is left out: chunks of a prefill share a step's
reading with decoding, which makes `together` a little better than here, and unequal prompts, which make waits longer.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf, log
from typing import Final

from backends.hardware import BASE_S
from backends.planning.machine import Machine
from backends.planning.sizes import most_sequences
from backends.planning.steps import Step, decode_step, prefill

__all__ = ["Limits", "Request", "Served", "at_batch", "best"]

QUANTILE: Final = 0.9
"""Of requests, those whose first token has to come in time."""
_STEADY: Final = 0.95
"""Most of the time that prefills may take: nearer to all of it waits have no end."""


@dataclass(frozen=True, slots=True)
class Request:
    """The usual one: tokens of its prompt, of these cached, and of its answer."""

    prompt_tokens: int
    output_tokens: int
    cached_tokens: int = 0

    def __post_init__(self) -> None:
        if self.prompt_tokens < 1 or self.output_tokens < 1:
            raise ValueError("a request has a prompt and an answer of at least one token")
        if not 0 <= self.cached_tokens < self.prompt_tokens:
            raise ValueError("cached tokens are fewer than the prompt: its last one is always computed")

    @property
    def uncached_tokens(self) -> int:
        """Computed."""
        return self.prompt_tokens - self.cached_tokens

    @property
    def whole_tokens(self) -> int:
        """At its end, which is what room is kept for."""
        return self.prompt_tokens + self.output_tokens

    @property
    def context_tokens(self) -> float:
        """Halfway through the answer."""
        return self.prompt_tokens + self.output_tokens / 2


@dataclass(frozen=True, slots=True)
class Limits:
    """What must be kept: seconds to the first token in nine of ten requests, and between two tokens."""

    ttft_p90_s: float = inf
    itl_s: float = inf


@dataclass(frozen=True, slots=True)
class Served:
    """A replica with `sequences` being answered at once. `binds`: what stops a larger batch, in words.

    `requests_per_s` of one that does both. `prefill_share`: of its time.
    """

    request: Request
    sequences: int
    prefill: Step
    step: Step
    requests_per_s: float
    prefill_share: float
    itl_s: float
    ttft_s: float
    ttft_p90_s: float
    binds: str

    @property
    def output_tokens_per_s(self) -> float:
        """Of all answers together."""
        return self.requests_per_s * self.request.output_tokens

    @property
    def prompt_tokens_per_s(self) -> float:
        """Cached ones too."""
        return self.requests_per_s * self.request.prompt_tokens


def at_batch(machine: Machine, request: Request, sequences: int, binds: str = "") -> Served:
    """How a replica does with so many answers at once, prefills and decoding together. `ValueError` below one."""
    if sequences < 1:
        raise ValueError("at least one answer is written")
    prompt = prefill(machine, request.prompt_tokens, request.cached_tokens)
    step = decode_step(machine, sequences, request.context_tokens)
    rate = sequences / (request.output_tokens * step.seconds + sequences * prompt.seconds)
    share = rate * prompt.seconds
    first_s = BASE_S + prompt.seconds + step.seconds
    return Served(
        request=request,
        sequences=sequences,
        prefill=prompt,
        step=step,
        requests_per_s=rate,
        prefill_share=share,
        itl_s=step.seconds / (1 - share),
        ttft_s=first_s + prompt.seconds * share / (2 * (1 - share)),
        ttft_p90_s=first_s + quantile_wait_s(prompt.seconds, share),
        binds=binds,
    )


def quantile_wait_s(work_s: float, share: float) -> float:
    """Seconds that a prefill of `work_s` waits for others, at `QUANTILE`; prefills take that share of the time."""
    if share <= 1 - QUANTILE:
        return 0.0
    return work_s / (2 * (1 - share)) * log(share / (1 - QUANTILE))


def best(machine: Machine, request: Request, limits: Limits | None = None) -> Served | None:
    """The largest batch within memory and limits; None where not even one answer is. O(log(batch)) steps."""
    kept = limits or Limits()
    room = int(most_sequences(machine, request.whole_tokens).value)
    stops: list[tuple[str, Callable[[Served], bool]]] = [
        ("time between tokens", lambda one: one.itl_s <= kept.itl_s),
        ("time to first token", lambda one: one.ttft_p90_s <= kept.ttft_p90_s),
        ("prefill: all of the time goes into prompts", lambda one: one.prefill_share <= _STEADY),
    ]
    if room < 1:
        return None
    largest, binds = room, "memory for KV cache"
    for name, holds in stops:
        within = _largest(largest, machine, request, holds)
        if within < largest:
            largest, binds = within, name
    return None if largest == 0 else at_batch(machine, request, largest, binds)


def _largest(most: int, machine: Machine, request: Request, holds: Callable[[Served], bool]) -> int:
    """The largest batch up to `most` for which that holds, as it does for all smaller ones; 0 where for none."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if holds(at_batch(machine, request, middle)):
            low = middle
        else:
            high = middle - 1
    return low
