"""Traffic that comes in bursts and by the hour, as months of public use show it (BurstGPT): nothing is reused.

Gaps are gamma with a shape below 1, and the rate swings with the day: rate(t) = mean * (1 + swing * sin(2 pi t / day)).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import pi, sin

from gateway.sim.loads.again import Again, dice_of
from gateway.sim.loads.generators.plain import CHAT_INPUT, CHAT_OUTPUT
from gateway.sim.loads.lengths import Draw
from gateway.sim.loads.names import Names, require
from gateway.sim.types import SimRequest, Workload
from prefix_index import Chain

DAY_S = 86_400.0


@dataclass(frozen=True, slots=True)
class Bursts:
    """`cv`: the variation of gaps, 1 / sqrt(shape); `swing` below 1; lengths in tokens."""

    requests: int = 10_000
    rate_per_s: float = 10.0
    cv: float = 2.0
    swing: float = 0.5
    day_s: float = DAY_S
    inputs: Draw = CHAT_INPUT
    outputs: Draw = CHAT_OUTPUT
    block_size: int = 16


def bursts(seed: int, load: Bursts = Bursts()) -> Workload:
    """The requests of `load`, no two prompts sharing a block."""
    require(load.rate_per_s > 0 and load.cv > 0 and load.day_s > 0, "a rate, a variation and a day are more than 0")
    require(0 <= load.swing < 1 and load.block_size > 0, "a swing leaves some traffic, a block has tokens")

    def requests() -> Iterator[SimRequest]:
        dice, names = dice_of(seed), Names()
        shape = 1 / load.cv**2
        at_s = 0.0
        for number in range(load.requests):
            rate = load.rate_per_s * (1 + load.swing * sin(2 * pi * at_s / load.day_s))
            at_s += dice.gammavariate(shape, 1 / rate / shape)
            tokens = load.inputs(dice)
            chain = Chain(names.fresh(tokens // load.block_size), load.block_size, tokens)
            yield SimRequest(number, at_s, chain, load.outputs(dice))

    return Workload("bursts", load.block_size, Again(requests))
