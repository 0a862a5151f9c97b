"""What was measured, held against what `prefixgate plan` computes of the same model and GPUs. Pure.

                                                             measured                  computed
    a prefill       of the usual prompt, less what was cached   by a speed that was fitted  arithmetic
    ITL             at the least and at the most load           median                    step / (1 − prefill share)
    output          at the most load                            tokens a second           in flight / ITL

Above 1 the engine is slower than the roofline with its usual shares of the datasheet, or served less.
"""

from collections.abc import Iterator
from typing import Final

from backends.planning import Machine, decode_step, prefill
from gateway.measuring.types import Held, Level, Study

_LEAST_SHARE_LEFT: Final = 0.05
"""Of the time, for decode: beyond, an ITL is whatever prefills leave of it."""


def held_against(study: Study, machine: Machine) -> tuple[Held, ...]:
    """Each figure that is known on both sides."""
    prompt, output = study.lengths.get("prompt"), study.lengths.get("output")
    if prompt is None or output is None or not study.levels:
        return ()
    cached = min(prompt.mean * (study.levels[0].hit_share or 0.0), prompt.mean - 1)
    context = prompt.mean + output.mean / 2
    return tuple(_held(study, machine, (prompt.mean, max(cached, 0.0), context)))


def _held(study: Study, machine: Machine, tokens: tuple[float, float, float]) -> Iterator[Held]:
    prompt, cached, context = tokens
    least, most = study.levels[0], study.levels[-1]
    if least.prefill is not None:
        yield Held("prefill, s", least.prefill.mean, prefill(machine, prompt, cached).seconds)
    for name, level in (("ITL at the least load, s", least), ("ITL at the most load, s", most)):
        expected_s = _itl_s(level, machine, context)
        if level.itl is not None and expected_s is not None:
            yield Held(name, level.itl.p50, expected_s)
    expected_s = _itl_s(most, machine, context)
    if most.output_tokens_per_s is not None and expected_s is not None:
        yield Held("output at the most load, tokens/s", most.output_tokens_per_s, most.in_flight / expected_s)


def _itl_s(level: Level, machine: Machine, context: float) -> float | None:
    left = level.decode_share if level.decode_share is not None else 1.0
    if left < _LEAST_SHARE_LEFT or level.in_flight <= 0:
        return None
    return decode_step(machine, max(level.in_flight, 1.0), context).seconds / left
