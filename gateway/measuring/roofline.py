"""What was measured, held against what `prefixgate plan` computes of the same model and GPUs. Pure.

               measured                                                computed
    a prefill  of the usual prompt, less what was cached, as fitted    arithmetic
    ITL        at the least and at the most load, median               step / (1 − share of others' prefills)
    output     at the most load, tokens a second                       in flight / (ITL + prefill / tokens of an answer)

An answer is held up by prefills of others, not by its own. In a closed loop of n at an engine those are (n − 1) / n of
all; where requests come whether or not others are done, whatever share of all the time prefills take, idle time too.
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
    """So many engines, `each` of its GPUs, and the mean lengths that they are asked for."""

    each: Machine
    engines: int
    prompt_tokens: float
    output_tokens: float

    def prefill_s(self, level: Level) -> float:
        """Of a prompt, less what of it was cached at that load."""
        cached_tokens = min(self.prompt_tokens * (level.hit_share or 0.0), self.prompt_tokens - 1)
        return prefill(self.each, self.prompt_tokens, max(cached_tokens, 0.0)).seconds

    def itl_s(self, level: Level) -> float | None:
        """None where prefills leave no time. Where their share is not known, they are taken to be none."""
        at_once = max(level.in_flight / self.engines, 1.0)
        busy_share = 1.0 if level.busy_share is None else level.busy_share
        of_others = busy_share if level.clients is None else (at_once - 1) / at_once
        left = 1 - (level.prefill_share or 0.0) * of_others
        if left < _LEAST_SHARE_LEFT or level.in_flight <= 0:
            return None
        # Halfway through its answer a sequence is as long as it is on average.
        context_tokens = self.prompt_tokens + self.output_tokens / 2
        return decode_step(self.each, at_once, context_tokens).seconds / left


def held_against(study: Study, machine: Machine) -> tuple[Held, ...]:
    """Each figure that is known on both sides; none where no length is. The GPUs are of all engines, which share them
    evenly, as they do the requests in flight: those of one work as one."""
    prompt, output = study.lengths.get("prompt"), study.lengths.get("output")
    if prompt is None or output is None or not study.levels:
        return ()
    each = replace(machine, gpus=max(1, machine.gpus // study.engines))
    return tuple(_held(study.levels, _Fleet(each, study.engines, prompt.mean, output.mean)))


def _held(levels: Sequence[Level], fleet: _Fleet) -> Iterator[Held]:
    least, most = levels[0], levels[-1]
    if least.prefill is not None:
        yield Held("prefill, s", least.prefill.mean, fleet.prefill_s(least))
    for name, level in (("ITL at the least load, s", least), ("ITL at the most load, s", most)):
        itl_s = fleet.itl_s(level)
        if level.itl is not None and itl_s is not None:
            yield Held(name, level.itl.p50, itl_s)
    itl_s = fleet.itl_s(most)
    if most.output_tokens_per_s is not None and itl_s is not None:
        token_s = itl_s + fleet.prefill_s(most) / max(fleet.output_tokens, 1.0)
        yield Held("output at the most load, tokens/s", most.output_tokens_per_s, most.in_flight / token_s)
