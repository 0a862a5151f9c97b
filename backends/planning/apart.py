"""Prompts computed at some replicas, answers written at others: how many of each, and what is carried. Pure.

prefill replicas   λ · P / ρ          ρ: how busy one may be, so that the first token comes in time
decode replicas    λ · o · S(B) / B   B: the largest batch that keeps the time between tokens
carried            n · bytes of a token / link, added to the time to the first token
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
    """Replicas of both kinds for a load, and what its requests see."""

    prefill_replicas: int
    decode_replicas: int
    prefill_busy: float
    sequences: int
    itl_s: float
    ttft_p90_s: float
    carrying_s: float


def apart(
    machine: Machine, request: Request, requests_per_s: float, limits: Limits, link_bytes_per_s: float
) -> Apart | None:
    """The fewest replicas that keep the limits; None where none could."""
    carrying_s = machine.kv_bytes(request.prompt_tokens) / link_bytes_per_s
    prefill_s = prefill(machine, request.prompt_tokens, request.cached_tokens).seconds
    first_s = BASE_S + prefill_s + carrying_s + decode_step(machine, 1, request.context_tokens).seconds
    room = int(most_sequences(machine, request.whole_tokens).value)
    within = [
        count for count in _sizes(room) if decode_step(machine, count, request.context_tokens).seconds <= limits.itl_s
    ]
    if first_s > limits.ttft_p90_s or not within:
        return None
    busy = _busiest(prefill_s, limits.ttft_p90_s - first_s)
    sequences = within[-1]
    step_s = decode_step(machine, sequences, request.context_tokens).seconds
    prefills = max(1, ceil(requests_per_s * prefill_s / busy))
    decodes = max(1, ceil(requests_per_s * request.output_tokens * step_s / sequences))
    share = requests_per_s * prefill_s / prefills
    return Apart(
        prefill_replicas=prefills,
        decode_replicas=decodes,
        prefill_busy=share,
        sequences=sequences,
        itl_s=step_s,
        ttft_p90_s=first_s + quantile_wait_s(prefill_s, share),
        carrying_s=carrying_s,
    )


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
