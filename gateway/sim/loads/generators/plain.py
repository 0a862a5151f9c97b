"""The two ends: prompts that have nothing in common, and one prefix that nearly everybody has.

The first shows what a router costs where there is nothing to win, the second whether one endpoint is buried under what
all want.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from gateway.sim.loads.again import Again, dice_of
from gateway.sim.loads.generators.conversing import EMPTY, Head, Room
from gateway.sim.loads.lengths import Draw, Lognormal, by_p90
from gateway.sim.loads.names import Names, require
from gateway.sim.types import SimRequest, Workload
from prefix_index import Chain

CHAT_INPUT = by_p90(1020, 2735)
CHAT_OUTPUT = by_p90(129, 424)
"""Quantiles of Azure's hour of chat in 2023."""


@dataclass(frozen=True, slots=True)
class Plain:
    """`requests` prompts, Poisson at `rate_per_s`; lengths in tokens."""

    requests: int = 10_000
    rate_per_s: float = 10.0
    inputs: Draw = CHAT_INPUT
    outputs: Draw = CHAT_OUTPUT
    block_size: int = 16


def no_sharing(seed: int, load: Plain = Plain()) -> Workload:
    """Every prompt is unlike all others."""
    return _plain("no-sharing", seed, load, 0, 0.0)


def hot_prefix(
    seed: int,
    load: Plain = Plain(inputs=Lognormal(400, 0.8)),  # noqa: B008 -- frozen
    *,
    hot_tokens: int = 8_000,
    hot_share: float = 0.6,
) -> Workload:
    """`hot_share` of the requests begin with the same `hot_tokens`, the others with nothing known; `inputs` follow."""
    require(hot_tokens >= 0 and 0 <= hot_share <= 1, "a prefix has tokens, a share lies between 0 and 1")
    return _plain("hot-prefix", seed, load, hot_tokens, hot_share)


def _plain(name: str, seed: int, load: Plain, hot_tokens: int, hot_share: float) -> Workload:
    require(load.requests >= 0 and load.rate_per_s > 0 and load.block_size > 0, "a rate and a block are more than 0")

    def requests() -> Iterator[SimRequest]:
        room = Room(Names(), load.block_size)
        hot = room.head(hot_tokens)
        dice = dice_of(seed)
        at_s = 0.0
        for number in range(load.requests):
            at_s += dice.expovariate(load.rate_per_s)
            head = hot if dice.random() < hot_share else EMPTY
            yield SimRequest(number, at_s, _prompt(dice, room, head, load.inputs), load.outputs(dice))

    return Workload(name, load.block_size, Again(requests))


def _prompt(dice: Random, room: Room, head: Head, inputs: Draw) -> Chain:
    names, tokens = room.head(inputs(dice), head)
    return Chain(names, room.block_size, tokens)
