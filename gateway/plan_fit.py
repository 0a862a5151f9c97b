"""What endpoints of a running gateway reach of their datasheets: GPUs by the configuration, speeds as measured.

A backend that names no GPU teaches nothing. One that was too seldom measured, or is faster than its datasheet, is shown
with the reason, and not used.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from backends.hardware import GPUS, USUAL_MODEL
from backends.models import CATALOGUE
from backends.perf import PerfModel
from backends.planning import Bits, Machine, Shares, shares_of
from gateway.backend_sections import Backend

LEAST_SAMPLES: Final = 16
"""Prefills that a speed must be fitted to; before, it is mostly what was configured."""


@dataclass(frozen=True, slots=True)
class Measured:
    """An endpoint: its GPUs as configured, and what it reaches of them; `why_not` where that cannot be said."""

    endpoint: str
    gpu: str
    gpus: int
    model: str
    samples: int
    shares: Shares | None
    why_not: str | None


def measured_shares(
    backends: Sequence[Backend], rows: Iterable[Mapping[str, Any]], bits: tuple[Bits, Bits]
) -> list[Measured]:
    """Of each backend that names its GPU; `rows` are those of `/admin/endpoints`."""
    speeds = {row["id"]: row.get("speed") for row in rows}
    return [_measured(one, speeds.get(one.name), bits) for one in backends if one.gpu is not None]


def _measured(backend: Backend, speed: Mapping[str, Any] | None, bits: tuple[Bits, Bits]) -> Measured:
    gpu, model = backend.gpu or "", backend.gpu_model or USUAL_MODEL
    samples = 0 if speed is None else int(speed["samples"])
    shares, why_not = None, None
    if speed is None or samples < LEAST_SAMPLES:
        why_not = f"measured {samples} times, {LEAST_SAMPLES} are needed"
    else:
        fitted = PerfModel(speed["base_s"], speed["prefill_tokens_per_s"], speed["quadratic_s"], speed["itl_s"])
        try:
            shares = shares_of(Machine(CATALOGUE[model], GPUS[gpu], backend.gpus, *bits), fitted)
        except ValueError as impossible:
            why_not = str(impossible)
    return Measured(backend.name, gpu, backend.gpus, model, samples, shares, why_not)
