"""The five workloads of inference-perf's catalogue: chat, code, research, retrieval in batches, reasoning.

    [ shared by all ][ of the conversation ][ input ][ answer ][ input ][ answer ] ...

Distributions are lognormal with the published mean and deviation, or normal where published so, bounded as published.
What the catalogue leaves open is ours: the deviations of answers, that sessions start at random, pauses of 10 s.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from random import Random

from gateway.sim.loads.again import Again, dice_of
from gateway.sim.loads.generators.conversing import Room, Turn, starts
from gateway.sim.loads.lengths import Draw, Fixed, Normal, by_mean
from gateway.sim.loads.merging import Conversation, in_order_of_time
from gateway.sim.loads.names import Names, require
from gateway.sim.types import SimRequest, Workload


@dataclass(frozen=True, slots=True)
class Kind:
    """One row of the catalogue; lengths in tokens. `own` is drawn once a conversation, `inputs` once a turn."""

    name: str
    shared_tokens: int
    own: Draw
    turns: Draw
    inputs: Draw
    outputs: Draw
    sessions: int = 500
    sessions_per_s: float = 1.0
    pause_s: float = 10.0
    block_size: int = field(default=16)


CHAT = Kind(
    "interactive-chat",
    1_000,
    by_mean(4_000, 2_500, 500, 15_000),
    by_mean(4, 2.5, 1, 15),
    by_mean(50, 40, 10, 1_000),
    Normal(300, 100),
)
CODE = Kind(
    "code-generation",
    3_000,
    by_mean(160_000, 233_600, 10_000, 990_000),
    by_mean(6, 4, 2, 20),
    by_mean(1_500, 1_200, 100, 10_000),
    by_mean(800, 700, 50, 4_000),
    sessions=100,
    sessions_per_s=0.1,
)
CODE_LIGHT = replace(CODE, name="code-generation-light", own=by_mean(55_000, 40_000, 3_000, 100_000))
RESEARCH = Kind(
    "deep-research",
    2_000,
    by_mean(45_000, 35_000, 2_000, 150_000),
    Normal(15, 8.5, 2, 50),
    by_mean(3_000, 2_500),
    Normal(300, 100),
    sessions=100,
    sessions_per_s=0.1,
)
RETRIEVAL = Kind("batch-rag", 500, Fixed(0), Fixed(1), Normal(15_000, 22_000, 1_000, 80_000), Normal(500, 300))
REASONING = Kind("reasoning", 250, Fixed(0), Fixed(1), by_mean(1_000, 800), by_mean(8_000, 6_500, 500, 32_000))

CATALOGUE = (CHAT, CODE, CODE_LIGHT, RESEARCH, RETRIEVAL, REASONING)


def from_catalogue(kind: Kind, seed: int) -> Workload:
    """The conversations of one row. Code's turns are those of its lighter variant: the other leaves them open."""
    require(kind.sessions_per_s > 0 and kind.pause_s > 0 and kind.block_size > 0, "rates, pauses, blocks are above 0")

    def conversations() -> Iterator[Conversation]:
        dice = dice_of(seed)
        room = Room(Names(), kind.block_size)
        shared = room.head(kind.shared_tokens)
        for number, start_s in zip(range(kind.sessions), starts(dice, kind.sessions_per_s), strict=False):
            # Names of the conversation's own part are given with its first turn, so that waiting ones take no room.
            yield room.converse(f"{kind.name}-{number}", start_s, shared, _turns(kind, dice))

    def requests() -> Iterator[SimRequest]:
        return in_order_of_time(conversations())

    return Workload(kind.name, kind.block_size, Again(requests))


def _turns(kind: Kind, dice: Random) -> Iterator[Turn]:
    yield Turn(kind.own(dice) + kind.inputs(dice), kind.outputs(dice))
    for _ in range(kind.turns(dice) - 1):
        yield Turn(kind.inputs(dice), kind.outputs(dice), dice.expovariate(1 / kind.pause_s))
