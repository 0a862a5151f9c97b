"""A day of coding agents, after AIPerf's "inference-day-2026" set.

    [ 32,000 of all ][ 10,000 of one of 100 groups ][ session's own ]  answer  [ more ]  answer  [ more ] ...

A session ends after its turns, or where its context would pass 200,000 tokens. Groups are drawn by Zipf's law (0.6).
A pause is an agent's (70 %, 5 s on average) or a human's (30 %, 30 s); both are skewed: half of all are below 2.5 s.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from random import Random

from gateway.sim.loads.again import Again, dice_of
from gateway.sim.loads.generators.conversing import Room, Turn, starts
from gateway.sim.loads.lengths import Draw, by_mean, by_median
from gateway.sim.loads.merging import Conversation, in_order_of_time
from gateway.sim.loads.names import Names, require
from gateway.sim.types import SimRequest, Workload

INFERENCE_DAY_OWN = by_median(5_000, 15_000, 1, 98_000)
INFERENCE_DAY_MORE = by_median(3_883, 5_758)
INFERENCE_DAY_OUTPUTS = by_median(786, 991)
INFERENCE_DAY_AGENTIC_MS = by_mean(5_000, 11_400, 1, 90_000)
INFERENCE_DAY_HUMAN_MS = by_mean(30_000, 219_600, 1, 90_000)


@dataclass(frozen=True, slots=True)
class InferenceDay:
    """Lengths in tokens, times in seconds. Turns are gamma with mean `turns` and `turn_shape` before the context limit
    cuts them; both are ours, chosen so that the published turns a session come out."""

    sessions: int = 1_131
    sessions_per_s: float = 0.5
    common_tokens: int = 32_000
    groups: int = 100
    group_tokens: int = 10_000
    skew: float = 0.6
    own: Draw = INFERENCE_DAY_OWN
    more: Draw = INFERENCE_DAY_MORE
    outputs: Draw = INFERENCE_DAY_OUTPUTS
    turns: float = 12.8
    turn_shape: float = 2.2
    context_tokens: int = 200_000
    agentic_share: float = 0.7
    agentic_ms: Draw = INFERENCE_DAY_AGENTIC_MS
    human_ms: Draw = INFERENCE_DAY_HUMAN_MS
    block_size: int = 512


def inference_day(seed: int, load: InferenceDay = InferenceDay()) -> Workload:
    """The sessions of `load`, starting at random."""
    require(load.sessions_per_s > 0 and load.groups > 0 and load.block_size > 0, "rates, groups, blocks are above 0")

    def conversations() -> Iterator[Conversation]:
        dice = dice_of(seed)
        room = Room(Names(), load.block_size)
        common = room.head(load.common_tokens)
        heads = [room.head(load.group_tokens, common) for _ in range(load.groups)]
        weights = list(accumulate(1 / (rank + 1) ** load.skew for rank in range(load.groups)))
        for number, start_s in zip(range(load.sessions), starts(dice, load.sessions_per_s), strict=False):
            (head,) = dice.choices(heads, cum_weights=weights)
            yield room.converse(f"agent-{number}", start_s, head, _turns(load, dice))

    def requests() -> Iterator[SimRequest]:
        return in_order_of_time(conversations())

    return Workload("inference-day", load.block_size, Again(requests))


def _turns(load: InferenceDay, dice: Random) -> Iterator[Turn]:
    new, output = load.own(dice), load.outputs(dice)
    context = load.common_tokens + load.group_tokens + new + output
    yield Turn(new, output)
    for _ in range(round(dice.gammavariate(load.turn_shape, load.turns / load.turn_shape)) - 1):
        new, output = load.more(dice), load.outputs(dice)
        context += new + output
        if context > load.context_tokens:
            return
        pauses_ms = load.agentic_ms if dice.random() < load.agentic_share else load.human_ms
        yield Turn(new, output, pauses_ms(dice) / 1000)
