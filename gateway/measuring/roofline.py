"""What was measured, held against what `prefixgate plan` computes of the same model and GPUs. Pure.

                                                             measured                  computed
    a prefill       of the usual prompt, less what was cached   by a speed that was fitted  arithmetic
    ITL             at the least and at the most load           median                    step / (1 − prefill share)
    output          at the most load                            tokens a second           in flight / ITL

Measured over computed: above 1 a prefill or a token takes longer than by the roofline with its usual shares of the
datasheet; of output it is below 1 that less was served.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from backends.planning import Machine, decode_step, prefill
from gateway.measuring.types import Held, Level, Study

_LEAST_SHARE_LEFT: Final = 0.05
"""Of the time, for decode: beyond, an ITL is whatever prefills leave of it."""


@dataclass(frozen=True, slots=True)
class _Fleet:
    """So many engines, `each` of its GPUs."""

    each: Machine
    engines: int


def held_against(study: Study, machine: Machine) -> tuple[Held, ...]:
    """Each figure that is known on both sides; none where no length is. The GPUs are of all engines, which share them
    evenly, as they do the requests in flight: those of one work as one."""
    prompt, output = study.lengths.get("prompt"), study.lengths.get("output")
    if prompt is None or output is None or not study.levels:
        return ()
    # Halfway through its answer a sequence is as long as it is on average.
    context_tokens = prompt.mean + output.mean / 2
    each = replace(machine, gpus=max(1, machine.gpus // study.engines))
    return (
        *_prefill(study.levels[0], each, prompt.mean),
        *_decode(study.levels, _Fleet(each, study.engines), context_tokens),
    )


def _prefill(least: Level, machine: Machine, prompt_tokens: float) -> Iterator[Held]:
    cached_tokens = min(prompt_tokens * (least.hit_share or 0.0), prompt_tokens - 1)
    if least.prefill is not None:
        computed_s = prefill(machine, prompt_tokens, max(cached_tokens, 0.0)).seconds
        yield Held("prefill, s", least.prefill.mean, computed_s)


def _decode(levels: Sequence[Level], fleet: _Fleet, context_tokens: float) -> Iterator[Held]:
    least, most = levels[0], levels[-1]
    for name, level in (("ITL at the least load, s", least), ("ITL at the most load, s", most)):
        computed_s = _itl_s(level, fleet, context_tokens)
        if level.itl is not None and computed_s is not None:
            yield Held(name, level.itl.p50, computed_s)
    computed_s = _itl_s(most, fleet, context_tokens)
    if most.output_tokens_per_s is not None and computed_s is not None:
        yield Held("output at the most load, tokens/s", most.output_tokens_per_s, most.in_flight / computed_s)


def _itl_s(level: Level, fleet: _Fleet, context_tokens: float) -> float | None:
    """None where prefills leave no time. Where their share is not known, they are taken to be none."""
    left = level.decode_share if level.decode_share is not None else 1.0
    if left < _LEAST_SHARE_LEFT or level.in_flight <= 0:
        return None
    return decode_step(fleet.each, max(level.in_flight / fleet.engines, 1.0), context_tokens).seconds / left
