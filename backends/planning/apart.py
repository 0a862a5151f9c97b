"""Prompts computed at some replicas, answers written at others: how many of each, and what is carried. Pure.

prefill replicas   λ · P / ρ          ρ: how busy one may be, so that the first token comes in time
decode replicas    λ · o · S(B) / B   B: a batch that keeps the time between tokens
carried            n · bytes of a token / link
first token        base + P + wait for other prefills + carried + S(B), the step that makes it

A larger batch takes fewer decode replicas, and leaves less time to wait for a prefill. So batches are tried, and the
one that takes the fewest replicas in all counts.
"""

from dataclasses import dataclass
from math import ceil
from typing import Final

from backends.hardware import BASE_S
from backends.planning.machine import Machine
from backends.planning.serving import Limits, Request, quantile_wait_s
from backends.planning.sizes import most_sequences
from backends.planning.steps import decode_step, prefill

__all__ = ["Apart", "apart"]

_MOST_BUSY: Final = 0.9
"""Share of time that prefills may take: nearer to all of it one more request makes waits very long."""
_LEAST_BUSY: Final = 1e-9
_HALVINGS: Final = 40
"""To less than 1e-12."""


@dataclass(frozen=True, slots=True)
class Apart:
    """Replicas of both kinds for a load, and what its requests see. `prefill_busy`: share of time that prefills take at
    each of theirs. `sequences`: answered at once by a decode replica, at most."""

    prefill_replicas: int
    decode_replicas: int
    prefill_busy: float
    sequences: int
    itl_s: float
    ttft_p90_s: float
    carrying_s: float

    @property
    def replicas(self) -> int:
        """Of both kinds."""
        return self.prefill_replicas + self.decode_replicas


def apart(
    machine: Machine, request: Request, requests_per_s: float, limits: Limits, link_bytes_per_s: float
) -> Apart | None:
    """The fewest replicas that keep the limits; None where none could. O(log(batch)) steps behind the first 64."""
    carrying_s = machine.kv_bytes(request.prompt_tokens) / link_bytes_per_s
    prefill_s = prefill(machine, request.prompt_tokens, request.cached_tokens).seconds
    found: list[Apart] = []
    for sequences in _sizes(int(most_sequences(machine, request.whole_tokens).value)):
        step_s = decode_step(machine, sequences, request.context_tokens).seconds
        first_s = BASE_S + prefill_s + carrying_s + step_s
        if step_s > limits.itl_s or first_s > limits.ttft_p90_s:
            break  # and larger batches take longer
        prefills = max(1, ceil(requests_per_s * prefill_s / _busiest(prefill_s, limits.ttft_p90_s - first_s)))
        share = requests_per_s * prefill_s / prefills
        found.append(
            Apart(
                prefill_replicas=prefills,
                decode_replicas=max(1, ceil(requests_per_s * request.output_tokens * step_s / sequences)),
                prefill_busy=share,
                sequences=sequences,
                itl_s=step_s,
                ttft_p90_s=first_s + quantile_wait_s(prefill_s, share),
                carrying_s=carrying_s,
            )
        )
    return min(found, key=lambda one: one.replicas, default=None)


def _sizes(room: int) -> list[int]:
    """Batches worth a try, ascending: each up to 64, then in steps of a sixteenth."""
    sizes, size = [], 1
    while size <= room:
        sizes.append(size)
        size += max(1, size // 16)
    return sizes if not sizes or sizes[-1] == room else [*sizes, room]


def _busiest(work_s: float, patience_s: float) -> float:
    """The largest share of time that prefills may take so that nine of ten wait no longer; found by halves."""
    low, high = 0.0, _MOST_BUSY
    if quantile_wait_s(work_s, high) <= patience_s:
        return high
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if quantile_wait_s(work_s, middle) <= patience_s else (low, middle)
    return max(low, _LEAST_BUSY)
